// The store measured through every way in, against the device itself.
#include <algorithm>
#include <memory>
#include <utility>

#include "ecphory/engram_measure.h"
#include "engram/store.h"
#include "io/make_queue.h"
#include "io/memory_facts.h"
#include "tables/bench_lookups.h"
#include "tables/bench_rows.h"
#include "tables/conditions.h"
#include "tables/fio.h"
#include "tables/read_probe.h"
#include "tables/row_stream.h"
#include "tables/table_files.h"
#include "tables/table_set.h"

namespace ecphory::tables {

namespace {

using engram::Store;
using engram::StoreOptions;

// Depth at which a token's rows meet the device's own figure.
constexpr uint32_t kTokenDepth = 48;
constexpr uint32_t kReadBytes = 4096;
// Tokens of a lookup in the sweep: some times as many rows as may be in flight,
// as in a prompt, but few where a slow disk would take minutes for many.
constexpr size_t kMaxBatchTokens = 64;
constexpr uint32_t kRowsPerDepth = 12;
// A warm run's rows are those of so many tokens.
constexpr size_t kReplayedTokens = 1024;
class Bench {
 public:
  explicit Bench(const TablesBenchOptions& options) : options_(options) {}

  Result<TablesBench> Run() {
    ECPHORY_RETURN_IF_ERROR(Open());
    out_.path = options_.input.path;
    out_.cache_bytes = options_.cache_bytes;
    FillMachine(&out_);
    FillTables(set_, files_, &out_);
    ECPHORY_ASSIGN_OR_RETURN(const std::vector<IoMode> modes, Modes());
    steps_ = Steps(modes);
    for (const uint32_t depth : Depths()) {
      ECPHORY_RETURN_IF_ERROR(MeasureDepth(depth, modes));
    }
    if (std::count(modes.begin(), modes.end(), IoMode::kRam) > 0) {
      ECPHORY_RETURN_IF_ERROR(MeasureRam());
    }
    if (options_.fio) ECPHORY_RETURN_IF_ERROR(MeasureFio());
    out_.pattern = row_source_->Describe();
    return std::move(out_);
  }

 private:
  Status Open() {
    ECPHORY_ASSIGN_OR_RETURN(set_, OpenTableSet(options_.input));
    if (set_.per_layer) {
      return Unsupported(
          "%s: a per-layer n-gram table, expected Engram tables to measure",
          options_.input.path.c_str());
    }
    ECPHORY_ASSIGN_OR_RETURN(files_, OpenTableFiles(set_));
    ECPHORY_ASSIGN_OR_RETURN(row_source_, BenchRows::Open(set_, options_));
    return {};
  }

  Result<std::vector<IoMode>> Modes() {
    std::vector<IoMode> modes;
    for (const std::string& name : options_.modes) {
      ECPHORY_ASSIGN_OR_RETURN(const IoMode mode, ParseIoMode(name));
      modes.push_back(mode);
    }
    if (!modes.empty()) return modes;
    modes = {IoMode::kUring, IoMode::kPread, IoMode::kBuffered, IoMode::kMmap};
    const uint64_t free_bytes = AvailableMemory().value_or(0);
    if (out_.table_bytes < free_bytes / 2) {
      modes.push_back(IoMode::kRam);
    } else {
      Note("ram left out: the tables take more than half of the free memory");
    }
    return modes;
  }

  // Whether rows that were read once are in memory afterwards.
  bool KeepsRows(IoMode mode) const {
    return options_.cache_bytes > 0 || mode == IoMode::kBuffered ||
           mode == IoMode::kMmap || mode == IoMode::kRam;
  }

  uint64_t Steps(const std::vector<IoMode>& modes) const {
    uint64_t points = 2;  // the device, before and after
    for (const IoMode mode : modes) {
      points += options_.cold && mode != IoMode::kRam;
      points += options_.warm && KeepsRows(mode);
    }
    return points * (options_.depths.size() + 1) + 1 +
           (options_.fio ? options_.depths.size() : 0);
  }

