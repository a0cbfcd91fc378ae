// Reads through the page cache: hits are copied at once, misses go deep.
#pragma once

#include <memory>
#include <vector>

#include "ecphory/status.h"
#include "io/queue_file.h"
#include "io/read_queue.h"

namespace ecphory {

// Puts the copying of known pages (io/cached_pages.h) before `inner`, a queue
// over the same files that reads through the page cache. Submit copies hits
// itself. While a thread sleeps in Reap for misses, hits submitted meanwhile
// come back with the first of these.
std::unique_ptr<ReadQueue> MakePageCacheQueue(std::vector<QueueFile> files,
                                              std::unique_ptr<ReadQueue> inner);

}  // namespace ecphory
