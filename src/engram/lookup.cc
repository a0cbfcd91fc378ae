#include "engram/lookup.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "base/quote.h"
#include "tensor/float_codec.h"

namespace ecphory::engram {

namespace {
// Requests whose buffers are kept for the next lookup: 1 MiB.
constexpr size_t kKeptRequests = 1 << 16;
}  // namespace

Status Lookup::Prepare(const TableReader& table, const LookupRequest& request) {
  const std::span<const uint64_t> rows = request.rows;
  table_ = &table;
  out_ = static_cast<uint8_t*>(request.out);
  format_ = request.format;
  requests_.clear();
  groups_.clear();
  for (size_t i = 0; i < rows.size(); ++i) requests_.push_back({rows[i], i});
  std::sort(requests_.begin(), requests_.end(),
            [](const Request& a, const Request& b) { return a.row < b.row; });
  const TableSource& source = table.source();
  if (!requests_.empty() && requests_.back().row >= source.rows) {
    return OutOfRange(
        "table %s: row %" PRIu64 " was asked for, it has %" PRIu64 " rows",
        Quoted(source.name).c_str(), requests_.back().row, source.rows);
  }
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (i == 0 || requests_[i].row != requests_[i - 1].row) {
      groups_.push_back(i);
    }
  }
  return {};
}

Status Lookup::Read(size_t begin, size_t end, std::span<uint8_t> scratch,
                    size_t* done) const {
  for (*done = 0; begin + *done < end; ++*done) {
    ECPHORY_RETURN_IF_ERROR(ReadGroup(begin + *done, scratch));
  }
  return {};
}

Status Lookup::ReadGroup(size_t group, std::span<uint8_t> scratch) const {
  const size_t width = table_->source().width;
  const size_t first = groups_[group];
  const size_t last =
      group + 1 < groups_.size() ? groups_[group + 1] : requests_.size();
  std::vector<float> decoded(format_ == RowFormat::kF32 ? 0 : width);
  float* values =
      format_ == RowFormat::kF32
          ? reinterpret_cast<float*>(out_) + requests_[first].place * width
          : decoded.data();
  ECPHORY_RETURN_IF_ERROR(
      table_->ReadRow(requests_[first].row, scratch, values));
  const size_t next = format_ == RowFormat::kF32 ? first + 1 : first;
  for (size_t i = next; i < last; ++i) {
    Write(values, scratch.data(), requests_[i].place);
  }
  return {};
}

void Lookup::Write(const float* values, const uint8_t* raw,
                   size_t place) const {
  const size_t width = table_->source().width;
  switch (format_) {
    case RowFormat::kF32:
      std::memcpy(out_ + place * width * 4, values, width * 4);
      return;
    case RowFormat::kBf16:
      for (size_t i = 0; i < width; ++i) {
        const uint16_t bits = F32ToBF16(values[i]);
        std::memcpy(out_ + (place * width + i) * 2, &bits, 2);
      }
      return;
    case RowFormat::kRaw:
      std::memcpy(out_ + place * row_bytes(), raw, row_bytes());
      return;
  }
}

void Lookup::Trim() {
  if (requests_.capacity() <= kKeptRequests) return;
  requests_ = {};
  groups_ = {};
}

}  // namespace ecphory::engram
