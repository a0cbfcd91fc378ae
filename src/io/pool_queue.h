// Reads through a standing pool of threads in pread(2).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ecphory/status.h"
#include "io/queue_file.h"
#include "io/read_queue.h"

namespace ecphory {

struct PoolOptions {
  uint32_t depth = 256;   // 1..kMaxQueueDepth
  uint32_t threads = 16;  // 1..256; each waits for one read at a time
  // Submit copies what the page cache holds (RWF_NOWAIT) by itself, and the
  // threads get the rest.
  bool hits_at_once = false;
};

// Works for every file: one without a descriptor is read by ReadExact, whose
// failures come back as -EIO, and as a short read where the file ends early.
// kResourceExhausted when the threads are refused.
Result<std::unique_ptr<ReadQueue>> MakePoolQueue(std::vector<QueueFile> files,
                                                 const PoolOptions& options);

}  // namespace ecphory
