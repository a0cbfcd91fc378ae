#include "tables/row_scan.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engram/row_decode.h"

namespace ecphory::tables {

namespace {

using nlohmann::json;

constexpr uint64_t kPageBytes = 4096;
// 448 * 2^(246 - 127) is below the largest bf16, so that no code overflows.
constexpr uint8_t kSafeScale = 246;

// Written so that compilers turn them into vector code.
bool AnyNanCode(const uint8_t* codes, size_t count) {
  uint8_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    found |= static_cast<uint8_t>((codes[i] & 0x7f) == 0x7f);
  }
  return found != 0;
}

bool AnySet(const uint8_t* bytes, size_t count) {
  uint8_t found = 0;
  for (size_t i = 0; i < count; ++i) found |= bytes[i];
  return found != 0;
}

uint8_t Largest(const uint8_t* bytes, size_t count) {
  uint8_t largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, bytes[i]);
  return largest;
}

// The codes of a row and the pair's rows alone are told apart by the caller.
bool AnyInfiniteBf16(const uint8_t* row, size_t values) {
  uint16_t found = 0;
  for (size_t i = 0; i < values; ++i) {
    uint16_t value;
    std::memcpy(&value, row + 2 * i, 2);
    found |= static_cast<uint16_t>((value & 0x7f80) == 0x7f80);
  }
  return found != 0;
}

}  // namespace

const char* RowFaultName(RowFault fault) {
  switch (fault) {
    case RowFault::kNone: return "none";
    case RowFault::kNan: return "NaN code";
    case RowFault::kScale: return "scale 255";
    case RowFault::kNotFinite: return "value not finite";
  }
  return "unknown";
}

uint64_t MissingRunRows(size_t row_bytes) {
  // Whole rows that a page holds at the least, wherever it begins.
  const uint64_t rows = kPageBytes / row_bytes;
  return std::max<uint64_t>(2, rows > 0 ? rows - 1 : 0);
}

RowScanner::RowScanner(TableCodec codec, uint32_t width, bool scales)
    : codec_(codec),
      width_(width),
      scales_(scales),
      row_bytes_(scales ? TableScaleBytes(codec, width)
                        : TableRowBytes(codec, width)),
      values_(width) {}

void RowScanner::Begin(uint64_t first_row) {
  scan_ = {};
  scan_.first = first_row;
  run_ = {};
  unsure_.clear();
}

void RowScanner::Add(std::span<const uint8_t> rows) {
  for (size_t at = 0; at < rows.size(); at += row_bytes_) {
    const uint64_t row = scan_.first + scan_.rows++;
    if (scales_) {
      const uint8_t largest = Largest(rows.data() + at, row_bytes_);
      if (largest <= kSafeScale) continue;
      if (largest == 255) {
        Fault(RowFault::kScale, row);
      } else {
        unsure_.push_back(row);
      }
      continue;
    }
    const Seen seen = Look(rows.data() + at);
    if (seen.fault != RowFault::kNone) Fault(seen.fault, row);
    CountZero(seen.zero, row);
  }
}

RowScanner::Seen RowScanner::Look(const uint8_t* row) const {
  if (codec_ == TableCodec::kRow264) return LookE4M3(row);
  Seen seen;
  seen.zero = !AnySet(row, row_bytes_);
  if (codec_ == TableCodec::kReleasedPair) {
    if (AnyNanCode(row, width_)) seen.fault = RowFault::kNan;
  } else if (codec_ == TableCodec::kBf16) {
    if (AnyInfiniteBf16(row, width_)) seen.fault = RowFault::kNotFinite;
  } else if (!engram::DecodeTableRowFast(codec_, row, nullptr, width_,
                                         values_.data())) {
    seen.fault = RowFault::kNotFinite;
  }
  return seen;
}

