#include "engram/store_io.h"

#include <algorithm>
#include <utility>

#include "io/file_view.h"
#include "io/io_choice.h"
#include "io/table_file.h"

namespace ecphory::engram {

namespace {

// A page: what most disks read at once. Rows that lie together fill it.
constexpr uint32_t kLeastReadBytes = 4096;
constexpr uint32_t kMaxIoThreads = 256;

std::shared_ptr<RandomAccessFile> FileOf(const TableReader& table,
                                         size_t part) {
  return part == 0 ? table.source().file : table.source().scale_file;
}

uint32_t MaxBytes(size_t row_bytes, uint32_t alignment) {
  // A row may begin in the last byte of a sector.
  const size_t span = (row_bytes + 2 * (alignment - 1)) / alignment * alignment;
  return static_cast<uint32_t>(std::max<size_t>(span, kLeastReadBytes));
}

Result<std::unique_ptr<RowCache>> MakeCache(std::span<const TableReader> tables,
                                            uint64_t bytes) {
  std::vector<RowCacheTable> shapes;
  for (const TableReader& table : tables) {
    shapes.push_back({table.source().rows, table.row_bytes()});
  }
  return RowCache::Create(bytes, shapes);
}

Status CheckOptions(const StoreOptions& options) {
  if (options.io_threads == 0 || options.io_threads > kMaxIoThreads) {
    return InvalidArgument("%u Engram reader threads, expected 1..%u",
                           options.io_threads, kMaxIoThreads);
  }
  if (options.queue_depth == 0 || options.queue_depth > kMaxQueueDepth) {
    return InvalidArgument("%u Engram reads in flight, expected 1..%u",
                           options.queue_depth, kMaxQueueDepth);
  }
  return {};
}

using Files = std::vector<std::shared_ptr<RandomAccessFile>>;
using TableFiles = std::vector<std::shared_ptr<const TableFile>>;

uint32_t IndexOf(const Files& files, const TableReader& table, size_t part) {
  const auto file = std::find(files.begin(), files.end(), FileOf(table, part));
  return static_cast<uint32_t>(file - files.begin());
}

std::vector<TableRange> RangesOf(std::span<const TableReader> tables,
                                 const Files& files) {
  std::vector<TableRange> ranges;
  for (const TableReader& table : tables) {
    for (size_t p = 0; p < table.parts(); ++p) {
      const TableReader::Part& part = table.part(p);
      ranges.push_back({IndexOf(files, table, p), part.offset,
                        table.source().rows * part.bytes});
    }
  }
  return ranges;
}

size_t LargestPart(std::span<const TableReader> tables) {
  size_t bytes = 1;
  for (const TableReader& table : tables) {
    bytes = std::max({bytes, table.part(0).bytes, table.part(1).bytes});
  }
  return bytes;
}

Result<std::vector<TableView>> MakeViews(bool ram, const TableFiles& opened,
                                         std::span<const TableReader> tables,
                                         const Files& files) {
  std::vector<TableView> views(tables.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    for (size_t p = 0; p < tables[t].parts(); ++p) {
      const TableReader::Part& part = tables[t].part(p);
      const auto& file = opened[IndexOf(files, tables[t], p)];
      const uint64_t bytes = tables[t].source().rows * part.bytes;
      ECPHORY_ASSIGN_OR_RETURN(
          views[t].part[p],
          ram ? MakeRamView(*file, part.offset, bytes, nullptr)
              : MakeMapView(file, part.offset, bytes));
    }
  }
  return views;
}

}  // namespace

std::vector<std::shared_ptr<RandomAccessFile>> FilesOf(
    std::span<const TableReader> tables) {
  std::vector<std::shared_ptr<RandomAccessFile>> files;
  for (const TableReader& table : tables) {
    for (size_t p = 0; p < table.parts(); ++p) {
      const auto file = FileOf(table, p);
      if (std::find(files.begin(), files.end(), file) == files.end()) {
        files.push_back(file);
      }
    }
  }
  return files;
}

Result<StoreIo> MakeStoreIo(std::span<const TableReader> tables,
                            std::unique_ptr<ReadQueue> queue,
                            uint64_t cache_bytes) {
  StoreIo io;
  io.queue = std::move(queue);
  const auto files = FilesOf(tables);
  for (const TableReader& table : tables) {
    ReadRules rules;
    for (size_t p = 0; p < table.parts(); ++p) {
      const uint32_t index = IndexOf(files, table, p);
      const uint32_t alignment = io.queue->alignment(index);
      rules.part[p] = {index, alignment,
                       MaxBytes(table.part(p).bytes, alignment),
                       io.queue->pages(index)};
      io.scratch_alignment = std::max<size_t>(io.scratch_alignment, alignment);
    }
    io.rules.push_back(rules);
  }
  if (cache_bytes > 0) {
    ECPHORY_ASSIGN_OR_RETURN(io.cache, MakeCache(tables, cache_bytes));
  }
  return io;
}

Result<StoreIo> MakeStoreIo(std::span<const TableReader> tables,
                            const StoreOptions& options) {
  ECPHORY_RETURN_IF_ERROR(CheckOptions(options));
  const auto files = FilesOf(tables);
  TableFiles opened;
  for (const auto& file : files) {
    ECPHORY_ASSIGN_OR_RETURN(auto table_file, TableFile::Open(file));
    opened.push_back(std::move(table_file));
  }
  IoRequest request;
  request.mode = options.io;
  request.files = opened;
  const auto ranges = RangesOf(tables, files);
  request.tables = ranges;
  request.row_bytes = static_cast<uint32_t>(LargestPart(tables));
  request.queue = {options.queue_depth, options.io_threads};
  request.probe_seconds = options.probe_seconds;
  ECPHORY_ASSIGN_OR_RETURN(IoChoice choice, ChooseIo(request));
  StoreIo io;
  if (choice.queue != nullptr) {
    const uint64_t cache_bytes = options.cache_bytes.value_or(
        choice.page_cache_holds ? 0 : kDefaultCacheBytes);
    ECPHORY_ASSIGN_OR_RETURN(
        io, MakeStoreIo(tables, std::move(choice.queue), cache_bytes));
  } else {
    ECPHORY_ASSIGN_OR_RETURN(io.views, MakeViews(choice.mode == IoMode::kRam,
                                                 opened, tables, files));
    if (options.cache_bytes.value_or(0) > 0) {
      choice.reason += "; no row cache: rows are decoded where they lie";
    }
  }
  io.report = {.mode = choice.mode,
               .direct = choice.direct,
               .fallback = choice.fallback,
               .cache_bytes = io.cache == nullptr ? 0 : io.cache->bytes(),
               .reason = std::move(choice.reason)};
  return io;
}

}  // namespace ecphory::engram
