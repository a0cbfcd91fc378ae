#include "engram/table_reader.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/quote.h"
#include "engram/row_decode.h"
#include "io/table_file.h"

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
  reader.parts_[0] = {table.file.get(), table.offset,
                      TableRowBytes(table.codec, table.width)};
  reader.parts_[1] = {table.scale_file.get(), table.scale_offset,
                      TableScaleBytes(table.codec, table.width)};
  for (size_t i = 0; i < reader.parts(); ++i) {
    ECPHORY_RETURN_IF_ERROR(reader.CheckExtent(reader.parts_[i]));
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

Status TableReader::CheckExtent(const Part& part) const {
  if (part.file == nullptr) {
    return InvalidArgument("%s: no file is given for %s",
                           TableName(source_).c_str(),
                           TableCodecName(source_.codec));
  }
  uint64_t bytes, end;
  if (CheckedMul(source_.rows, part.bytes, &bytes) &&
      CheckedAdd(part.offset, bytes, &end) && end <= part.file->size()) {
    return {};
  }
  return Corrupt("%s: %s: %" PRIu64 " rows of %zu bytes from offset %" PRIu64
                 " reach past the end (%" PRIu64
                 " bytes); fetch the whole file again",
                 part.file->path().c_str(), TableName(source_).c_str(),
                 source_.rows, part.bytes, part.offset, part.file->size());
}

Status TableReader::CheckSample() const {
  // Looking at a table leaves nothing of it in the page cache.
  std::shared_ptr<const TableFile> files[kMaxParts];
  for (size_t p = 0; p < parts(); ++p) {
    const auto& file = p == 0 ? source_.file : source_.scale_file;
    ECPHORY_ASSIGN_OR_RETURN(files[p], TableFile::Open(file));
  }
  std::vector<uint8_t> bytes(row_bytes());
  std::vector<uint8_t> values(out_bytes(RowFormat::kF32));
  const uint64_t samples = std::min(kSampledRows, source_.rows);
  bool all_zero = true;
  for (uint64_t i = 0; i < samples; ++i) {
    // Evenly spaced, first and last row included.
    const uint64_t row =
        samples == 1 ? 0 : i * (source_.rows - 1) / (samples - 1);
    uint8_t* to = bytes.data();
    for (size_t p = 0; p < parts(); to += parts_[p++].bytes) {
      const Status read = files[p]->ReadExact(
          parts_[p].offset + row * parts_[p].bytes, {to, parts_[p].bytes});
      if (!read.ok()) {
        return read.WithContext(TableName(source_) + ", row " +
                                std::to_string(row));
      }
    }
    if (!Decode(bytes.data(), RowFormat::kF32, values.data())) {
      return BrokenRow(row);
    }
    all_zero = all_zero && AllZero(bytes);
  }
  if (!all_zero) return {};
  return Corrupt(
      "%s: %s: all %" PRIu64
      " sampled rows are zero bytes, the table is missing; fetch the "
      "file again",
      source_.file->path().c_str(), TableName(source_).c_str(), samples);
}

size_t TableReader::out_bytes(RowFormat format) const {
  switch (format) {
    case RowFormat::kF32: return source_.width * sizeof(float);
    case RowFormat::kBf16: return source_.width * sizeof(uint16_t);
    case RowFormat::kRaw: return row_bytes();
  }
  return 0;
}

bool TableReader::Decode(const uint8_t* codes, const uint8_t* scales,
                         RowFormat format, uint8_t* out) const {
  if (parts() == 1) scales = nullptr;
  switch (format) {
    case RowFormat::kF32:
      return DecodeTableRowFast(source_.codec, codes, scales, source_.width,
                                reinterpret_cast<float*>(out));
    case RowFormat::kBf16:
      return DecodeTableRowFast(source_.codec, codes, scales, source_.width,
                                reinterpret_cast<uint16_t*>(out));
    case RowFormat::kRaw:
      std::memcpy(out, codes, parts_[0].bytes);
      if (parts() > 1) {
        std::memcpy(out + parts_[0].bytes, scales, parts_[1].bytes);
      }
      return true;
  }
  return false;
}

bool TableReader::Decode(const uint8_t* row, RowFormat format,
                         uint8_t* out) const {
  return Decode(row, row + parts_[0].bytes, format, out);
}

std::string TableReader::PlaceName(uint64_t row, size_t part) const {
  const Part& place = parts_[part];
  return place.file->path() + ": " + TableName(source_) + ", row " +
         std::to_string(row) + " at offset " +
         std::to_string(place.offset + row * place.bytes);
}

Status TableReader::BrokenRow(uint64_t row) const {
  return Corrupt(
      "%s: a code or scale is no number or a value is not finite; fetch the "
      "file again",
      PlaceName(row).c_str());
}

}  // namespace ecphory::engram