  Status Step(const std::string& what) {
    if (!options_.progress || options_.progress(what, ++done_, steps_)) {
      return {};
    }
    return Cancelled("while measuring %s", what.c_str());
  }

  // 0 first: a token at a time.
  std::vector<uint32_t> Depths() const {
    std::vector<uint32_t> depths = {0};
    depths.insert(depths.end(), options_.depths.begin(), options_.depths.end());
    return depths;
  }

  // Every way at one depth, the device itself before and after them: a disk
  // that is slow for a while is so for all. Its better figure counts.
  Status MeasureDepth(uint32_t depth, const std::vector<IoMode>& modes) {
    const size_t first = out_.points.size();
    const uint32_t device_depth = depth == 0 ? kTokenDepth : depth;
    ECPHORY_ASSIGN_OR_RETURN(ReadRate best, MeasureDevice(device_depth));
    for (const IoMode mode : modes) {
      if (mode == IoMode::kRam) continue;
      if (options_.cold) {
        ECPHORY_RETURN_IF_ERROR(MeasurePoint(mode, "cold", depth));
      }
      if (options_.warm && KeepsRows(mode)) {
        ECPHORY_RETURN_IF_ERROR(MeasurePoint(mode, "warm", depth));
      }
    }
    ECPHORY_ASSIGN_OR_RETURN(const ReadRate after, MeasureDevice(device_depth));
    if (after.reads_per_second > best.reads_per_second) best = after;
    for (size_t i = first; i < out_.points.size(); ++i) {
      BenchPoint& point = out_.points[i];
      if (point.state != "cold" || best.reads_per_second <= 0) continue;
      point.of_ceiling = point.rows_per_second / best.reads_per_second;
    }
    // A token's depth is listed only where the sweep does not have it.
    if (depth != 0 || std::count(options_.depths.begin(), options_.depths.end(),
                                 kTokenDepth) == 0) {
      out_.ceiling.push_back(best);
    }
    return {};
  }

  Result<ReadRate> MeasureDevice(uint32_t depth) {
    ECPHORY_RETURN_IF_ERROR(files_.Drop());
    ECPHORY_ASSIGN_OR_RETURN(
        const MadeQueue made,
        MakeQueue(IoMode::kUring, files_.files, {.depth = depth}));
    if (!made.denied.empty()) Note(made.denied);
    ECPHORY_ASSIGN_OR_RETURN(
        const ReadRate rate,
        MeasureReads(made.queue.get(), files_.ranges, kReadBytes, depth,
                     options_.seconds, options_.seed + 7919 * ++probes_));
    ECPHORY_RETURN_IF_ERROR(Step("the device"));
    return rate;
  }

  Status MeasureFio() {
    for (const uint32_t depth : options_.depths) {
      auto rate = RunFio(*files_.files[files_.ranges[0].file], files_.ranges[0],
                         kReadBytes, depth, options_.seconds);
      if (!rate.ok()) {
        Note("fio: " + rate.status().message());
        return {};
      }
      out_.fio.push_back(*rate);
      ECPHORY_RETURN_IF_ERROR(Step("fio"));
    }
    return {};
  }

  // Once each.
  void Note(const std::string& note) {
    auto& notes = out_.notes;
    if (std::count(notes.begin(), notes.end(), note) == 0) {
      notes.push_back(note);
    }
  }

  size_t BatchTokens(uint32_t depth) const {
    if (depth == 0) return 1;
    return std::clamp<size_t>(kRowsPerDepth * depth / out_.rows_per_token, 1,
                              kMaxBatchTokens);
  }

  // Depth 0: a token at a time.
  Status MeasurePoint(IoMode mode, const std::string& state, uint32_t depth) {
    ECPHORY_RETURN_IF_ERROR(files_.Drop());
    StoreOptions options;
    options.io = mode;
    // A token at a time is measured as a model is run, with the defaults.
    if (depth != 0) {
      options.queue_depth = depth;
      options.io_threads = std::min<uint32_t>(depth, 64);
    }
    options.cache_bytes = options_.cache_bytes;
    auto store = Store::Open(set_.tables, options);
    if (store.ok()) return MeasureStore(store->get(), mode, state, depth);
    Note(std::string(IoModeName(mode)) +
         " left out: " + store.status().message());
    return Step(IoModeName(mode));
  }

