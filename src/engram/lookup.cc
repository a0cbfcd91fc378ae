#include "engram/lookup.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <string>
#include <utility>

#include "base/quote.h"
#include "engram/row_cache.h"

namespace ecphory::engram {

namespace {

// Requests whose buffers are kept for the next lookup: 1 MiB.
constexpr size_t kKeptRequests = 1 << 16;

// Rows that a cache is asked for at once: enough to hide its memory's latency,
// few enough that the rows stay in the first-level cache.
constexpr size_t kBatch = 64;

// Rows visited at once: each visit of a mapping costs system calls.
constexpr size_t kVisitBatch = 256;

uint64_t AlignDown(uint64_t x, uint64_t alignment) {
  return x & ~(alignment - 1);
}
uint64_t AlignUp(uint64_t x, uint64_t alignment) {
  return AlignDown(x + alignment - 1, alignment);
}

// Adds row `row` to the extent if it touches and fits.
bool Extend(const TableReader::Part& part, const ReadRules::Rule& rule,
            uint64_t row, ReadRun::Extent* extent) {
  const uint64_t begin = part.offset + row * part.bytes;
  const uint64_t end = begin + part.bytes;
  if (AlignDown(begin, rule.alignment) > extent->offset + extent->bytes) {
    return false;
  }
  const uint64_t bytes = AlignUp(end, rule.alignment) - extent->offset;
  if (bytes > rule.max_bytes) return false;
  extent->bytes = static_cast<uint32_t>(bytes);
  extent->needed = static_cast<uint32_t>(end - extent->offset);
  return true;
}

ReadRun::Extent ExtentOf(const TableReader::Part& part,
                         const ReadRules::Rule& rule, uint64_t row) {
  ReadRun::Extent extent;
  extent.offset = AlignDown(part.offset + row * part.bytes, rule.alignment);
  (void)Extend(part, rule, row, &extent);
  return extent;
}

}  // namespace

Status Lookup::Prepare(const TableReader& table, const LookupRequest& request) {
  const std::span<const uint64_t> rows = request.rows;
  table_ = &table;
  out_ = static_cast<uint8_t*>(request.out);
  out_bytes_ = table.out_bytes(request.format);
  format_ = request.format;
  requests_.clear();
  groups_.clear();
  requests_.reserve(rows.size());
  groups_.reserve(rows.size());
  uint64_t largest = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    requests_.push_back({rows[i], i});
    largest = std::max(largest, rows[i]);
  }
  const TableSource& source = table.source();
  if (largest < source.rows) return {};
  requests_.clear();
  return OutOfRange("table %s: row %" PRIu64 " was asked for, it has %" PRIu64
                    " rows",
                    Quoted(source.name).c_str(), largest, source.rows);
}

Status Lookup::TakeCached(RowCache* cache, size_t table_index, size_t* hits) {
  const size_t row_bytes = table_->row_bytes();
  bytes_.resize(kBatch * row_bytes);
  uint64_t rows[kBatch];
  uint8_t found[kBatch];
  size_t left = 0;
  for (size_t begin = 0; begin < requests_.size(); begin += kBatch) {
    const size_t count = std::min(kBatch, requests_.size() - begin);
    for (size_t i = 0; i < count; ++i) rows[i] = requests_[begin + i].row;
    *hits += cache->FindBatch(table_index, {rows, count}, bytes_.data(), found);
    for (size_t i = 0; i < count; ++i) {
      const Request request = requests_[begin + i];
      if (found[i] == 0) {
        requests_[left++] = request;
      } else if (!table_->Decode(bytes_.data() + i * row_bytes, format_,
                                 Place(request))) {
        return table_->BrokenRow(request.row);
      }
    }
  }
  requests_.resize(left);
  return {};
}

Status Lookup::TakeViewed(const TableView& view, size_t begin, size_t end,
                          uint64_t* failed) {
  bytes_.resize(kVisitBatch * table_->part(1).bytes);
  *failed = UINT64_MAX;
  Status status;
  for (size_t at = begin; at < end; at += kVisitBatch) {
    const size_t count = std::min(kVisitBatch, end - at);
    uint64_t row;
    if (VisitBatch(view, at, count, &row).ok()) continue;
    // Which others fail, too, is not known: one by one.
    for (size_t i = at; i < at + count; ++i) {
      Status one = VisitBatch(view, i, 1, &row);
      if (one.ok() || row >= *failed) continue;
      *failed = row;
      status = std::move(one);
    }
  }
  return status;
}

