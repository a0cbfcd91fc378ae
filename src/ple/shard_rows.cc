// Rows of a released directory's shards, as a packed table holds them.
#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "base/check.h"
#include "base/quote.h"
#include "engram/row_decode.h"
#include "ple/shards.h"
#include "tensor/float_codec.h"
#include "tensor/table_codec.h"

namespace ecphory::ple {

namespace {

// Rows read at once: a few hundred KiB at the released width.
constexpr uint64_t kBatch = 2048;

bool IsFinite(float x) { return (F32Bits(x) & 0x7f800000u) != 0x7f800000u; }

bool AllFinite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), IsFinite);
}

}  // namespace

Result<uint64_t> ShardedTable::RowBytes(DType target) const {
  const bool as_it_is = target == DType::kBF16 && dtype_ == DType::kBF16;
  if (as_it_is || target == DType::kQ8_0) {
    return TableRowBytes(as_it_is ? TableCodec::kBf16 : TableCodec::kQ8_0,
                         layout_.width);
  }
  return Unsupported("%s shards cannot be packed as %s, only as %s",
                     DTypeName(dtype_), DTypeName(target),
                     dtype_ == DType::kBF16 ? "BF16 or Q8_0" : "Q8_0");
}

const ShardedTable::Part& ShardedTable::PartOf(uint64_t row) const {
  const auto after = std::upper_bound(
      parts_.begin(), parts_.end(), row,
      [](uint64_t r, const Part& part) { return r < part.first_row; });
  return *(after - 1);
}

Status ShardedTable::EncodeRow(const Part& part, uint64_t row,
                               const uint8_t* in, DType target,
                               uint8_t* out) const {
  const size_t width = layout_.width;
  thread_local std::vector<float> values;
  values.resize(width);
  bool ok = true;
  if (dtype_ == DType::kBF16) {
    ok = engram::DecodeTableRowFast(TableCodec::kBf16, in, nullptr, width,
                                    values.data());
  } else {
    for (size_t i = 0; i < width; ++i) values[i] = E4M3ToF32(in[i]) * scale_;
    ok = AllFinite(values);
  }
  if (ok && target == DType::kBF16) {
    std::memcpy(out, in, 2 * width);
  } else if (ok) {
    EncodeQ8Row(values.data(), width, out);
    ok = engram::DecodeTableRowFast(TableCodec::kQ8_0, out, nullptr, width,
                                    values.data());
  }
  if (ok) return {};
  return Corrupt("%s: tensor %s, row %" PRIu64
                 ": a value is no number, or too large for %s",
                 part.file->path().c_str(), Quoted(part.name).c_str(),
                 row - part.first_row, DTypeName(target));
}

Status ShardedTable::EncodeRows(uint64_t first, uint64_t count, DType target,
                                std::span<uint8_t> out) const {
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t out_bytes, RowBytes(target));
  ECPHORY_CHECK(first <= rows() && count <= rows() - first);
  ECPHORY_CHECK(out.size() == count * out_bytes);
  const uint64_t in_bytes = layout_.width * GetDTypeInfo(dtype_).block_bytes;
  std::vector<uint8_t> batch(std::min(count, kBatch) * in_bytes);
  uint8_t* to = out.data();
  for (uint64_t row = first; row < first + count;) {
    const Part& part = PartOf(row);
    const uint64_t rows_here = std::min(
        {kBatch, first + count - row, part.first_row + part.rows - row});
    const Status read =
        part.file->ReadExact(part.offset + (row - part.first_row) * in_bytes,
                             std::span(batch).first(rows_here * in_bytes));
    if (!read.ok()) return read.WithContext("tensor " + Quoted(part.name));
    for (uint64_t i = 0; i < rows_here; ++i, ++row, to += out_bytes) {
      ECPHORY_RETURN_IF_ERROR(
          EncodeRow(part, row, batch.data() + i * in_bytes, target, to));
    }
  }
  return {};
}

}  // namespace ecphory::ple
