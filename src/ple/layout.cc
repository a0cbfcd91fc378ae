#include "ple/layout.h"

#include <algorithm>
#include <cinttypes>
#include <numeric>

#include "base/checked_math.h"
#include "engram/prime.h"

namespace ecphory::ple {

namespace {

constexpr uint64_t kInt32Max = INT32_MAX;
constexpr uint64_t kInt64Max = INT64_MAX;
constexpr uint64_t kGamma = 0x9E3779B97F4A7C15u;

uint64_t SplitMix(uint64_t x) {
  x += kGamma;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

std::vector<uint64_t> Multipliers(const LayoutSpec& spec) {
  const uint64_t half = std::max<uint64_t>(1, kInt64Max / spec.vocab_size / 2);
  const uint64_t base = spec.seed + uint64_t{10007} * spec.module_index;
  std::vector<uint64_t> multipliers;
  for (uint64_t i = 1; i <= spec.ngram_size; ++i) {
    multipliers.push_back(SplitMix(base + kGamma * i) % half * 2 + 1);
  }
  return multipliers;
}

// Ranges that every later computation takes for granted.
Status CheckSizes(uint32_t ngram_size, uint64_t heads_per_ngram) {
  if (ngram_size < 2 || ngram_size > kMaxNgram) {
    return Unsupported("ple: ngram_size is %u, expected 2..%u", ngram_size,
                       kMaxNgram);
  }
  const uint64_t most = kMaxHeads / (ngram_size - 1);
  if (heads_per_ngram == 0 || heads_per_ngram > most) {
    return Unsupported("ple: %" PRIu64
                       " heads per n-gram size of %u, expected 1..%" PRIu64,
                       heads_per_ngram, ngram_size - 1, most);
  }
  return {};
}

Status CheckWidth(uint32_t width) {
  if (width > 0 && width % 32 == 0 && width <= kMaxWidth) return {};
  return Unsupported(
      "ple: rows of %u values, expected a multiple of 32 up to %u", width,
      kMaxWidth);
}

Status CheckCount(const char* name, size_t found, uint64_t expected) {
  if (found == expected) return {};
  return Corrupt("ple: %s has %zu entries, expected %" PRIu64, name, found,
                 expected);
}

Status CheckMultipliers(const Layout& layout) {
  for (const uint64_t multiplier : layout.multipliers) {
    if (multiplier % 2 == 0) {
      return Corrupt("ple: multiplier %" PRIu64
                     " is even, expected odd numbers",
                     multiplier);
    }
  }
  if (layout.vocab_size == 0) {
    return Corrupt("ple: the vocabulary has no tokens");
  }
  const uint32_t most = LargestVocab(layout.multipliers);
  if (layout.vocab_size <= most) return {};
  return Corrupt(
      "ple: multipliers times ids of a vocabulary of %u pass 2^63 - 1, "
      "expected at most %u ids",
      layout.vocab_size, most);
}

Status CheckHeads(const Layout& layout) {
  uint64_t next = 0;
  for (size_t head = 0; head < layout.sizes.size(); ++head) {
    const uint64_t size = layout.sizes[head], offset = layout.offsets[head];
    if (size < 2) {
      return Corrupt("ple: head %zu has %" PRIu64 " rows, expected at least 2",
                     head, size);
    }
    if (size > kInt32Max || offset > kInt32Max - size) {
      return Unsupported("ple: head %zu has %" PRIu64 " rows from %" PRIu64
                         " on, expected rows up to 2^31 - 1",
                         head, size, offset);
    }
    if (offset != next) {
      return Corrupt("ple: head %zu begins at row %" PRIu64
                     ", expected %" PRIu64 ", the sum of the sizes before",
                     head, offset, next);
    }
    next += size;
  }
  return {};
}

Status CheckId(const char* name, int32_t id, uint32_t vocab_size) {
  if (id >= 0 && static_cast<uint32_t>(id) < vocab_size) return {};
  return Corrupt("ple: the %s id is %d, expected 0..%u", name, id,
                 vocab_size - 1);
}

// The first `count` primes from `from` up, after skipping `skipped` of them.
Result<std::vector<uint64_t>> Primes(uint64_t from, uint64_t skipped,
                                     uint64_t count) {
  std::vector<uint64_t> primes;
  for (uint64_t n = std::max<uint64_t>(2, from); primes.size() < count; ++n) {
    if (n > kInt32Max) {
      return Unsupported("ple: head sizes from %" PRIu64 " up pass 2^31 - 1",
                         from);
    }
    if (!engram::IsPrime(n)) continue;
    if (skipped > 0) {
      --skipped;
    } else {
      primes.push_back(n);
    }
  }
  return primes;
}

Status CheckSpec(const LayoutSpec& spec) {
  ECPHORY_RETURN_IF_ERROR(CheckSizes(spec.ngram_size, spec.heads_per_ngram));
  const uint32_t heads = (spec.ngram_size - 1) * spec.heads_per_ngram;
  if (spec.embed_dim % heads != 0) {
    return Corrupt("ple: ple_embed_dim is %u, expected a multiple of %u heads",
                   spec.embed_dim, heads);
  }
  if (!spec.eos_id) {
    return Corrupt("ple: eos_token_id is missing: it cuts the look-back");
  }
  if (spec.vocab_size == 0 || spec.vocab_size > kInt32Max) {
    return Corrupt("ple: vocab_size is %u, expected 1..2^31 - 1",
                   spec.vocab_size);
  }
  if (spec.module_index > kMaxHeads) {
    return Unsupported("ple: module %u, expected at most %" PRIu64,
                       spec.module_index, kMaxHeads);
  }
  return {};
}

}  // namespace

uint64_t Layout::rows() const {
  return std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
}

uint64_t Layout::padded_rows() const {
  return (rows() + kRowPadding - 1) / kRowPadding * kRowPadding;
}

uint32_t LargestVocab(const std::vector<uint64_t>& multipliers) {
  uint64_t largest = 1;
  for (const uint64_t m : multipliers) largest = std::max(largest, m);
  // Ids up to vocab - 1.
  return static_cast<uint32_t>(std::min(kInt32Max - 1, kInt64Max / largest) +
                               1);
}

Status CheckLayout(const Layout& layout) {
  ECPHORY_RETURN_IF_ERROR(
      CheckSizes(layout.ngram_size, layout.heads_per_ngram));
  ECPHORY_RETURN_IF_ERROR(CheckWidth(layout.width));
  ECPHORY_RETURN_IF_ERROR(CheckCount(
      "layer_multipliers", layout.multipliers.size(), layout.ngram_size));
  ECPHORY_RETURN_IF_ERROR(
      CheckCount("head_vocab_sizes", layout.sizes.size(), layout.heads()));
  ECPHORY_RETURN_IF_ERROR(
      CheckCount("head_offsets", layout.offsets.size(), layout.heads()));
  ECPHORY_RETURN_IF_ERROR(CheckMultipliers(layout));
  ECPHORY_RETURN_IF_ERROR(CheckHeads(layout));
  ECPHORY_RETURN_IF_ERROR(CheckId("EOS", layout.eos_id, layout.vocab_size));
  if (!layout.image_id) return {};
  return CheckId("image token", *layout.image_id, layout.vocab_size);
}

Result<Layout> DeriveLayout(const LayoutSpec& spec) {
  ECPHORY_RETURN_IF_ERROR(CheckSpec(spec));
  Layout layout;
  layout.ngram_size = spec.ngram_size;
  layout.heads_per_ngram = spec.heads_per_ngram;
  layout.width = spec.embed_dim / layout.heads();
  layout.vocab_size = spec.vocab_size;
  layout.eos_id = *spec.eos_id;
  layout.image_id = spec.image_id;
  layout.multipliers = Multipliers(spec);
  const uint64_t skipped = uint64_t{spec.module_index} * layout.heads();
  ECPHORY_ASSIGN_OR_RETURN(
      layout.sizes, Primes(spec.vocab_size_base, skipped, layout.heads()));
  uint64_t offset = 0;
  for (const uint64_t size : layout.sizes) {
    layout.offsets.push_back(offset);
    offset += size;
  }
  ECPHORY_RETURN_IF_ERROR(CheckLayout(layout));
  return layout;
}

Status CheckPlacement(const Placement& placement) {
  if (placement.layers.size() != 1) {
    return Unsupported("ple: %zu layers have a table, expected exactly 1",
                       placement.layers.size());
  }
  const uint32_t layer = placement.layers[0];
  if (layer >= placement.linear.size()) {
    return Corrupt("ple: layer %u has a table, the model has %zu layers", layer,
                   placement.linear.size());
  }
  if (!placement.linear[layer]) {
    return Unsupported(
        "ple: layer %u has a table and full attention, expected a layer with a "
        "recurrent state",
        layer);
  }
  if (placement.streams < 2) {
    return Corrupt("ple: hyper_connection.count is %u, expected at least 2",
                   placement.streams);
  }
  return {};
}

}  // namespace ecphory::ple
