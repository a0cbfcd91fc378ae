// The store measured through every way in, against the device itself.
#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "ecphory/engram_tables.h"
#include "engram/store.h"
#include "io/make_queue.h"
#include "io/memory_facts.h"
#include "tables/conditions.h"
#include "tables/fio.h"
#include "tables/read_probe.h"
#include "tables/row_stream.h"
#include "tables/table_files.h"
#include "tables/table_set.h"

namespace ecphory::tables {

namespace {

using engram::LookupRequest;
using engram::Store;
using engram::StoreOptions;
using engram::Ticket;
using Clock = std::chrono::steady_clock;
using LayerRows = std::vector<std::vector<uint64_t>>;

// Depth at which a token's rows meet the device's own figure.
constexpr uint32_t kTokenDepth = 48;
constexpr uint32_t kReadBytes = 4096;
// Rows of a throughput lookup: many times any depth, as in a prompt.
constexpr size_t kBatchTokens = 64;
// Lookups under way in a throughput measurement, so that the next one's rows
// are in flight while the last one's are waited for.
constexpr size_t kLookups = 3;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A lookup of some tokens' rows in every layer, with room for the values.
class TokenLookup {
 public:
  TokenLookup(const TableSet& set, size_t tokens) : set_(set), tokens_(tokens) {
    const size_t rows = tokens * set.source.config.columns();
    for (const engram::TableSource& table : set.tables) {
      values_.emplace_back(rows * table.width);
    }
    tickets_.resize(set.tables.size());
  }

  void Submit(RowStream* stream, Store* store) {
    stream->Next(tokens_, &rows_);
    requests_.clear();
    for (size_t i = 0; i < rows_.size(); ++i) {
      requests_.push_back({.table = i,
                           .rows = rows_[i],
                           .out = values_[i].data(),
                           .format = engram::RowFormat::kBf16});
    }
    start_ = Clock::now();
    store->Submit(requests_, tickets_);
    open_ = true;
  }

  // Ends the lookup; *seconds is the time since Submit.
  Status Wait(Store* store, double* seconds) {
    Status status;
    for (const Ticket ticket : tickets_) {
      Status waited = store->Wait(ticket);
      if (status.ok()) status = std::move(waited);
    }
    open_ = false;
    *seconds = Since(start_);
    return status;
  }

  bool open() const { return open_; }
  size_t rows() const {
    return tokens_ * set_.source.config.columns() * set_.tables.size();
  }

 private:
  const TableSet& set_;
  const size_t tokens_;
  LayerRows rows_;
  std::vector<std::vector<uint16_t>> values_;  // bf16
  std::vector<LookupRequest> requests_;
  std::vector<Ticket> tickets_;
  Clock::time_point start_;
  bool open_ = false;
};

// Plays the first `tokens` of a stream again and again, for warm runs.
class ReplayStream : public RowStream {
 public:
  ReplayStream(RowStream* stream, size_t tokens, size_t columns)
      : columns_(columns), tokens_(tokens) {
    stream->Next(tokens, &rows_);
  }
  void Next(size_t tokens, LayerRows* rows) override {
    rows->resize(rows_.size());
    for (size_t l = 0; l < rows_.size(); ++l) {
      (*rows)[l].resize(tokens * columns_);
      for (size_t i = 0; i < (*rows)[l].size(); ++i) {
        (*rows)[l][i] = rows_[l][(at_ * columns_ + i) % rows_[l].size()];
      }
    }
    at_ = (at_ + tokens) % tokens_;
  }
  std::string Describe() const override { return "a replay"; }

 private:
  const size_t columns_;
  const size_t tokens_;
  LayerRows rows_;
  size_t at_ = 0;
};

class Bench {
 public:
  explicit Bench(const TablesBenchOptions& options) : options_(options) {}

  Result<TablesBench> Run() {
    ECPHORY_RETURN_IF_ERROR(Open());
    FillConditions();
    ECPHORY_ASSIGN_OR_RETURN(const std::vector<IoMode> modes, Modes());
    steps_ = options_.depths.size() + modes.size() *
                                          (options_.depths.size() + 1) *
                                          (options_.warm ? 2 : 1);
    ECPHORY_RETURN_IF_ERROR(MeasureCeiling());
    for (const IoMode mode : modes) {
      if (options_.cold) ECPHORY_RETURN_IF_ERROR(MeasureMode(mode, "cold"));
      if (options_.warm && KeepsRows(mode)) {
        ECPHORY_RETURN_IF_ERROR(MeasureMode(mode, "warm"));
      }
    }
    out_.pattern = pattern_;
    return std::move(out_);
  }

