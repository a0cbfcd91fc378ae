#include "ops/engram_gate.h"

#include <algorithm>
#include <cmath>

#include "ops/ref/math.h"
#include "ops/ref/ref_ops.h"

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
  for (size_t t = 0; t < args.tokens; ++t) {
    const float* keys = args.kv + t * (args.streams + 1) * args.dim;
    const float* value = keys + args.streams * args.dim;
    const bool shut = args.shut != nullptr && args.shut[t] != 0;
    for (size_t s = 0; s < args.streams; ++s) {
      float* h = args.h + (t * args.streams + s) * args.dim;
      const double gate = shut ? 0 : Gate(args, s, h, keys + s * args.dim);
      if (args.gate != nullptr) {
        args.gate[t * args.streams + s] = static_cast<float>(gate);
      }
      if (shut) continue;
      for (size_t i = 0; i < args.dim; ++i) {
        h[i] = static_cast<float>(h[i] + gate * value[i]);
      }
    }
  }
}

}  // namespace ecphory::ref
