// Tables of the per-layer kind for tests.
#pragma once

#include "ple/layout.h"

namespace ecphory::ple {

// The released constants.
inline Layout ReleasedLayout() { return *DeriveLayout({}); }

// N = 3, two heads a size, rows of 32 values, ids 0..99, EOS 7.
inline LayoutSpec SmallSpec() {
  LayoutSpec spec;
  spec.heads_per_ngram = 2;
  spec.embed_dim = 4 * 32;
  spec.vocab_size = 100;
  spec.vocab_size_base = 90;
  spec.eos_id = 7;
  return spec;
}
inline Layout SmallLayout() { return *DeriveLayout(SmallSpec()); }

}  // namespace ecphory::ple
