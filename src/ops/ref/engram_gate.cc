#include "ops/engram_gate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/ref/math.h"
#include "ops/ref/ref_ops.h"
#include "ops/ref/streams.h"

namespace ecphory::ref {

namespace {

// How much of the memory stream s lets in: h[D] is the stream, key[D] its key.
double Gate(const EngramGateArgs& args, size_t s, const float* h,
            const float* key) {
  const size_t dim = args.dim;
  const float* q_weight = args.q_weight + s * dim;
  const float* k_weight = args.k_weight + s * dim;
  double dot = 0;
  for (size_t i = 0; i < dim; ++i) {
    dot += static_cast<double>(h[i]) * q_weight[i] * k_weight[i] * key[i];
  }
  dot *= InverseRms(h, dim, args.eps) * InverseRms(key, dim, args.eps) /
         std::sqrt(static_cast<double>(dim));
  const double root = std::sqrt(std::max(std::fabs(dot), 1e-6));
  return Sigmoid(args.sigmoid, std::copysign(root, dot));
}

}  // namespace

void EngramGate(const EngramGateArgs& args, ThreadPool&) {
  const size_t dim = args.dim, width = (args.streams + 1) * dim;
  for (size_t t = 0; t < args.tokens; ++t) {
    std::vector<float> keys(args.kv + t * width, args.kv + (t + 1) * width);
    for (float& v : keys) v = Rounded(v, args.h.format);
    const float* value = keys.data() + args.streams * dim;
    const bool shut = args.shut != nullptr && args.shut[t] != 0;
    for (size_t s = 0; s < args.streams; ++s) {
      const size_t first = (t * args.streams + s) * dim;
      const std::vector<float> h = StreamValues(args.h, first, dim);
      const double gate =
          shut ? 0 : Gate(args, s, h.data(), keys.data() + s * dim);
      if (args.gate != nullptr) {
        args.gate[t * args.streams + s] = static_cast<float>(gate);
      }
      if (shut) continue;
      for (size_t i = 0; i < dim; ++i) {
        SetStream(args.h, first + i, h[i] + gate * value[i]);
      }
    }
  }
}

}  // namespace ecphory::ref
