// Reading every byte of the tables: damaged rows, missing pages, checksums.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "ecphory/engram_tables.h"
#include "tables/digest.h"
#include "tables/direct_reader.h"
#include "tables/journal.h"
#include "tables/manifest.h"
#include "tables/row_scan.h"
#include "tables/table_set.h"

namespace ecphory::tables {

namespace {

using engram::TableCodec;
using engram::TableSource;

// Large reads, a few in flight, keep a disk at its sequential speed.
constexpr size_t kReadBytes = size_t{4} << 20;

struct ChunkResult {
  uint64_t digest = 0;
  RowScan scan;  // empty for a header
};

// Chunk numbers and results as the journal's records.
std::string RecordOf(size_t chunk, const ChunkResult& result) {
  return std::to_string(chunk) + " " + Hex(result.digest) + " " +
         EncodeScan(result.scan);
}

Status ReadRecord(const std::string& record,
                  std::map<size_t, ChunkResult>* results) {
  const size_t space = record.find(' ');
  const auto digest =
      space == std::string::npos
          ? std::nullopt
          : ParseHex(std::string_view(record).substr(space + 1, 16));
  if (!digest || record.size() < space + 19) {
    return Corrupt("a record of a verification: '%s'", record.c_str());
  }
  ChunkResult result;
  result.digest = *digest;
  ECPHORY_ASSIGN_OR_RETURN(result.scan, DecodeScan(record.substr(space + 18)));
  (*results)[std::strtoull(record.c_str(), nullptr, 10)] = std::move(result);
  return {};
}

class Verifier {
 public:
  Verifier(const TableSet& set, std::vector<SourceRange> ranges,
           const VerifyOptions& options)
      : set_(set), ranges_(std::move(ranges)), options_(options) {
    for (const SourceRange& range : ranges_) {
      regions_.push_back(range.region);
      bytes_ += range.region.bytes;
    }
    chunks_ = ChunksOf(regions_);
  }

  Status Run() {
    ECPHORY_RETURN_IF_ERROR(OpenFiles());
    ECPHORY_RETURN_IF_ERROR(OpenState());
    return Scan();
  }

  const std::vector<Region>& regions() const { return regions_; }
  const std::vector<Chunk>& chunks() const { return chunks_; }
  const std::vector<SourceRange>& ranges() const { return ranges_; }
  const std::map<size_t, ChunkResult>& results() const { return results_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t resumed_bytes() const { return resumed_bytes_; }
  bool direct() const { return files_.begin()->second->direct(); }
  Status RemoveState() { return state_ ? state_->Remove() : Status(); }

 private:
  Status OpenFiles() {
    for (const SourceRange& range : ranges_) {
      if (files_.count(range.file) != 0) continue;
      ECPHORY_ASSIGN_OR_RETURN(auto reader, DirectReader::Open(range.file));
      files_[range.file] = std::move(reader);
    }
    return {};
  }

  std::string Signature() const {
    std::string text = "verify";
    for (const auto& [path, reader] : files_) text += " " + FileIdentity(path);
    for (const Region& region : regions_) {
      text += " " + region.name + " " + std::to_string(region.offset) + " " +
              std::to_string(region.bytes);
    }
    return text;
  }

  Status OpenState() {
    if (options_.state.empty()) return {};
    const std::string signature = Signature();
    auto opened = Journal::Open(options_.state, signature);
    if (!opened.ok() && opened.status().code() == StatusCode::kNotFound) {
      opened = Journal::Create(options_.state, signature);
    }
    if (!opened.ok()) {
      return opened.status().WithContext(
          "the state of an unfinished verification; remove it to begin again");
    }
    state_ = std::move(opened).value();
    for (const std::string& record : state_->records()) {
      ECPHORY_RETURN_IF_ERROR(ReadRecord(record, &results_));
    }
    return {};
  }

  Status Scan() {
    std::vector<size_t> missing;
    for (size_t i = 0; i < chunks_.size(); ++i) {
      if (results_.count(i) == 0) {
        missing.push_back(i);
      } else {
        resumed_bytes_ += chunks_[i].bytes;
      }
    }
    ProgressMeter meter(options_.progress, "verifying", bytes_);
    ECPHORY_RETURN_IF_ERROR(meter.Add(resumed_bytes_));
    const size_t threads = ThreadCount(options_.threads);
    std::vector<std::unique_ptr<AlignedBuffer>> buffers(threads);
    return ForEachChunk(
        missing.size(), threads, [&](size_t i, size_t worker) -> Status {
          if (!buffers[worker]) {
            buffers[worker] = std::make_unique<AlignedBuffer>(
                DirectReader::BufferBytes(kReadBytes));
          }
          ECPHORY_ASSIGN_OR_RETURN(
              ChunkResult result,
              ScanChunk(chunks_[missing[i]], *buffers[worker], &meter));
          return Keep(missing[i], std::move(result));
        });
  }

  Status Keep(size_t chunk, ChunkResult result) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (state_)
      ECPHORY_RETURN_IF_ERROR(state_->Append(RecordOf(chunk, result)));
    results_[chunk] = std::move(result);
    return {};
  }