Status Lookup::VisitBatch(const TableView& view, size_t begin, size_t count,
                          uint64_t* failed) {
  ViewRange ranges[kVisitBatch];
  const std::span<const ViewRange> batch(ranges, count);
  const Request* requests = &requests_[begin];
  uint8_t* scales = bytes_.data();
  const size_t scale_bytes = table_->part(1).bytes;
  size_t broken = count;
  // Visitors must not leave anything half done: a page that cannot be had ends
  // them in their middle.
  const auto copy_scales = [=](size_t i, const uint8_t* bytes) {
    std::memcpy(scales + i * scale_bytes, bytes, scale_bytes);
  };
  const auto decode = [&, this](size_t i, const uint8_t* bytes) {
    if (!table_->Decode(bytes, scales + i * scale_bytes, format_,
                        Place(requests[i]))) {
      broken = std::min(broken, i);
    }
  };
  for (size_t p = table_->parts(); p-- > 0;) {
    const TableReader::Part& part = table_->part(p);
    for (size_t i = 0; i < count; ++i) {
      ranges[i] = {part.offset + requests[i].row * part.bytes,
                   static_cast<uint32_t>(part.bytes)};
    }
    size_t index = 0;
    const Status status = p == 1
                              ? view.part[1]->Visit(batch, copy_scales, &index)
                              : view.part[0]->Visit(batch, decode, &index);
    if (status.ok()) continue;
    *failed = requests[index].row;
    return status.WithContext("table " + Quoted(table_->source().name) +
                              ", row " + std::to_string(*failed));
  }
  if (broken == count) return {};
  *failed = requests[broken].row;
  return table_->BrokenRow(*failed);
}

void Lookup::Sort() {
  std::sort(requests_.begin(), requests_.end(),
            [](const Request& a, const Request& b) { return a.row < b.row; });
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (i == 0 || requests_[i].row != requests_[i - 1].row) {
      groups_.push_back(i);
    }
  }
}

size_t Lookup::TakePages(const ReadRules& rules) {
  const size_t row_bytes = table_->row_bytes(), distinct = groups_.size();
  bytes_.resize(kBatch * row_bytes);
  QueuedRead reads[kBatch];
  uint8_t taken[kMaxParts][kBatch];
  size_t left = 0, left_requests = 0;
  for (size_t begin = 0; begin < distinct; begin += kBatch) {
    const size_t count = std::min(kBatch, distinct - begin);
    std::fill_n(taken[1], count, uint8_t{1});
    size_t at = 0;  // of a row's bytes
    for (size_t p = 0; p < table_->parts(); ++p) {
      const TableReader::Part& part = table_->part(p);
      for (size_t i = 0; i < count; ++i) {
        reads[i] = {.bytes = static_cast<uint32_t>(part.bytes),
                    .offset = part.offset + row(begin + i) * part.bytes,
                    .buffer = bytes_.data() + i * row_bytes + at};
      }
      rules.part[p].pages->Take({reads, count}, taken[p]);
      at += part.bytes;
    }
    for (size_t i = 0; i < count; ++i) {
      const uint8_t* const codes = bytes_.data() + i * row_bytes;
      if (taken[0][i] != 0 && taken[1][i] != 0 &&
          Deliver(begin + i, codes, codes + table_->part(0).bytes)) {
        continue;
      }
      const size_t first = groups_[begin + i], end = EndOf(begin + i);
      groups_[left++] = left_requests;
      for (size_t j = first; j < end; ++j) {
        requests_[left_requests++] = requests_[j];
      }
    }
  }
  groups_.resize(left);
  requests_.resize(left_requests);
  return distinct - left;
}

ReadRun Lookup::RunAt(size_t begin, size_t limit, const ReadRules& rules,
                      bool merge) const {
  ReadRun run;
  run.begin = begin;
  run.end = begin + 1;
  const size_t parts = table_->parts();
  for (size_t p = 0; p < parts; ++p) {
    run.part[p] = ExtentOf(table_->part(p), rules.part[p], row(begin));
  }
  for (; merge && run.end < limit; ++run.end) {
    ReadRun longer = run;
    for (size_t p = 0; p < parts; ++p) {
      if (!Extend(table_->part(p), rules.part[p], row(run.end),
                  &longer.part[p])) {
        return run;
      }
    }
    std::copy(longer.part, longer.part + kMaxParts, run.part);
  }
  return run;
}

bool Lookup::Deliver(size_t index, const uint8_t* codes,
                     const uint8_t* scales) const {
  const Request& first = requests_[groups_[index]];
  uint8_t* values = Place(first);
  if (!table_->Decode(codes, scales, format_, values)) return false;
  for (size_t i = groups_[index] + 1; i < EndOf(index); ++i) {
    std::memcpy(Place(requests_[i]), values, out_bytes_);
  }
  return true;
}

void Lookup::Trim() {
  if (requests_.capacity() <= kKeptRequests) return;
  requests_ = {};
  groups_ = {};
}

}  // namespace ecphory::engram
