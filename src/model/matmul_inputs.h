// What the products of a session take their inputs for.
#pragma once

#include "ecphory/session.h"
#include "ops/matmul.h"

namespace ecphory {

inline MatmulInput InputOf(Activations activations) {
  switch (activations) {
    case Activations::kF32: return MatmulInput::kF32;
    case Activations::kBF16: return MatmulInput::kBF16;
    case Activations::kInt8: return MatmulInput::kInt8;
  }
  return MatmulInput::kF32;
}

// Of Engram rows, whose stored values are bf16 whatever the activations are.
// In f32 sessions all sums keep their order, however a prompt is cut.
inline MatmulInput RowsInputOf(Activations activations) {
  return activations == Activations::kF32 ? MatmulInput::kBF16InOrder
                                          : MatmulInput::kBF16;
}

}  // namespace ecphory
