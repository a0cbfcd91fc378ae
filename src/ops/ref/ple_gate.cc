#include "ops/ple_gate.h"

#include <algorithm>
#include <cmath>

#include "ops/ref/math.h"
#include "ops/ref/ref_ops.h"

namespace ecphory::ref {

namespace {

// sigmoid(g) of one stream x[D] and its key.
double Gate(const PleGateArgs& args, size_t s, const float* x,
            const float* key) {
  const float* key_weight = args.key_weight + s * args.dim;
  const float* query_weight = args.query_weight + s * args.dim;
  double dot = 0;
  for (size_t i = 0; i < args.dim; ++i) {
    dot += key[i] * (1.0 + key_weight[i]) * x[i] * (1.0 + query_weight[i]);
  }
  dot *= InverseRms(key, args.dim, args.eps) *
         InverseRms(x, args.dim, args.eps) /
         std::sqrt(static_cast<double>(args.dim));
  if (dot == 0) return 0.5;
  const double root = std::sqrt(std::max(std::fabs(dot), 1e-6));
  return Sigmoid(std::copysign(root, dot));
}

// The convolution of one channel at `position`, whose own input is `now`.
double Convolve(const PleGateArgs& args, size_t channel, size_t position,
                float now) {
  const float* weight = args.conv_weight + channel * args.kernel;
  const size_t channels = args.streams * args.dim;
  double sum = static_cast<double>(weight[args.kernel - 1]) * now;
  for (size_t j = 0; j + 1 < args.kernel; ++j) {
    const size_t back = (args.kernel - 1 - j) * args.dilation;
    if (back > position) continue;
    const size_t row = (position - back) % args.state_rows;
    sum +=
        static_cast<double>(weight[j]) * args.state[row * channels + channel];
  }
  return sum;
}

// One stream of one token, at `position`.
void Inject(const PleGateArgs& args, size_t s, size_t position,
            const float* value, double gate, bool shut, float* x) {
  const size_t dim = args.dim;
  const double norm = shut
                          ? 0
                          : 1 / std::sqrt(gate * gate * Dot(value, value, dim) /
                                              static_cast<double>(dim) +
                                          args.eps);
  for (size_t i = 0; i < dim; ++i) {
    const size_t channel = s * dim + i;
    const double u = shut ? 0 : gate * value[i];
    const float c = static_cast<float>(
        shut ? 0 : u * norm * (1.0 + args.conv_norm_weight[channel]));
    if (!shut) {
      const double z = Convolve(args, channel, position, c);
      x[i] = static_cast<float>(x[i] + u + z * Sigmoid(z));
    }
    if (args.state_rows == 0) continue;
    const size_t row = position % args.state_rows;
    args.state[row * args.streams * dim + channel] = c;
  }
}

}  // namespace

void PleGate(const PleGateArgs& args, ThreadPool&) {
  for (size_t t = 0; t < args.tokens; ++t) {
    const bool shut = args.shut != nullptr && args.shut[t] != 0;
    for (size_t s = 0; s < args.streams; ++s) {
      const size_t at = t * args.streams + s;
      float* x = args.x + at * args.dim;
      const double gate = shut ? 0 : Gate(args, s, x, args.key + at * args.dim);
      if (args.gate != nullptr) args.gate[at] = static_cast<float>(gate);
      Inject(args, s, args.position + t, args.value + t * args.dim, gate, shut,
             x);
    }
  }
}

}  // namespace ecphory::ref
