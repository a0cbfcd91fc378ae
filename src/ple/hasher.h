// From raw token ids to row numbers of the per-layer n-gram table.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ecphory/status.h"
#include "engram/hasher.h"
#include "engram/modulus.h"
#include "ple/layout.h"

namespace ecphory::ple {

// The ids since the start of the sequence or the last EOS, newest first, at
// most ngram_size - 1 of them; what is missing counts as EOS, so that an empty
// history is a sequence's start. A plain value: copying it is a snapshot.
using History = engram::History;

// What stands at a position.
enum class Position : uint8_t {
  kToken = 0,
  kPadding = 1,  // hashed as EOS, and cuts like it
  kImage = 2,    // hashed as the image token's id, or EOS when there is none
};

// Thread-safe: constant after construction, the history is the caller's.
class Hasher {
 public:
  // Refuses what CheckLayout() refuses.
  static Result<Hasher> Create(Layout layout);

  const Layout& layout() const { return layout_; }

  // The ids that are hashed: `tokens` with those at other positions replaced.
  // `positions` is empty or as long as `tokens`. kOutOfRange names a token
  // outside the vocabulary and its place.
  Status Resolve(std::span<const int32_t> tokens,
                 std::span<const Position> positions,
                 std::span<int32_t> ids) const;

  // Rows of `ids` (resolved, the next of a sequence): [ids, heads]. Advances
  // `history`. One call, chunks and single tokens give the same rows.
  void Hash(std::span<const int32_t> ids, History* history,
            std::span<uint64_t> rows) const;

 private:
  struct Head {
    engram::Modulus size;
    uint64_t offset;
  };
  explicit Hasher(Layout layout);
  void HashToken(int32_t id, const History& history, uint64_t* rows) const;
  void Push(int32_t id, History* history) const;

  Layout layout_;
  std::vector<Head> heads_;
};

}  // namespace ecphory::ple
