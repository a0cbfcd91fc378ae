// Where an n-gram's rows lie: primes, offsets and multipliers of every Engram
// layer. docs/engram.md gives the rules and their origin.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ecphory/status.h"

namespace ecphory::engram {

// Look-back beyond this many tokens is refused (the released models use 4).
inline constexpr uint32_t kMaxNgram = 8;

// What defines a layout; all of it from config.json.
struct LayoutSpec {
  std::vector<uint32_t> layer_ids;
  uint32_t max_ngram = 0;   // N: n-grams of 2..N tokens
  uint32_t heads = 0;       // per n-gram size
  uint64_t vocab_size = 0;  // primes are searched from here - 1 up
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
// multipliers. Bounded: refuses specs whose search would not end in 2^40.
Result<Layout> DeriveLayout(const LayoutSpec& spec);

// Checks stored numbers (GGUF) and completes offsets: primes are prime and
// distinct inside a layer, multipliers odd, products with ids stay below 2^63.
// primes [layers][columns] and multipliers [layers][max_ngram] flattened.
Result<Layout> LayoutFromNumbers(const LayoutSpec& spec,
                                 std::span<const uint64_t> primes,
                                 std::span<const uint64_t> multipliers);

// numpy.random.default_rng(10007 * layer).integers(0, bound, count) * 2 + 1,
// bound = max(1, (INT64_MAX / compressed_vocab) / 2).
std::vector<uint64_t> NumpyMultipliers(uint32_t layer_id,
                                       uint32_t compressed_vocab, size_t count);

// First `count` raw 64-bit outputs of NumPy's PCG64 seeded with `seed`.
std::vector<uint64_t> Pcg64Raw(uint64_t seed, size_t count);

bool IsPrime(uint64_t n);

}  // namespace ecphory::engram