  std::optional<RowScanner> ScannerOf(const SourceRange& range) const {
    if (range.kind == RangeKind::kHeader) return {};
    const TableSource& table = set_.tables[range.table];
    return RowScanner(table.codec, table.width,
                      range.kind == RangeKind::kScales);
  }

  Result<ChunkResult> ScanChunk(const Chunk& chunk, const AlignedBuffer& buffer,
                                ProgressMeter* meter) {
    const SourceRange& range = ranges_[chunk.region];
    const DirectReader& reader = *files_.at(range.file);
    std::optional<RowScanner> scanner = ScannerOf(range);
    if (scanner) scanner->Begin(chunk.begin / range.region.row_bytes);
    const uint64_t row_bytes = range.region.row_bytes;
    const uint64_t step =
        std::max<uint64_t>(1, kReadBytes / row_bytes) * row_bytes;
    Digest digest;
    for (uint64_t done = 0; done < chunk.bytes; done += step) {
      const auto bytes =
          static_cast<size_t>(std::min(step, chunk.bytes - done));
      const uint64_t offset = range.region.offset + chunk.begin + done;
      ECPHORY_ASSIGN_OR_RETURN(const auto read,
                               reader.Read(offset, bytes, buffer));
      digest.Add(read);
      if (scanner) scanner->Add(read);
      const std::lock_guard<std::mutex> lock(meter_mutex_);
      ECPHORY_RETURN_IF_ERROR(meter->Add(bytes));
    }
    ChunkResult result;
    result.digest = digest.value();
    if (scanner) {
      ECPHORY_RETURN_IF_ERROR(SettleUnsure(range, &*scanner));
      result.scan = scanner->Finish();
    }
    return result;
  }

  // Rows of the pair whose scales alone do not tell: read whole and decoded.
  Status SettleUnsure(const SourceRange& range, RowScanner* scanner) const {
    const TableSource& table = set_.tables[range.table];
    const size_t code_bytes = table.width;
    const size_t scale_bytes =
        engram::TableScaleBytes(table.codec, table.width);
    std::vector<uint8_t> codes(code_bytes), scales(scale_bytes);
    std::vector<float> values(table.width);
    for (const uint64_t row : scanner->unsure()) {
      ECPHORY_RETURN_IF_ERROR(
          table.file->ReadExact(table.offset + row * code_bytes, codes));
      ECPHORY_RETURN_IF_ERROR(table.scale_file->ReadExact(
          table.scale_offset + row * scale_bytes, scales));
      const bool nan = std::any_of(codes.begin(), codes.end(), [](uint8_t c) {
        return (c & 0x7f) == 0x7f;  // counted with the codes
      });
      if (!nan &&
          !engram::DecodeTableRow(table.codec, codes.data(), scales.data(),
                                  table.width, values.data())) {
        scanner->Fault(RowFault::kNotFinite, row);
      }
    }
    return {};
  }

  const TableSet& set_;
  const std::vector<SourceRange> ranges_;
  const VerifyOptions& options_;
  std::vector<Region> regions_;
  std::vector<Chunk> chunks_;
  uint64_t bytes_ = 0;
  uint64_t resumed_bytes_ = 0;
  std::map<std::string, std::unique_ptr<DirectReader>> files_;
  std::unique_ptr<Journal> state_;
  std::map<size_t, ChunkResult> results_;
  std::mutex mutex_;
  std::mutex meter_mutex_;
};

// From scans to the report of a table.
class Reporter {
 public:
  Reporter(const TableSet& set, const Verifier& verifier,
           const VerifyOptions& options, VerifyReport* report)
      : set_(set), v_(verifier), options_(options), report_(report) {}

  void AddTables() {
    for (size_t i = 0; i < set_.tables.size(); ++i) {
      TableCheck check;
      check.layer = set_.layer(i);
      check.name = set_.tables[i].name;
      check.rows = set_.tables[i].rows;
      report_->tables.push_back(std::move(check));
    }
    for (size_t r = 0; r < v_.ranges().size(); ++r) {
      if (v_.ranges()[r].kind != RangeKind::kHeader) AddRange(r);
    }
  }

  // Holds the sums against a manifest's.
  void AddManifest(const Manifest& expected) {
    size_t chunk = 0;
    for (const Region& region : v_.regions()) {
      const uint64_t step = ChunkBytesOf(region);
      const ManifestRegion* part = expected.Find(region.name);
      const bool fits = part != nullptr && part->bytes == region.bytes &&
                        part->chunk_bytes == step;
      if (!fits) {
        AddFault(chunk, "not in the manifest, or of another size", 0);
      }
      for (size_t i = 0; i * step < region.bytes; ++i, ++chunk) {
        if (!fits) continue;
        ++report_->chunks_checked;
        if (part->digests[i] == v_.results().at(chunk).digest) continue;
        AddFault(chunk, "checksum differs", v_.chunks()[chunk].begin);
      }
    }
  }

