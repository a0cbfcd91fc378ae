// A door to the store for its own tests and benchmarks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ecphory/status.h"
#include "engram/store.h"
#include "engram/store_io.h"
#include "engram/table_reader.h"
#include "io/read_queue.h"

namespace ecphory::engram {

// Makes a queue for files in this order.
using QueueMaker = std::function<Result<std::unique_ptr<ReadQueue>>(
    const std::vector<std::shared_ptr<RandomAccessFile>>& files)>;

class StoreAccess {
 public:
  // Store::Open over a queue of the caller's choice.
  static Result<std::unique_ptr<Store>> OpenWithQueue(
      std::vector<TableSource> tables, const QueueMaker& make_queue,
      uint64_t cache_bytes);

  static Result<std::unique_ptr<Store>> Start(std::vector<TableReader> tables,
                                              StoreIo io);
};

}  // namespace ecphory::engram
