// From what a scan found to the report, and checksums written and checked.
#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>

#include "ecphory/engram_tables.h"
#include "ecphory/output_path.h"
#include "io/output_path.h"
#include "tables/digest.h"
#include "tables/manifest.h"
#include "tables/row_scan.h"
#include "tables/table_set.h"
#include "tables/verify_scan.h"

namespace ecphory::tables {

namespace {

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
      check.rows =
          set_.per_layer ? set_.per_layer->layout.rows() : set_.tables[i].rows;
      report_->tables.push_back(std::move(check));
    }
    for (size_t r = 0; r < v_.ranges().size(); ++r) {
      if (HoldsRows(v_.ranges()[r].kind)) AddRange(r);
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

// Before hours of reading, not after them.
Status CheckOutputs(const VerifyOptions& options, const TableSet& set) {
  const std::string& manifest = options.write_manifest;
  if (manifest.empty()) return {};
  if (SameFile(manifest, options.state)) {
    return InvalidArgument(
        "%s: is to hold both the manifest and the state, expected two names",
        manifest.c_str());
  }
  return CheckOutputPath(manifest, FilesRead(options.input, set));
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
  ECPHORY_RETURN_IF_ERROR(CheckOutputs(options, set));
  ECPHORY_ASSIGN_OR_RETURN(std::vector<SourceRange> ranges, RangesOf(set));
  const std::string manifest_path = ManifestPath(options);
  std::optional<Manifest> expected;
  if (!manifest_path.empty()) {
    ECPHORY_ASSIGN_OR_RETURN(expected, ReadManifest(manifest_path));
  }
  Verifier verifier(set, std::move(ranges), options);
  const Status scanned = verifier.Run();
  // Nothing to go on from: no state is left either.
  if (!scanned.ok() && verifier.results().empty()) {
    ECPHORY_RETURN_IF_ERROR(verifier.RemoveState());
  }
  ECPHORY_RETURN_IF_ERROR(scanned);

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