 private:
  Status Open() {
    ECPHORY_ASSIGN_OR_RETURN(set_, OpenTableSet(options_.input));
    ECPHORY_ASSIGN_OR_RETURN(files_, OpenTableFiles(set_));
    ECPHORY_ASSIGN_OR_RETURN(engram::Hasher hasher,
                             engram::MakeHasher(set_.source));
    hasher_ = std::make_unique<engram::Hasher>(std::move(hasher));
    if (options_.pattern == TablesBenchOptions::Pattern::kText) {
      ECPHORY_RETURN_IF_ERROR(ReadTokens());
    }
    return NewStream().status();
  }

  Status ReadTokens() {
    tokens_ = options_.tokens;
    if (!tokens_.empty()) return {};
    if (options_.text.empty()) {
      return InvalidArgument("a text pattern needs a text or token ids");
    }
    if (!set_.source.tokenizer) {
      return Unsupported(
          "%s: has no tokenizer for the text; give token ids, or the tables of "
          "a model that has one",
          options_.input.path.c_str());
    }
    ECPHORY_ASSIGN_OR_RETURN(tokens_,
                             set_.source.tokenizer->Encode(options_.text));
    return {};
  }

  Result<std::unique_ptr<RowStream>> NewStream() {
    using Pattern = TablesBenchOptions::Pattern;
    // Every measurement goes on with rows that none before it has asked for.
    const uint64_t seed = options_.seed + 1000 * streams_++;
    std::unique_ptr<RowStream> stream;
    switch (options_.pattern) {
      case Pattern::kRandom:
        stream = RandomRows(hasher_->layout(), seed);
        break;
      case Pattern::kSequential:
        stream = SequentialRows(hasher_->layout());
        break;
      case Pattern::kText: {
        ECPHORY_ASSIGN_OR_RETURN(stream, TextRows(*hasher_, tokens_));
        break;
      }
    }
    pattern_ = stream->Describe();
    return stream;
  }

  void FillConditions() {
    out_.path = options_.input.path;
    out_.rows_per_token = set_.source.config.columns() *
                          static_cast<uint32_t>(set_.tables.size());
    out_.table_bytes = files_.bytes();
    const engram::TableSource& table = set_.tables[0];
    out_.row_bytes = engram::TableRowBytes(table.codec, table.width) +
                     engram::TableScaleBytes(table.codec, table.width);
    out_.codec = engram::TableCodecName(table.codec);
    out_.cache_bytes = options_.cache_bytes;
    FillMachine(&out_);
    for (const auto& file : files_.files) {
      out_.files.push_back(DescribeFile(*file));
    }
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
      out_.notes.push_back(
          "ram left out: the tables take more than half of "
          "the memory that is free");
    }
    return modes;
  }

  // Whether rows that were read once are in memory afterwards.
  bool KeepsRows(IoMode mode) const {
    return options_.cache_bytes > 0 || mode == IoMode::kBuffered ||
           mode == IoMode::kMmap || mode == IoMode::kRam;
  }

  Status Step(const std::string& what) {
    if (!options_.progress || options_.progress(what, ++done_, steps_)) {
      return {};
    }
    return Cancelled("while measuring %s", what.c_str());
  }

  Status MeasureCeiling() {
    ECPHORY_ASSIGN_OR_RETURN(
        const MadeQueue made,
        MakeQueue(IoMode::kUring, files_.files,
                  {.depth = *std::max_element(options_.depths.begin(),
                                              options_.depths.end())}));
    if (!made.denied.empty()) out_.notes.push_back(made.denied);
    std::vector<uint32_t> depths = options_.depths;
    if (std::count(depths.begin(), depths.end(), kTokenDepth) == 0) {
      depths.push_back(kTokenDepth);
    }
    for (const uint32_t depth : depths) {
      ECPHORY_RETURN_IF_ERROR(files_.Drop());
      ECPHORY_ASSIGN_OR_RETURN(
          const ReadRate rate,
          MeasureReads(made.queue.get(), files_.ranges, kReadBytes, depth,
                       options_.seconds, options_.seed + depth));
      out_.ceiling.push_back(rate);
      if (options_.fio) ECPHORY_RETURN_IF_ERROR(MeasureFio(depth));
      ECPHORY_RETURN_IF_ERROR(Step("the device"));
    }
    return {};
  }

  Status MeasureFio(uint32_t depth) {
    auto rate = RunFio(*files_.files[files_.ranges[0].file], files_.ranges[0],
                       kReadBytes, depth, options_.seconds);
    if (rate.ok()) {
      out_.fio.push_back(*rate);
      return {};
    }
    if (out_.fio.empty() && depth == options_.depths[0]) {
      out_.notes.push_back("fio: " + rate.status().message());
    }
    return {};
  }

