// Where an n-gram's rows lie: primes, offsets and multipliers of every Engram
// layer. docs/engram.md gives the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ecphory/status.h"

namespace ecphory::engram {

// Look-back beyond this many tokens is refused (the released models use 4).
inline constexpr uint32_t kMaxNgram = 8;
// Bounds on what a file may ask for: columns of all layers together, and the
// size of a prime (the released models: 48 and 16,000,889).
inline constexpr uint64_t kMaxColumns = 1 << 16;
inline constexpr uint64_t kMaxPrime = uint64_t{1} << 40;

// What defines a layout; all of it from config.json.
struct LayoutSpec {
  std::vector<uint32_t> layer_ids;  // ascending
  uint32_t max_ngram = 0;           // N: n-grams of 2..N tokens
  uint32_t heads = 0;               // per n-gram size
  uint64_t vocab_size = 0;          // lower bound of the primes
  uint32_t compressed_vocab_size = 0;
};

struct LayerLayout {
  uint32_t layer_id = 0;
  std::vector<uint64_t> multipliers;  // [N], odd, < 2^63
  std::vector<uint64_t> primes;       // [columns], n-gram size major
  std::vector<uint64_t> offsets;      // [columns], exclusive sums of primes
  uint64_t rows = 0;                  // sum of primes = rows of the table
};

struct Layout {
  uint32_t max_ngram = 0;
  uint32_t heads = 0;
  uint32_t compressed_vocab_size = 0;
  std::vector<LayerLayout> layers;
  uint32_t columns() const { return (max_ngram - 1) * heads; }
};

// Derives primes (no prime is used twice over all layers) and NumPy-exact
// multipliers. Refuses a spec that needs a prime above kMaxPrime.
Result<Layout> DeriveLayout(const LayoutSpec& spec);

// A layout from stored numbers (GGUF); completes offsets, then CheckLayout.
// primes [layers][columns] and multipliers [layers][max_ngram] flattened;
// spec.vocab_size is not used.
Result<Layout> LayoutFromNumbers(const LayoutSpec& spec,
                                 std::span<const uint64_t> primes,
                                 std::span<const uint64_t> multipliers);

// What the hash relies on: counts agree, primes are prime and distinct inside a
// layer, offsets are their sums, multipliers are odd and times any compressed
// id stay below 2^63. Names the layer and the number at fault.
Status CheckLayout(const Layout& layout);

// numpy.random.default_rng(10007 * layer).integers(0, bound, count) * 2 + 1,
// bound = max(1, (INT64_MAX / compressed_vocab) / 2); compressed_vocab > 0.
std::vector<uint64_t> NumpyMultipliers(uint32_t layer_id,
                                       uint32_t compressed_vocab, size_t count);

}  // namespace ecphory::engram
