#include "tables/table_files.h"

#include <map>
#include <string>
#include <utility>

#include "tables/residency.h"

namespace ecphory::tables {

Result<TableFiles> OpenTableFiles(const TableSet& set) {
  TableFiles out;
  std::map<std::string, uint32_t> numbers;
  const auto add = [&](const std::shared_ptr<RandomAccessFile>& file,
                       uint64_t offset, uint64_t bytes) -> Status {
    const auto [at, is_new] =
        numbers.emplace(file->path(), static_cast<uint32_t>(out.files.size()));
    if (is_new) {
      ECPHORY_ASSIGN_OR_RETURN(auto opened, TableFile::Open(file));
      out.files.push_back(std::move(opened));
    }
    out.ranges.push_back({at->second, offset, bytes});
    return {};
  };
  for (const engram::TableSource& table : set.tables) {
    ECPHORY_RETURN_IF_ERROR(
        add(table.file, table.offset,
            table.rows * TableRowBytes(table.codec, table.width)));
    if (!table.scale_file) continue;
    ECPHORY_RETURN_IF_ERROR(
        add(table.scale_file, table.scale_offset,
            table.rows * TableScaleBytes(table.codec, table.width)));
  }
  return out;
}

std::vector<TableRange> TableFiles::TableRanges() const {
  std::vector<TableRange> out;
  for (const ProbeRange& range : ranges) {
    out.push_back({range.file, range.offset, range.bytes});
  }
  return out;
}

uint64_t TableFiles::Resident() const {
  uint64_t bytes = 0;
  for (const ProbeRange& range : ranges) {
    bytes += ResidentBytes(files[range.file]->path(), range.offset, range.bytes)
                 .value_or(0);
  }
  return bytes;
}

Status TableFiles::Drop() const {
  for (const ProbeRange& range : ranges) {
    ECPHORY_RETURN_IF_ERROR(
        DropResident(files[range.file]->path(), range.offset, range.bytes));
  }
  return {};
}

uint64_t TableFiles::bytes() const {
  uint64_t bytes = 0;
  for (const ProbeRange& range : ranges) bytes += range.bytes;
  return bytes;
}

}  // namespace ecphory::tables
