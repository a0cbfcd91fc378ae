#include "engram/layout.h"

#include <algorithm>
#include <cinttypes>

#include "base/check.h"
#include "base/checked_math.h"
#include "engram/numpy_random.h"
#include "engram/prime.h"

namespace ecphory::engram {

namespace {

constexpr uint64_t kInt64Max = (uint64_t{1} << 63) - 1;

// A multiplier's product with any compressed id must be a non-negative int64.
bool ProductFits(uint64_t multiplier, uint32_t compressed_vocab) {
  uint64_t product;
  return multiplier <= kInt64Max &&
         CheckedMul(multiplier, compressed_vocab - 1, &product) &&
         product <= kInt64Max;
}

// Ranges that every later computation takes for granted.
Status CheckSizes(uint32_t max_ngram, uint32_t heads, uint32_t compressed_vocab,
                  size_t layers) {
  if (max_ngram < 2 || max_ngram > kMaxNgram) {
    return Unsupported("engram: max_ngram_size is %u, expected 2..%u",
                       max_ngram, kMaxNgram);
  }
  if (heads == 0 || layers == 0) {
    return Corrupt(
        "engram: %zu layers with %u heads, expected at least 1 of each", layers,
        heads);
  }
  uint64_t columns;
  if (!CheckedMul(uint64_t{max_ngram - 1} * heads, layers, &columns) ||
      columns > kMaxColumns) {
    return Unsupported(
        "engram: %zu layers of %u heads for %u n-gram sizes, expected at most "
        "%" PRIu64 " columns in all",
        layers, heads, max_ngram - 1, kMaxColumns);
  }
  if (compressed_vocab == 0 || compressed_vocab > INT32_MAX) {
    return Corrupt("engram: compressed_vocab_size is %u, expected 1..%d",
                   compressed_vocab, INT32_MAX);
  }
  return {};
}

// Ascending ids: no layer twice, and one order in which primes are given out.
Status CheckLayerIds(std::span<const uint32_t> ids) {
  for (size_t i = 1; i < ids.size(); ++i) {
    if (ids[i] <= ids[i - 1]) {
      return Corrupt(
          "engram: layer_ids has %u after %u, expected ascending ids", ids[i],
          ids[i - 1]);
    }
  }
  return {};
}

Status CheckSpec(const LayoutSpec& spec) {
  ECPHORY_RETURN_IF_ERROR(CheckSizes(spec.max_ngram, spec.heads,
                                     spec.compressed_vocab_size,
                                     spec.layer_ids.size()));
  return CheckLayerIds(spec.layer_ids);
}

// At most kMaxColumns primes up to kMaxPrime: no sum reaches 2^57. (Numbers
// from a file may wrap here; CheckPrimes refuses them afterwards.)
void SetOffsets(LayerLayout* layer) {
  layer->offsets.clear();
  layer->rows = 0;
  for (uint64_t prime : layer->primes) {
    layer->offsets.push_back(layer->rows);
    layer->rows += prime;
  }
}

Layout EmptyLayout(const LayoutSpec& spec) {
  Layout layout;
  layout.max_ngram = spec.max_ngram;
  layout.heads = spec.heads;
  layout.compressed_vocab_size = spec.compressed_vocab_size;
  for (uint32_t id : spec.layer_ids) layout.layers.emplace_back().layer_id = id;
  return layout;
}

// The first prime from `n` up, or 0 when that is above kMaxPrime.
uint64_t PrimeFrom(uint64_t n) {
  for (; n <= kMaxPrime; ++n) {
    if (IsPrime(n)) return n;
  }
  return 0;
}

Status CheckPrimes(const LayerLayout& layer) {
  for (uint64_t prime : layer.primes) {
    if (prime > kMaxPrime || !IsPrime(prime)) {
      return Corrupt("engram layer %u: %" PRIu64
                     " is listed as a prime, expected primes up to 2^40",
                     layer.layer_id, prime);
    }
  }
  std::vector<uint64_t> sorted = layer.primes;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return {};
  return Corrupt("engram layer %u: prime %" PRIu64
                 " is listed twice, expected distinct primes",
                 layer.layer_id, *twice);
}

Status CheckMultipliers(const LayerLayout& layer, uint32_t compressed_vocab) {
  for (uint64_t multiplier : layer.multipliers) {
    if (multiplier % 2 == 0) {
      return Corrupt("engram layer %u: multiplier %" PRIu64
                     " is even, expected odd numbers",
                     layer.layer_id, multiplier);
    }
    if (!ProductFits(multiplier, compressed_vocab)) {
      return Corrupt("engram layer %u: multiplier %" PRIu64
                     " times compressed id %u passes 2^63 - 1",
                     layer.layer_id, multiplier, compressed_vocab - 1);
    }
  }
  return {};
}

Status CheckOffsets(const LayerLayout& layer) {
  LayerLayout expected;
  expected.primes = layer.primes;
  SetOffsets(&expected);
  if (layer.offsets == expected.offsets && layer.rows == expected.rows) {
    return {};
  }
  return Corrupt("engram layer %u: offsets are not the sums of the primes",
                 layer.layer_id);
}

Status CheckLayer(const Layout& layout, const LayerLayout& layer) {
  if (layer.primes.size() != layout.columns() ||
      layer.multipliers.size() != layout.max_ngram) {
    return Corrupt(
        "engram layer %u: %zu primes and %zu multipliers, expected %u and %u",
        layer.layer_id, layer.primes.size(), layer.multipliers.size(),
        layout.columns(), layout.max_ngram);
  }
  ECPHORY_RETURN_IF_ERROR(CheckPrimes(layer));
  ECPHORY_RETURN_IF_ERROR(CheckOffsets(layer));
  return CheckMultipliers(layer, layout.compressed_vocab_size);
}

}  // namespace

Result<Layout> DeriveLayout(const LayoutSpec& spec) {
  ECPHORY_RETURN_IF_ERROR(CheckSpec(spec));
  if (spec.vocab_size == 0) {
    return Corrupt("engram: engram_vocab_size is 0, expected at least 1");
  }
  Layout layout = EmptyLayout(spec);
  // Every column takes the first prime from vocab_size up that no earlier
  // column took, so the columns of all layers run through the primes in order.
  uint64_t search_from = spec.vocab_size;
  for (LayerLayout& layer : layout.layers) {
    for (uint32_t column = 0; column < layout.columns(); ++column) {
      const uint64_t prime = PrimeFrom(search_from);
      if (prime == 0) {
        return Unsupported("engram: engram_vocab_size is %" PRIu64
                           ", its primes pass 2^40",
                           spec.vocab_size);
      }
      layer.primes.push_back(prime);
      search_from = prime + 1;
    }
    SetOffsets(&layer);
    layer.multipliers = NumpyMultipliers(
        layer.layer_id, spec.compressed_vocab_size, spec.max_ngram);
  }
  return layout;
}

Result<Layout> LayoutFromNumbers(const LayoutSpec& spec,
                                 std::span<const uint64_t> primes,
                                 std::span<const uint64_t> multipliers) {
  ECPHORY_RETURN_IF_ERROR(CheckSpec(spec));
  Layout layout = EmptyLayout(spec);
  const size_t columns = layout.columns();
  const size_t ngram = spec.max_ngram;
  const size_t layers = layout.layers.size();
  if (primes.size() != layers * columns ||
      multipliers.size() != layers * ngram) {
    return Corrupt(
        "engram: %zu primes and %zu multipliers, expected %zu and %zu for %zu "
        "layers",
        primes.size(), multipliers.size(), layers * columns, layers * ngram,
        layers);
  }
  for (size_t i = 0; i < layers; ++i) {
    LayerLayout& layer = layout.layers[i];
    const auto own_primes = primes.subspan(i * columns, columns);
    const auto own_multipliers = multipliers.subspan(i * ngram, ngram);
    layer.primes.assign(own_primes.begin(), own_primes.end());
    layer.multipliers.assign(own_multipliers.begin(), own_multipliers.end());
    SetOffsets(&layer);
  }
  ECPHORY_RETURN_IF_ERROR(CheckLayout(layout));
  return layout;
}

Status CheckLayout(const Layout& layout) {
  ECPHORY_RETURN_IF_ERROR(CheckSizes(layout.max_ngram, layout.heads,
                                     layout.compressed_vocab_size,
                                     layout.layers.size()));
  for (const LayerLayout& layer : layout.layers) {
    ECPHORY_RETURN_IF_ERROR(CheckLayer(layout, layer));
  }
  return {};
}

std::vector<uint64_t> NumpyMultipliers(uint32_t layer_id,
                                       uint32_t compressed_vocab,
                                       size_t count) {
  ECPHORY_CHECK(compressed_vocab > 0);
  const uint64_t bound =
      std::max<uint64_t>(1, kInt64Max / compressed_vocab / 2);
  NumpyGenerator generator(uint64_t{10007} * layer_id);
  std::vector<uint64_t> multipliers(count);
  for (uint64_t& m : multipliers) m = generator.Integer(bound) * 2 + 1;
  return multipliers;
}

}  // namespace ecphory::engram
