// The constants of a Qwen-style per-layer n-gram table: where the rows of an
// n-gram lie. docs/ple.md gives the rules.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ecphory/status.h"

namespace ecphory::ple {

// Bounds on what a file may ask for (the released model: 3, 16, 160).
inline constexpr uint32_t kMaxNgram = 8;
inline constexpr uint64_t kMaxHeads = 256;
inline constexpr uint32_t kMaxWidth = 1 << 16;
// Tables are stored with their rows padded to a multiple of this.
inline constexpr uint64_t kRowPadding = 128;

struct Layout {
  uint32_t ngram_size = 0;            // N: n-grams of 2..N tokens
  uint32_t heads_per_ngram = 0;       // rows a token reads for each n-gram size
  uint32_t width = 0;                 // values a row, a multiple of 32
  std::vector<uint64_t> multipliers;  // [N], odd
  std::vector<uint64_t> sizes;        // [heads], rows of each head
  std::vector<uint64_t> offsets;      // [heads], exclusive sums of sizes
  int32_t eos_id = 0;                 // of the token that cuts the look-back
  std::optional<int32_t> image_id;    // hashed at image positions
  // Raw ids are below this. No product of an id and a multiplier, and so no
  // xor of them, reaches 2^63.
  uint32_t vocab_size = 0;

  uint32_t heads() const { return (ngram_size - 1) * heads_per_ngram; }
  uint64_t rows() const;         // that can be addressed: the sum of sizes
  uint64_t padded_rows() const;  // the same, as stored
};

// Refuses, each with a message of its own: an n-gram size or a head count out
// of range, arrays that are not as long as these say, a width that is no
// multiple of 32, even multipliers, heads of fewer than 2 rows or that reach
// past 2^31 - 1, offsets that are not the sums of the sizes, a vocabulary whose
// products pass 2^63 - 1, and EOS and image ids outside it.
Status CheckLayout(const Layout& layout);

// The largest vocab_size for which CheckLayout() passes `multipliers` (none of
// them 0); at most 2^31 - 1.
uint32_t LargestVocab(const std::vector<uint64_t>& multipliers);

// What the constants follow from; defaults are those of the released model.
struct LayoutSpec {
  uint32_t ngram_size = 3;
  uint32_t heads_per_ngram = 8;
  uint32_t embed_dim = 2560;  // a token's rows together
  uint32_t vocab_size = 248320;
  uint64_t vocab_size_base = 20'000'000;  // lower bound of the head sizes
  uint64_t seed = 1234;
  uint32_t module_index = 0;  // of the layer among those with a table
  std::optional<int32_t> eos_id = 248044;
  std::optional<int32_t> image_id;
};

// Multipliers by splitmix64, sizes by the primes from vocab_size_base up.
// Refuses also an embed_dim that the heads do not divide, and a missing EOS.
Result<Layout> DeriveLayout(const LayoutSpec& spec);

// Where the model puts the table, for the refusals below.
struct Placement {
  std::vector<uint32_t> layers;  // with a table, from 0
  std::vector<bool> linear;      // of each layer: has a recurrent state
  uint32_t streams = 0;          // hyper-connection count
};

// Refuses more than one layer or none, a layer that does not exist or has full
// attention (the history lives in the recurrent cache), fewer than 2 streams.
Status CheckPlacement(const Placement& placement);

}  // namespace ecphory::ple
