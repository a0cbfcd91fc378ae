// The rows that a kind of text asks for, as the row cache study needs them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ecphory/status.h"
#include "engram/hasher.h"

namespace ecphory::study {

// n-gram sizes 2, 3 and 4.
inline constexpr size_t kOrders = 3;
// Columns of both tables that one n-gram reads: 8 heads, 2 layers.
inline constexpr size_t kColumnsPerOrder = 16;
inline constexpr uint32_t kNever = ~uint32_t{0};

// A kind of text: one token file, or several that are read in turn, token by
// token. Token files hold little-endian int32 ids, -1 between sequences.
struct Kind {
  std::string name;
  std::vector<std::string> files;
};

// "NAME FILE..." a line, '#' starts a comment. Files are relative to the list.
Result<std::vector<Kind>> ReadKinds(const std::string& path);

// The hasher of the released layout: `facts` is engram_release.json, `map` the
// public token map as raw int32.
Result<engram::Hasher> ReleasedHasher(const std::string& facts,
                                      const std::string& map);

// The tokens of a kind in the order in which they are hashed, each with the
// sequence that it belongs to; -1 resets that sequence.
struct Tokens {
  std::vector<int32_t> ids;
  std::vector<uint8_t> sequence;
  size_t sequences = 0;
};
Result<Tokens> ReadTokens(const Kind& kind);

// Every row of every token, both tables: calls visit(layer, rows[24]) twice a
// token.
template <typename Visit>
void ForEachToken(const engram::Hasher& hasher, const Tokens& tokens,
                  Visit&& visit) {
  std::vector<engram::History> histories(tokens.sequences);
  std::array<std::array<uint64_t, kOrders * 8>, 2> rows;
  const std::array<std::span<uint64_t>, 2> spans = {rows[0], rows[1]};
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    engram::History& history = histories[tokens.sequence[i]];
    if (tokens.ids[i] < 0) {
      history = {};
      continue;
    }
    const int32_t id = hasher.token_map()[static_cast<size_t>(tokens.ids[i])];
    hasher.Hash({&id, 1}, &history, spans);
    visit(rows);
  }
}

// One column in sixteen: for each token the row of its 2-, 3- and 4-gram in one
// head of one layer. All columns see the same n-grams in the same order, so a
// cache of a sixteenth of the rows has the hit rate of the whole.
struct Sample {
  std::string name;
  size_t tokens = 0;
  std::vector<uint32_t> ids;    // of each access, numbered by first sight
  std::vector<uint8_t> orders;  // of each access: 0 for a 2-gram
  size_t half = 0;              // accesses of the first half of the tokens
  std::vector<uint64_t> rows;   // of each id
  std::vector<uint32_t> next;   // of each access: that of the next use, kNever
  uint64_t thinned_by = 1;
};
Result<Sample> MakeSample(const engram::Hasher& hasher, const Kind& kind,
                          size_t layer, size_t head);

// One row in `divisor`, by its hash: a cache of as many times less rows has
// about the hit rate of the whole (spatial sampling). A few rows get many of
// the accesses, so the share that is sampled is not 1 / divisor; the surplus or
// lack is one of hits (see Print in curves.cc).
Sample Thin(const Sample& sample, uint64_t divisor);

}  // namespace ecphory::study