 private:
  void AddRange(size_t r) {
    const SourceRange& range = v_.ranges()[r];
    const uint64_t threshold = MissingRunRows(range.region.row_bytes);
    ScanTotals totals;
    for (size_t i = 0; i < v_.chunks().size(); ++i) {
      if (v_.chunks()[i].region == r) {
        totals.Add(v_.results().at(i).scan, threshold);
      }
    }
    totals.Finish(threshold);
    TableCheck& check = report_->tables[range.table];
    check.nan_rows += totals.nan;
    check.bad_scale_rows += totals.scale;
    check.not_finite_rows += totals.not_finite;
    report_->faults += totals.nan + totals.scale + totals.not_finite;
    for (const FaultyRow& row : totals.listed) {
      List(range, RowFaultName(row.fault), row.row, 1);
    }
    if (range.kind == RangeKind::kScales) return;
    check.zero_rows = totals.zero_rows;
    check.first_zero_row = totals.first_zero;
    check.missing_runs = totals.missing_runs;
    check.missing_rows = totals.missing_rows;
    report_->faults += totals.missing_runs;
    if (totals.missing_runs == 0) return;
    const bool all = totals.missing_rows == totals.rows;
    List(range, all ? "the whole table is zero" : "rows of zeros, a hole",
         totals.first_missing.first, totals.first_missing.count);
  }

  void AddFault(size_t chunk, const char* what, uint64_t begin) {
    ++report_->faults;
    const SourceRange& range = v_.ranges()[v_.chunks()[chunk].region];
    const uint64_t row_bytes = range.region.row_bytes;
    List(range, what, begin / row_bytes, v_.chunks()[chunk].bytes / row_bytes);
  }

  void List(const SourceRange& range, const char* what, uint64_t row,
            uint64_t rows) {
    if (report_->first_faults.size() >= options_.max_listed) return;
    TableFault fault;
    fault.what = what;
    fault.region = range.region.name;
    fault.file = range.file;
    fault.row = row;
    fault.rows = rows;
    fault.offset = range.region.offset + row * range.region.row_bytes;
    report_->first_faults.push_back(std::move(fault));
  }

  const TableSet& set_;
  const Verifier& v_;
  const VerifyOptions& options_;
  VerifyReport* report_;
};

// The manifest to hold the sums against: the one asked for, or the one that
// lies beside the tables; "" for none.
std::string ManifestPath(const VerifyOptions& options) {
  if (!options.manifest.empty()) return options.manifest;
  if (!options.write_manifest.empty()) return "";
  std::string path = options.input.path;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  path += ".xxh";
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? path : "";
}

Status WriteSums(const Verifier& verifier, const VerifyOptions& options,
                 VerifyReport* report) {
  std::vector<uint64_t> digests;
  for (const auto& [chunk, result] : verifier.results()) {
    digests.push_back(result.digest);
  }
  const Manifest manifest = MakeManifest(verifier.regions(), digests);
  report->whole_digest = Hex(manifest.Whole());
  if (options.write_manifest.empty()) return {};
  if (report->faults > 0) return {};  // sums of damage help nobody
  report->manifest_written = options.write_manifest;
  return WriteManifest(options.write_manifest, manifest);
}

}  // namespace

}  // namespace ecphory::tables

namespace ecphory {

Result<VerifyReport> VerifyTables(const VerifyOptions& asked) {
  using namespace tables;
  const auto start = std::chrono::steady_clock::now();
  VerifyOptions options = asked;
  if (options.state.empty() && !options.write_manifest.empty()) {
    options.state = options.write_manifest + ".state";
  }
  ECPHORY_ASSIGN_OR_RETURN(const TableSet set, OpenTableSet(options.input));
  ECPHORY_ASSIGN_OR_RETURN(std::vector<SourceRange> ranges, RangesOf(set));
  const std::string manifest_path = ManifestPath(options);
  std::optional<Manifest> expected;
  if (!manifest_path.empty()) {
    ECPHORY_ASSIGN_OR_RETURN(expected, ReadManifest(manifest_path));
  }
  Verifier verifier(set, std::move(ranges), options);
  ECPHORY_RETURN_IF_ERROR(verifier.Run());

  VerifyReport report;
  report.path = options.input.path;
  report.bytes = verifier.bytes();
  report.resumed_bytes = verifier.resumed_bytes();
  report.direct = verifier.direct();
  Reporter reporter(set, verifier, options, &report);
  reporter.AddTables();
  if (expected) {
    report.manifest_checked = manifest_path;
    reporter.AddManifest(*expected);
  }
  ECPHORY_RETURN_IF_ERROR(WriteSums(verifier, options, &report));
  ECPHORY_RETURN_IF_ERROR(verifier.RemoveState());
  report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return report;
}

}  // namespace ecphory
