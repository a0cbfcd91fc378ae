// From token ids to row numbers, with the short history a sequence carries.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ecphory/status.h"
#include "engram/layout.h"
#include "engram/modulus.h"

namespace ecphory::engram {

// A compressed id that stops the look-back: an image position or padding.
inline constexpr int32_t kDead = -1;

// The last max_ngram - 1 compressed ids, newest first; `length` of them are
// present. A plain value: copying it is a snapshot.
struct History {
  std::array<int32_t, kMaxNgram - 1> ids{};
  uint32_t length = 0;
};

// Thread-safe: constant after construction, the history is the caller's.
class Hasher {
 public:
  // `token_map` [vocab]: raw id -> compressed id, each < compressed vocab.
  // `pad_id` is a compressed id. Refuses maps and pads out of range.
  static Result<Hasher> Create(Layout layout, std::vector<int32_t> token_map,
                               int32_t pad_id);

  const Layout& layout() const { return layout_; }
  const std::vector<int32_t>& token_map() const { return token_map_; }
  int32_t pad_id() const { return pad_id_; }

  // Compressed ids of raw tokens; kDead where dead[i] != 0. kOutOfRange names
  // the position and id of a token outside the vocabulary.
  Status Compress(std::span<const int32_t> tokens,
                  std::span<const uint8_t> dead,
                  std::span<int32_t> compressed) const;

  // Rows of `compressed` (the next tokens of a sequence) for every layer:
  // rows[layer] is [tokens, columns]. Advances `history`.
  void Hash(std::span<const int32_t> compressed, History* history,
            std::span<const std::span<uint64_t>> rows) const;
  // The same history without the rows: for replaying a sequence's last tokens.
  void Advance(std::span<const int32_t> compressed, History* history) const;

 private:
  // How a column's row follows from the mixed ids.
  struct Column {
    Modulus prime;
    uint64_t offset;
  };

  explicit Hasher(Layout layout);
  void HashToken(size_t layer, std::span<const int32_t> look_back,
                 uint64_t* rows) const;

  Layout layout_;
  std::vector<std::vector<Column>> columns_;  // [layer][column]
  std::vector<int32_t> token_map_;
  int32_t pad_id_ = 0;
};

}  // namespace ecphory::engram
