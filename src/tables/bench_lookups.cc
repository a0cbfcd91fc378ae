#include "tables/bench_lookups.h"

#include <chrono>
#include <utility>

#include "tables/read_probe.h"

namespace ecphory::tables {

namespace {

using engram::LookupRequest;
using engram::Store;
using engram::Ticket;
using Clock = std::chrono::steady_clock;
using LayerRows = std::vector<std::vector<uint64_t>>;

// Under way at once in a throughput measurement, so that the next lookup's rows
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

// The lookups of one measurement.
class LookupRun {
 public:
  LookupRun(const TableSet& set, Store* store, RowStream* stream,
            const LookupPlan& plan)
      : store_(store),
        stream_(stream),
        plan_(plan),
        lookups_(plan.tokens == 1 ? 1 : kLookups,
                 TokenLookup(set, plan.tokens)) {}

  Result<LookupTimes> Run() {
    const double cpu = ProcessCpuSeconds();
    start_ = Clock::now();
    Status status;
    for (size_t i = 0;; ++i) {
      TokenLookup& lookup = lookups_[i % lookups_.size()];
      if (lookup.open()) status = Wait(&lookup);
      if (!status.ok() || Enough()) break;
      lookup.Submit(stream_, store_);
    }
    // Buffers must outlive the reads, also after an error.
    for (TokenLookup& lookup : lookups_) {
      if (!lookup.open()) continue;
      Status waited = Wait(&lookup);
      if (status.ok()) status = std::move(waited);
    }
    if (!status.ok()) return status;
    times_.seconds = Since(start_);
    times_.cpu_seconds = ProcessCpuSeconds() - cpu;
    return std::move(times_);
  }

 private:
  bool Enough() const {
    return plan_.limit != 0 ? times_.tokens >= plan_.limit
                            : Since(start_) >= plan_.seconds;
  }

  Status Wait(TokenLookup* lookup) {
    double seconds = 0;
    const Status status = lookup->Wait(store_, &seconds);
    times_.lookup_us.push_back(1e6 * seconds);
    times_.tokens += plan_.tokens;
    return status;
  }

  Store* const store_;
  RowStream* const stream_;
  const LookupPlan plan_;
  std::vector<TokenLookup> lookups_;
  Clock::time_point start_;
  LookupTimes times_;
};

}  // namespace

Result<LookupTimes> RunLookups(const TableSet& set, Store* store,
                               RowStream* stream, const LookupPlan& plan) {
  return LookupRun(set, store, stream, plan).Run();
}

}  // namespace ecphory::tables
