// Lookups as a model makes them, timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ecphory/status.h"
#include "engram/store.h"
#include "tables/row_stream.h"
#include "tables/table_set.h"

namespace ecphory::tables {

struct LookupPlan {
  // Of a lookup. With one token, the next is asked for when the last one is
  // there; otherwise two more lookups are under way meanwhile.
  size_t tokens = 1;
  size_t limit = 0;    // tokens in all; 0: until the time is up
  double seconds = 0;  // where limit is 0
};

struct LookupTimes {
  size_t tokens = 0;
  double seconds = 0;
  double cpu_seconds = 0;         // of all threads
  std::vector<double> lookup_us;  // from Submit to the last row, each
};

// Asks the store for the rows of the stream's next tokens, as bf16.
Result<LookupTimes> RunLookups(const TableSet& set, engram::Store* store,
                               RowStream* stream, const LookupPlan& plan);

// Plays the first `tokens` of a stream again and again, for warm runs.
class ReplayStream : public RowStream {
 public:
  ReplayStream(RowStream* stream, size_t tokens, size_t columns)
      : columns_(columns), tokens_(tokens) {
    stream->Next(tokens, &rows_);
  }
  void Next(size_t tokens, std::vector<std::vector<uint64_t>>* rows) override {
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
  std::vector<std::vector<uint64_t>> rows_;
  size_t at_ = 0;
};

}  // namespace ecphory::tables
