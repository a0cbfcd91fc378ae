// Which rows a benchmark asks for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ecphory/engram_measure.h"
#include "ecphory/status.h"
#include "engram/hasher.h"
#include "tables/row_stream.h"
#include "tables/table_set.h"

namespace ecphory::tables {

// Not thread-safe.
class BenchRows {
 public:
  // Reads the text or ids of a text pattern. kUnsupported for a text without a
  // tokenizer, kInvalidArgument for one that TextRows refuses.
  static Result<std::unique_ptr<BenchRows>> Open(
      const TableSet& set, const TablesBenchOptions& options);

  // Random rows go on with those that no stream before has given. Lives at most
  // as long as this.
  std::unique_ptr<RowStream> NewStream();
  // What the rows are.
  std::string Describe() const { return description_; }

 private:
  explicit BenchRows(engram::Hasher hasher) : hasher_(std::move(hasher)) {}
  Status ReadTokens(const TableSet& set, const TablesBenchOptions& options);

  const engram::Hasher hasher_;
  TablesBenchOptions::Pattern pattern_ = TablesBenchOptions::Pattern::kRandom;
  std::vector<int32_t> tokens_;
  std::string description_;
  uint64_t seed_ = 0;
  uint64_t streams_ = 0;
};

}  // namespace ecphory::tables