  // Reading the tables into memory takes long and is done once. They have no
  // cold state there.
  Status MeasureRam() {
    if (!options_.warm) return {};
    ECPHORY_RETURN_IF_ERROR(Step("reading the tables into memory"));
    auto store = Store::Open(
        set_.tables, {.io = IoMode::kRam, .cache_bytes = options_.cache_bytes});
    if (!store.ok()) {
      Note("ram left out: " + store.status().message());
      return {};
    }
    for (const uint32_t depth : Depths()) {
      ECPHORY_RETURN_IF_ERROR(
          MeasureStore(store->get(), IoMode::kRam, "warm", depth));
    }
    return {};
  }

  Status MeasureStore(Store* store, IoMode mode, const std::string& state,
                      uint32_t depth) {
    std::unique_ptr<RowStream> stream = row_source_->NewStream();
    BenchPoint point;
    point.mode = IoModeName(mode);
    point.used = store->io().reason;
    point.state = state;
    point.depth = depth;
    if (state == "warm") {
      stream = std::make_unique<ReplayStream>(stream.get(), kReplayedTokens,
                                              set_.source.config.columns());
      ECPHORY_RETURN_IF_ERROR(
          RunLookups(set_, store, stream.get(),
                     {.tokens = kMaxBatchTokens, .limit = kReplayedTokens})
              .status());
    }
    point.resident_before = files_.Resident();
    ECPHORY_ASSIGN_OR_RETURN(const LookupTimes times,
                             RunLookups(set_, store, stream.get(),
                                        {.tokens = BatchTokens(depth),
                                         .seconds = options_.seconds}));
    Fill(times, &point);
    const bool replayed = state == "warm";
    if (!replayed && stream->Describe() != row_source_->Describe()) {
      Note(point.mode + ", " + state + ": " + stream->Describe());
    }
    point.resident_after = files_.Resident();
    out_.points.push_back(std::move(point));
    return Step(IoModeName(mode) + std::string(", ") + state);
  }

  void Fill(const LookupTimes& times, BenchPoint* point) const {
    point->tokens = times.tokens;
    point->rows = times.tokens * out_.rows_per_token;
    const double rows = static_cast<double>(point->rows);
    point->rows_per_second = rows / times.seconds;
    point->cpu_us_per_row = 1e6 * times.cpu_seconds / rows;
    point->p50_us = Percentile(times.lookup_us, 50);
    point->p95_us = Percentile(times.lookup_us, 95);
    point->p99_us = Percentile(times.lookup_us, 99);
  }

  const TablesBenchOptions& options_;
  TableSet set_;
  TableFiles files_;
  std::unique_ptr<BenchRows> row_source_;
  uint64_t probes_ = 0;
  uint64_t done_ = 0;
  uint64_t steps_ = 0;
  TablesBench out_;
};

Status CheckOptions(const TablesBenchOptions& options) {
  if (options.depths.empty()) return InvalidArgument("no depths to measure");
  for (const uint32_t depth : options.depths) {
    if (depth >= 1 && depth <= kMaxQueueDepth) continue;
    return InvalidArgument("depth %u, expected 1 to %u", depth, kMaxQueueDepth);
  }
  if (options.seconds > 0 && options.seconds <= 600) return {};
  return InvalidArgument(
      "%g seconds a measurement, expected more than 0 and "
      "at most 600",
      options.seconds);
}

}  // namespace

}  // namespace ecphory::tables

namespace ecphory {

Result<TablesBench> BenchTables(const TablesBenchOptions& options) {
  ECPHORY_RETURN_IF_ERROR(tables::CheckOptions(options));
  return tables::Bench(options).Run();
}

}  // namespace ecphory