RowScanner::Seen RowScanner::LookE4M3(const uint8_t* row) const {
  Seen seen;
  seen.zero = !AnySet(row, row_bytes_);
  const uint8_t scale = Largest(row + width_, row_bytes_ - width_);
  if (AnyNanCode(row, width_)) {
    seen.fault = RowFault::kNan;
  } else if (scale == 255) {
    seen.fault = RowFault::kScale;
  } else if (scale > kSafeScale &&
             !DecodeTableRow(codec_, row, nullptr, width_, values_.data())) {
    seen.fault = RowFault::kNotFinite;
  }
  return seen;
}

void RowScanner::Fault(RowFault fault, uint64_t row) {
  scan_.nan += fault == RowFault::kNan;
  scan_.scale += fault == RowFault::kScale;
  scan_.not_finite += fault == RowFault::kNotFinite;
  if (scan_.listed.size() < kListedRows) scan_.listed.push_back({fault, row});
}

void RowScanner::CountZero(bool zero, uint64_t row) {
  if (!zero) return EndRun();
  if (scan_.zero_rows++ == 0) scan_.first_zero = row;
  if (run_.count++ == 0) run_.first = row;
}

void RowScanner::EndRun() {
  if (run_.count == 0) return;
  if (run_.first == scan_.first) {
    scan_.leading = run_.count;
  } else if (run_.count >= MissingRunRows(row_bytes_)) {
    scan_.runs.push_back(run_);
  }
  run_ = {};
}

RowScan RowScanner::Finish() {
  if (run_.count > 0 && run_.first == scan_.first) scan_.leading = run_.count;
  scan_.open = run_;
  return scan_;
}

void ScanTotals::Close(const RowRun& run, uint64_t threshold) {
  if (run.count < threshold) return;
  if (missing_runs++ == 0) first_missing = run;
  missing_rows += run.count;
  if (run.count > longest_missing.count) longest_missing = run;
}

void ScanTotals::Add(const RowScan& scan, uint64_t threshold) {
  if (zero_rows == 0 && scan.zero_rows > 0) first_zero = scan.first_zero;
  rows += scan.rows;
  nan += scan.nan;
  scale += scan.scale;
  not_finite += scan.not_finite;
  zero_rows += scan.zero_rows;
  for (const FaultyRow& row : scan.listed) {
    if (listed.size() < kListedRows) listed.push_back(row);
  }
  if (scan.leading > 0) {
    if (open_.count == 0) open_.first = scan.first;
    open_.count += scan.leading;
    if (scan.leading == scan.rows) return;  // it goes on
  }
  Close(open_, threshold);
  for (const RowRun& run : scan.runs) Close(run, threshold);
  open_ = scan.open;
}

void ScanTotals::Finish(uint64_t threshold) {
  Close(open_, threshold);
  open_ = {};
}

std::string EncodeScan(const RowScan& scan) {
  json listed = json::array(), runs = json::array();
  for (const FaultyRow& row : scan.listed) {
    listed.push_back({static_cast<int>(row.fault), row.row});
  }
  for (const RowRun& run : scan.runs) runs.push_back({run.first, run.count});
  return json{scan.first,      scan.rows,       scan.nan,        scan.scale,
              scan.not_finite, scan.zero_rows,  scan.first_zero, scan.leading,
              scan.open.first, scan.open.count, listed,          runs}
      .dump();
}

Result<RowScan> DecodeScan(const std::string& text) {
  try {
    const json j = json::parse(text);
    RowScan scan;
    uint64_t* const fields[] = {
        &scan.first,      &scan.rows,      &scan.nan,        &scan.scale,
        &scan.not_finite, &scan.zero_rows, &scan.first_zero, &scan.leading,
        &scan.open.first, &scan.open.count};
    for (size_t i = 0; i < std::size(fields); ++i) *fields[i] = j.at(i);
    for (const json& row : j.at(10)) {
      scan.listed.push_back(
          {static_cast<RowFault>(row.at(0).get<int>()), row.at(1)});
    }
    for (const json& run : j.at(11))
      scan.runs.push_back({run.at(0), run.at(1)});
    return scan;
  } catch (const json::exception& error) {
    return Corrupt("a record of a scan: %s", error.what());
  }
}

}  // namespace ecphory::tables
