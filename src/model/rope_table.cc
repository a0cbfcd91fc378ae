#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ecphory {

namespace {

// Dimension at which `rotations` full turns fit into the original context.
double CorrectionDim(double rotations, double theta, uint32_t rope_dim,
                     double original_max_positions) {
  return rope_dim *
         std::log(original_max_positions / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(theta));
}

}  // namespace

std::vector<float> RopeInvFreq(float theta, uint32_t rope_dim) {
  std::vector<float> inv_freq(rope_dim / 2);
  for (uint32_t i = 0; i < rope_dim / 2; ++i) {
    // The exponent and the reciprocal are fp32 steps; only the power itself is
    // computed in double, to be correctly rounded.
    const float exponent =
        static_cast<float>(2 * i) / static_cast<float>(rope_dim);
    const float power = static_cast<float>(
        std::pow(static_cast<double>(theta), static_cast<double>(exponent)));
    inv_freq[i] = 1.0f / power;
  }
  return inv_freq;
}

std::vector<float> YarnInvFreq(float theta, uint32_t rope_dim,
                               const YarnConfig& yarn) {
  std::vector<float> inv_freq = RopeInvFreq(theta, rope_dim);
  if (!yarn.enabled) return inv_freq;
  const double last = rope_dim - 1.0;
  const double low =
      std::clamp(std::floor(CorrectionDim(yarn.beta_fast, theta, rope_dim,
                                          yarn.original_max_positions)),
                 0.0, last);
  double high =
      std::clamp(std::ceil(CorrectionDim(yarn.beta_slow, theta, rope_dim,
                                         yarn.original_max_positions)),
                 0.0, last);
  if (high <= low) high = low + 0.001;  // a step, not a division by zero
  for (uint32_t i = 0; i < inv_freq.size(); ++i) {
    const float ramp =
        std::clamp(static_cast<float>(i - low) / static_cast<float>(high - low),
                   0.0f, 1.0f);
    const float keep = 1.0f - ramp;
    inv_freq[i] =
        inv_freq[i] / yarn.factor * (1.0f - keep) + inv_freq[i] * keep;
  }
  return inv_freq;
}

}  // namespace ecphory
