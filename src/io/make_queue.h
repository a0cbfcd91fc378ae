// The read queue for a way in, or the next best one with the reason.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ecphory/status.h"
#include "io/io_mode.h"
#include "io/read_queue.h"
#include "io/table_file.h"

namespace ecphory {

struct QueueOptions {
  uint32_t depth = 256;   // 1..kMaxQueueDepth
  uint32_t threads = 16;  // of a pool, 1..256
};

struct MadeQueue {
  std::unique_ptr<ReadQueue> queue;
  IoMode mode = IoMode::kPread;  // kUring, kPread or kBuffered
  bool direct = false;           // every file is read past the page cache
  // What was denied, why, and what is used instead; one line, empty when all
  // is as asked for.
  std::string denied;
};

// `mode` is kUring, kPread or kBuffered. Files keep their index. What the
// kernel or a file system denies is no error: kUring becomes kPread, O_DIRECT
// becomes the page cache, file by file. Fails only when a pool is needed and
// its threads are refused.
Result<MadeQueue> MakeQueue(
    IoMode mode, std::span<const std::shared_ptr<const TableFile>> files,
    const QueueOptions& options);

}  // namespace ecphory
