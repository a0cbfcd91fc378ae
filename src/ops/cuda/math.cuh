// The few formulas that several kernels share.
#pragma once

#include "ops/hyper_connection.h"

namespace ecphory::cuda {

__device__ inline float Sigmoid(float z) { return 1.0f / (1.0f + expf(-z)); }

__device__ inline float Sigmoid(SigmoidForm form, float z) {
  if (form == SigmoidForm::kExp) return Sigmoid(z);
  return 0.5f * (1.0f + tanhf(0.5f * z));
}

}  // namespace ecphory::cuda
