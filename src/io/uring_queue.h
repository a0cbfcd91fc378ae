// Reads through io_uring: one system call starts a batch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ecphory/status.h"
#include "io/queue_file.h"
#include "io/read_queue.h"

namespace ecphory {

// io_uring_enter(2): the count of submissions taken, or a negative errno value.
using UringEnter = int (*)(int ring, unsigned to_submit, unsigned min_complete,
                           unsigned flags);

struct UringOptions {
  uint32_t depth = 256;  // 1..kMaxQueueDepth
  // Tests put a kernel here that takes less than it is given.
  UringEnter enter = nullptr;
};

// Every file must have a descriptor. Errors name the cause: kUnsupported when
// the kernel or a filter denies io_uring, kResourceExhausted for descriptors
// and memory. A caller that waits gets fewer than `min` completions only when
// waiting failed; the next Reap then says why. A read through the page cache
// completes with -EAGAIN when the thread that submitted it has ended.
Result<std::unique_ptr<ReadQueue>> MakeUringQueue(std::vector<QueueFile> files,
                                                  const UringOptions& options);

// Ok when the kernel gives this process an io_uring; else why not.
Status UringAllowed();

}  // namespace ecphory
