// How large the weights of a synthetic model are, so that its activations stay
// of ordinary size through any number of layers.
//
// A matrix has deviation 1 / sqrt(columns): a vector of RMS 1 gives one of RMS
// 1. Norms have weights around 1, the embedding RMS 1. What a sublayer adds to
// the residual streams is held back by mHC itself: the base of `post` is -3, so
// that post = 2 sigmoid(-3) is about 0.095, and 80 sites of independent outputs
// of RMS 1 raise the streams' mean square from 1 to 1 + 80 * 0.095^2 = 1.7. The
// comb logits favour a stream's own place and are doubly stochastic in any
// case: they keep the size. An Engram value is added without a `post`: its
// projection carries the same factor, and divides by the rows' RMS. The output
// matrix has twice the deviation, so that logits have a deviation of about 2.
#pragma once

#include "model/synth_values.h"
#include "model/tensor_slots.h"

namespace ecphory {

// The values of a tensor of architecture deepseek41.
SynthValues SynthScale(const TensorSlot& slot, const ModelConfig& config);

// Those of a matrix; `gain` 1 keeps the RMS of its input.
SynthValues SynthMatrix(uint64_t cols, double gain = 1);
// Norm weights around 1; numbers around 0, the same in all types.
SynthValues SynthNorm();
SynthValues SynthNumbers(double deviation);
// Base of the mixes of H streams: [(2 + H) * H], or [H] of a head mix.
SynthValues SynthMixBase(uint32_t streams);
// Scales of the mixes: all one half.
SynthValues SynthMixScale();

}  // namespace ecphory
