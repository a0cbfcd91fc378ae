// Where a store's bytes come from: made once from tables and options.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ecphory/status.h"
#include "engram/lookup.h"
#include "engram/row_cache.h"
#include "engram/store.h"
#include "engram/table_reader.h"
#include "io/read_queue.h"

namespace ecphory::engram {

// Either a queue or views.
struct StoreIo {
  std::unique_ptr<ReadQueue> queue;
  std::vector<ReadRules> rules;     // [tables] of the queue
  std::vector<TableView> views;     // [tables] when there is no queue
  size_t scratch_alignment = 4096;  // of what the queue reads into
  std::unique_ptr<RowCache> cache;  // null: none
  IoReport report;
};

// The files of all tables, each once; a queue's file indices follow this order.
std::vector<std::shared_ptr<RandomAccessFile>> FilesOf(
    std::span<const TableReader> tables);

Result<StoreIo> MakeStoreIo(std::span<const TableReader> tables,
                            const StoreOptions& options);

// Over a queue that was made for FilesOf(tables).
Result<StoreIo> MakeStoreIo(std::span<const TableReader> tables,
                            std::unique_ptr<ReadQueue> queue,
                            uint64_t cache_bytes);

}  // namespace ecphory::engram
