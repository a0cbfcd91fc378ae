#include "model/resident_tables.h"

#include <algorithm>
#include <utility>

#include "base/quote.h"
#include "io/table_file.h"

namespace ecphory {

namespace {

// Large enough for a disk's full rate, small enough for progress to be seen.
constexpr uint64_t kPiece = uint64_t{16} << 20;

uint64_t CodeBytes(const engram::TableSource& table) {
  return table.rows * TableRowBytes(table.codec, table.width);
}
uint64_t ScaleBytes(const engram::TableSource& table) {
  return table.rows * TableScaleBytes(table.codec, table.width);
}

// Copies stretches of files to a device's memory, and counts.
class Loader {
 public:
  Loader(Device& device, MemoryKind kind, uint64_t total,
         const ResidentTables::Progress& progress)
      : device_(device), kind_(kind), total_(total), progress_(progress) {}

  Result<DeviceArray<uint8_t>> Load(
      const std::shared_ptr<RandomAccessFile>& file, uint64_t offset,
      uint64_t bytes) {
    ECPHORY_ASSIGN_OR_RETURN(
        auto memory, DeviceArray<uint8_t>::Allocate(device_, bytes, kind_));
    if (bytes == 0) return memory;
    ECPHORY_ASSIGN_OR_RETURN(const auto opened, TableFile::Open(file));
    for (uint64_t at = 0; at < bytes; at += kPiece) {
      const size_t piece = static_cast<size_t>(std::min(kPiece, bytes - at));
      ECPHORY_RETURN_IF_ERROR(
          Copy(*opened, offset + at, piece, memory.data() + at));
      done_ += piece;
      if (progress_ && !progress_(done_, total_)) {
        return Cancelled("%s: copying Engram tables to memory was stopped",
                         file->path().c_str());
      }
    }
    return memory;
  }

 private:
  Status Copy(const TableFile& file, uint64_t offset, size_t bytes,
              uint8_t* to) {
    if (kind_ == MemoryKind::kShared) {
      return file.ReadExact(offset, {to, bytes});
    }
    piece_.resize(bytes);
    ECPHORY_RETURN_IF_ERROR(file.ReadExact(offset, piece_));
    return device_.Upload(to, piece_.data(), bytes);
  }

  Device& device_;
  const MemoryKind kind_;
  const uint64_t total_;
  const ResidentTables::Progress& progress_;
  uint64_t done_ = 0;
  std::vector<uint8_t> piece_;
};

}  // namespace

uint64_t ResidentTables::Bytes(std::span<const engram::TableSource> tables) {
  uint64_t bytes = 0;
  for (const engram::TableSource& table : tables) {
    bytes += CodeBytes(table) + ScaleBytes(table);
  }
  return bytes;
}

Result<std::unique_ptr<ResidentTables>> ResidentTables::Load(
    std::span<const engram::TableSource> tables, Device& device,
    MemoryKind kind, const Progress& progress) {
  auto resident = std::make_unique<ResidentTables>();
  Loader loader(device, kind, Bytes(tables), progress);
  for (const engram::TableSource& source : tables) {
    Table table{
        .codec = source.codec, .width = source.width, .rows = {}, .scales = {}};
    const std::string name = "table " + Quoted(source.name);
    auto rows = loader.Load(source.file, source.offset, CodeBytes(source));
    if (!rows.ok()) return rows.status().WithContext(name);
    auto scales =
        loader.Load(source.scale_file, source.scale_offset, ScaleBytes(source));
    if (!scales.ok()) return scales.status().WithContext(name);
    table.rows = std::move(rows).value();
    table.scales = std::move(scales).value();
    resident->tables_.push_back(std::move(table));
  }
  return resident;
}

TableRows ResidentTables::Rows(size_t index, const uint64_t* numbers) const {
  const Table& table = tables_[index];
  return {.codec = table.codec,
          .rows = table.rows.data(),
          .row_stride = TableRowBytes(table.codec, table.width),
          .scales = table.scales.data(),
          .scale_stride = TableScaleBytes(table.codec, table.width),
          .numbers = numbers};
}

}  // namespace ecphory
