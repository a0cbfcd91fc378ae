#include "engram/table_reader.h"

#include <algorithm>
#include <cinttypes>
#include <string>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/quote.h"

namespace ecphory::engram {

namespace {

// Enough to meet a hole or another file's bytes, few enough to cost
// milliseconds on a cold disk.
constexpr uint64_t kSampledRows = 32;

bool AllZero(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](uint8_t byte) { return byte == 0; });
}

std::string TableName(const TableSource& source) {
  return "table " + Quoted(source.name);
}

}  // namespace

Result<TableReader> TableReader::Open(TableSource source) {
  TableReader reader;
  reader.source_ = std::move(source);
  ECPHORY_RETURN_IF_ERROR(reader.CheckShape());
  const TableSource& table = reader.source_;
  reader.main_bytes_ = TableRowBytes(table.codec, table.width);
  reader.scale_bytes_ = TableScaleBytes(table.codec, table.width);
  ECPHORY_RETURN_IF_ERROR(
      reader.CheckExtent(table.file.get(), table.offset, reader.main_bytes_));
  if (reader.scale_bytes_ > 0) {
    ECPHORY_RETURN_IF_ERROR(reader.CheckExtent(
        table.scale_file.get(), table.scale_offset, reader.scale_bytes_));
  }
  ECPHORY_RETURN_IF_ERROR(reader.CheckSample());
  return reader;
}

Status TableReader::CheckShape() const {
  if (source_.width == 0 || source_.width % 32 != 0 ||
      source_.width > kMaxTableWidth) {
    return Unsupported(
        "%s: rows of %u values, expected a multiple of 32 up to %u",
        TableName(source_).c_str(), source_.width, kMaxTableWidth);
  }
  if (source_.rows == 0) {
    return Corrupt("%s: has no rows", TableName(source_).c_str());
  }
  return {};
}

Status TableReader::CheckExtent(const RandomAccessFile* file, uint64_t offset,
                                size_t bytes_per_row) const {
  if (file == nullptr) {
    return InvalidArgument("%s: no file is given for %s",
                           TableName(source_).c_str(),
                           TableCodecName(source_.codec));
  }
  uint64_t bytes, end;
  if (CheckedMul(source_.rows, bytes_per_row, &bytes) &&
      CheckedAdd(offset, bytes, &end) && end <= file->size()) {
    return {};
  }
  return Corrupt("%s: %s: %" PRIu64 " rows of %zu bytes from offset %" PRIu64
                 " reach past the end (%" PRIu64
                 " bytes); fetch the whole file again",
                 file->path().c_str(), TableName(source_).c_str(), source_.rows,
                 bytes_per_row, offset, file->size());
}

Status TableReader::CheckSample() const {
  std::vector<uint8_t> scratch(row_bytes());
  std::vector<float> values(source_.width);
  const uint64_t samples = std::min(kSampledRows, source_.rows);
  bool all_zero = true;
  for (uint64_t i = 0; i < samples; ++i) {
    // Evenly spaced, first and last row included.
    const uint64_t row =
        samples == 1 ? 0 : i * (source_.rows - 1) / (samples - 1);
    ECPHORY_RETURN_IF_ERROR(ReadRow(row, scratch, values.data()));
    all_zero = all_zero && AllZero(scratch);
  }
  if (!all_zero) return {};
  return Corrupt(
      "%s: %s: all %" PRIu64
      " sampled rows are zero bytes, the table is missing; fetch the "
      "file again",
      source_.file->path().c_str(), TableName(source_).c_str(), samples);
}

Status TableReader::ReadBytes(uint64_t row, std::span<uint8_t> scratch) const {
  ECPHORY_RETURN_IF_ERROR(source_.file->ReadExact(
      source_.offset + row * main_bytes_, scratch.first(main_bytes_)));
  if (scale_bytes_ == 0) return {};
  return source_.scale_file->ReadExact(
      source_.scale_offset + row * scale_bytes_,
      scratch.subspan(main_bytes_, scale_bytes_));
}

Status TableReader::ReadRow(uint64_t row, std::span<uint8_t> scratch,
                            float* out) const {
  const Status read = ReadBytes(row, scratch);
  if (!read.ok()) {
    return read.WithContext(TableName(source_) + ", row " +
                            std::to_string(row));
  }
  if (DecodeTableRow(source_.codec, scratch.data(),
                     scratch.data() + main_bytes_, source_.width, out)) {
    return {};
  }
  return Corrupt("%s: %s, row %" PRIu64 " at offset %" PRIu64
                 ": a code or scale is no number or a value is not finite; "
                 "fetch the file again",
                 source_.file->path().c_str(), TableName(source_).c_str(), row,
                 source_.offset + row * main_bytes_);
}

}  // namespace ecphory::engram
