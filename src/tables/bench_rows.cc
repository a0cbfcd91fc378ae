#include "tables/bench_rows.h"

#include <utility>

namespace ecphory::tables {

using Pattern = TablesBenchOptions::Pattern;

Result<std::unique_ptr<BenchRows>> BenchRows::Open(
    const TableSet& set, const TablesBenchOptions& options) {
  ECPHORY_ASSIGN_OR_RETURN(engram::Hasher hasher,
                           engram::MakeHasher(set.source));
  std::unique_ptr<BenchRows> rows(new BenchRows(std::move(hasher)));
  rows->pattern_ = options.pattern;
  rows->seed_ = options.seed;
  if (options.pattern == Pattern::kText) {
    ECPHORY_RETURN_IF_ERROR(rows->ReadTokens(set, options));
    ECPHORY_RETURN_IF_ERROR(TextRows(rows->hasher_, rows->tokens_).status());
  }
  rows->description_ = rows->NewStream()->Describe();
  return rows;
}

Status BenchRows::ReadTokens(const TableSet& set,
                             const TablesBenchOptions& options) {
  tokens_ = options.tokens;
  if (!tokens_.empty()) return {};
  if (options.text.empty()) {
    return InvalidArgument("a text pattern needs a text or token ids");
  }
  if (!set.source.tokenizer) {
    return Unsupported(
        "%s: has no tokenizer for the text; give token ids, or the tables of a "
        "model that has one",
        options.input.path.c_str());
  }
  ECPHORY_ASSIGN_OR_RETURN(tokens_, set.source.tokenizer->Encode(options.text));
  return {};
}

std::unique_ptr<RowStream> BenchRows::NewStream() {
  const uint64_t seed = seed_ + 1000 * streams_++;
  switch (pattern_) {
    case Pattern::kRandom: return RandomRows(hasher_.layout(), seed);
    case Pattern::kSequential: return SequentialRows(hasher_.layout());
    case Pattern::kText: break;
  }
  return std::move(TextRows(hasher_, tokens_)).value();  // held to it by Open
}

}  // namespace ecphory::tables
