// Whole Engram tables where a device's operators reach them: rows are picked by
// their numbers and decoded there, and nothing is read while tokens are
// computed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ecphory/status.h"
#include "engram/store.h"
#include "ops/device_array.h"
#include "ops/table_rows.h"

namespace ecphory {

// Immutable after Load(), thread-safe. Must not outlive the device.
class ResidentTables {
 public:
  // Bytes copied and in all; false cancels.
  using Progress = std::function<bool(uint64_t done, uint64_t total)>;

  // Bytes that the tables take.
  static uint64_t Bytes(std::span<const engram::TableSource> tables);
  // Copies the tables as they are stored, past the page cache where that is
  // allowed. Errors: of reading, which name the table, and of memory;
  // kCancelled.
  static Result<std::unique_ptr<ResidentTables>> Load(
      std::span<const engram::TableSource> tables, Device& device,
      MemoryKind kind, const Progress& progress);

  // Table `index`, of which `numbers` say the rows.
  TableRows Rows(size_t index, const uint64_t* numbers) const;

 private:
  struct Table {
    TableCodec codec = TableCodec::kRow264;
    size_t width = 0;
    DeviceArray<uint8_t> rows;    // [rows, TableRowBytes]
    DeviceArray<uint8_t> scales;  // [rows, TableScaleBytes], or none
  };
  std::vector<Table> tables_;
};

}  // namespace ecphory
