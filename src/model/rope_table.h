// Inverse frequencies of the two ropes (docs/architecture.md, 'Rope').
#pragma once

#include <cstdint>
#include <vector>

#include "ecphory/config.h"

namespace ecphory {

// f_i = theta^(-2i / rope_dim) in fp32, i < rope_dim / 2.
std::vector<float> RopeInvFreq(float theta, uint32_t rope_dim);

// The same with YaRN: f_i / factor blended to f_i by a linear ramp over the
// pair index between the correction dims of beta_fast and beta_slow. Applies
// at every length; the magnitude is not scaled. Plain when !yarn.enabled.
std::vector<float> YarnInvFreq(float theta, uint32_t rope_dim,
                               const YarnConfig& yarn);

}  // namespace ecphory
