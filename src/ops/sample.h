// Draws a token from the logits of each row.
//
// The result is the same in every backend, bit for bit: the random number comes
// with the arguments, what is chosen is chosen in one total order (the larger
// logit, then the lower id; -0 is 0), and what is added up are integers, whose
// sum no order changes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ecphory/status.h"

namespace ecphory {

// With mass(z) = SampleMass(z, SampleMassBits(vocab)), about 2^40 e^z:
//
// 1. The logits of `penalized` are divided by `repeat_penalty` where they are
//    more than 0, and multiplied elsewhere, in fp32.
// 2. The first NaN or +infinity is a fault, and so is that no logit is finite.
//    -infinity is never chosen. `top` is the best logit.
// 3. Temperature 0 takes the best.
// 4. top_k > 0 keeps so many of the best.
// 5. top_p < 1 keeps the fewest best of them whose mass(logit - top) adds up to
//    SampleShare(top_p, of all of them).
// 6. Of these, those stay with logit - top >= min_gap, in double precision.
// 7. In the order of ids, each has mass((logit - top) / temperature): the one
//    is drawn in whose part SampleTarget(random, of all of them) lies.
struct SampleRow {
  const float* logits = nullptr;       // [vocab]
  const int32_t* penalized = nullptr;  // [n_penalized] ids, each once
  size_t n_penalized = 0;
  float repeat_penalty = 1;  // > 0
  float temperature = 0;     // >= 0
  uint32_t top_k = 0;        // 0: off
  float top_p = 1;           // > 0
  double min_gap = 0;        // <= 0; -infinity: off
  uint64_t random = 0;       // uniform in all 64 bits
  int32_t* token = nullptr;  // the id again, [1] or null
};

enum class SampleFault : int32_t {
  kNone,
  kNaN,       // `id` is the logit's
  kInfinity,  // likewise
  kNoToken,   // `id` is 0
};

struct Sampled {
  int32_t id = 0;
  SampleFault fault = SampleFault::kNone;
};

struct SampleArgs {
  const SampleRow* rows = nullptr;  // [n_rows], of the host
  size_t n_rows = 0;
  size_t vocab = 0;            // 1 .. 2^30
  Sampled* sampled = nullptr;  // [n_rows]
};

// kCorrupt, with the logit, for what is a fault.
Status CheckSampled(const Sampled& sampled, size_t vocab);

}  // namespace ecphory
