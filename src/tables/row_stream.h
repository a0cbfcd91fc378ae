// The rows that tokens ask for, one token after another.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ecphory/status.h"
#include "engram/hasher.h"

namespace ecphory::tables {

// Rows of the next tokens of an endless sequence.
class RowStream {
 public:
  virtual ~RowStream() = default;
  // rows[layer] becomes [tokens, columns].
  virtual void Next(size_t tokens,
                    std::vector<std::vector<uint64_t>>* rows) = 0;
  // What the rows are and what that means for the figures.
  virtual std::string Describe() const = 0;
};

// Uniform over each column's rows: no two tokens share a row but by chance.
std::unique_ptr<RowStream> RandomRows(const engram::Layout& layout,
                                      uint64_t seed);
// Every token takes the rows behind the previous token's: the best case.
std::unique_ptr<RowStream> SequentialRows(const engram::Layout& layout);
// Those of a text, over and over. kInvalidArgument when the text is too short
// to stand for one, or is one token repeated.
Result<std::unique_ptr<RowStream>> TextRows(const engram::Hasher& hasher,
                                            std::span<const int32_t> tokens);

}  // namespace ecphory::tables