  double CeilingAt(uint32_t depth) const {
    for (const ReadRate& rate : out_.ceiling) {
      if (rate.depth == depth) return rate.reads_per_second;
    }
    return 0;
  }

  Status MeasureMode(IoMode mode, const std::string& state) {
    ECPHORY_RETURN_IF_ERROR(MeasurePoint(mode, state, 0));
    for (const uint32_t depth : options_.depths) {
      ECPHORY_RETURN_IF_ERROR(MeasurePoint(mode, state, depth));
    }
    return {};
  }

  // Depth 0: a token at a time.
  Status MeasurePoint(IoMode mode, const std::string& state, uint32_t depth) {
    if (state == "cold") ECPHORY_RETURN_IF_ERROR(files_.Drop());
    StoreOptions options;
    options.io = mode;
    options.queue_depth = depth == 0 ? 256 : depth;
    options.io_threads = std::clamp<uint32_t>(options.queue_depth, 1, 64);
    options.cache_bytes = options_.cache_bytes;
    auto store = Store::Open(set_.tables, options);
    if (!store.ok()) {
      out_.notes.push_back(std::string(IoModeName(mode)) +
                           " left out: " + store.status().message());
      return {};
    }
    ECPHORY_ASSIGN_OR_RETURN(std::unique_ptr<RowStream> stream, NewStream());
    BenchPoint point;
    point.mode = IoModeName(mode);
    point.used = (*store)->io().reason;
    point.state = state;
    point.depth = depth;
    const size_t tokens = depth == 0 ? 1 : kBatchTokens;
    if (state == "warm") {
      const size_t replayed = 16 * kBatchTokens;
      stream = std::make_unique<ReplayStream>(stream.get(), replayed,
                                              set_.source.config.columns());
      ECPHORY_RETURN_IF_ERROR(
          Lookups(store->get(), stream.get(), kBatchTokens, replayed, nullptr));
    }
    point.resident_before = files_.Resident();
    ECPHORY_RETURN_IF_ERROR(
        Lookups(store->get(), stream.get(), tokens, 0, &point));
    point.resident_after = files_.Resident();
    const double ceiling = CeilingAt(depth == 0 ? kTokenDepth : depth);
    if (ceiling > 0) point.of_ceiling = point.rows_per_second / ceiling;
    out_.points.push_back(std::move(point));
    return Step(IoModeName(mode) + std::string(", ") + state);
  }

  // Lookups of `tokens` tokens until the time is up, or `limit` tokens.
  Status Lookups(Store* store, RowStream* stream, size_t tokens, size_t limit,
                 BenchPoint* point) {
    std::vector<TokenLookup> lookups(tokens == 1 ? 1 : kLookups,
                                     TokenLookup(set_, tokens));
    std::vector<double> times;
    const double cpu = ProcessCpuSeconds();
    const Clock::time_point start = Clock::now();
    size_t done = 0;
    Status status;
    for (size_t i = 0; status.ok(); ++i) {
      TokenLookup& lookup = lookups[i % lookups.size()];
      double seconds = 0;
      if (lookup.open()) {
        status = lookup.Wait(store, &seconds);
        times.push_back(1e6 * seconds);
        done += tokens;
      }
      const bool enough =
          limit != 0 ? done >= limit : Since(start) >= options_.seconds;
      if (enough || !status.ok()) break;
      lookup.Submit(stream, store);
    }
    for (TokenLookup& lookup : lookups) {
      double seconds = 0;
      if (!lookup.open()) continue;
      Status waited = lookup.Wait(store, &seconds);
      if (status.ok()) status = std::move(waited);
      times.push_back(1e6 * seconds);
      done += tokens;
    }
    if (point != nullptr) {
      Fill(Since(start), ProcessCpuSeconds() - cpu, done, times, point);
    }
    return status;
  }

  void Fill(double seconds, double cpu, size_t tokens,
            const std::vector<double>& times, BenchPoint* point) const {
    point->tokens = tokens;
    point->rows = tokens * out_.rows_per_token;
    const double rows = static_cast<double>(point->rows);
    point->rows_per_second = rows / seconds;
    point->cpu_us_per_row = 1e6 * cpu / rows;
    point->p50_us = Percentile(times, 50);
    point->p95_us = Percentile(times, 95);
    point->p99_us = Percentile(times, 99);
  }

  const TablesBenchOptions& options_;
  TableSet set_;
  TableFiles files_;
  std::unique_ptr<engram::Hasher> hasher_;
  std::vector<int32_t> tokens_;
  std::string pattern_;
  uint64_t streams_ = 0;
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
