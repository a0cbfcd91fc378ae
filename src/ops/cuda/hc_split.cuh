// The ways in which a split is computed; ops/cuda/hyper_connection.cu chooses.
#pragma once

#include <cstdint>

#include "ops/hyper_connection.h"

namespace ecphory::cuda {

// To 16 bytes, so that a lane may take four floats at a time, or eight bf16.
inline bool Aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

// Any H, any D, any fn.
void HcSplitGeneric(const HcSplitArgs& args);
void HcHeadGeneric(const HcHeadArgs& args);

// H = 4, D a multiple of 16 up to four::kMaxFewDim, fn in fp32, fp16 or bf16,
// arrays aligned to 16 bytes. Spread over the device slab by slab: for few
// tokens, fp32 or bf16 streams.
void HcSplitFew(const HcSplitArgs& args);
void HcSplitFewBf16(const HcSplitArgs& args);

// The same of bf16 streams, D up to 5120, the collapse with a given pre, and a
// device with clusters of 16 blocks, in one kernel.
bool TakesClusterBf16(const HcSplitArgs& args);
void HcSplitClusterBf16(const HcSplitArgs& args);

// The same, D a multiple of 1024 up to 5120, the collapse with a given pre, and
// a device with clusters of 16 blocks. For many tokens of fp32 or of bf16
// streams, which stay in the memory of a cluster until they are normed; of bf16
// streams without the owed expand, which comes before as a kernel of its own.
bool TakesMany(const HcSplitArgs& args);
bool TakesManyBf16(const HcSplitArgs& args);
void HcSplitMany(const HcSplitArgs& args);
void HcSplitManyBf16(const HcSplitArgs& args);

// Tokens [first, first + count).
inline HcSplitArgs TokensOf(HcSplitArgs a, size_t first, size_t count) {
  const size_t n = a.streams;
  if (a.y != nullptr) {
    a.y += first * a.dim;
    a.last_post += first * n;
    a.last_comb += first * n * n;
  }
  if (a.collapse_pre != nullptr) a.collapse_pre += first * n;
  a.h = a.h.From(first * n * a.dim);
  a.pre += first * n;
  a.post += first * n;
  a.comb += first * n * n;
  a.x += first * a.dim;
  a.tokens = count;
  return a;
}

}  // namespace ecphory::cuda
