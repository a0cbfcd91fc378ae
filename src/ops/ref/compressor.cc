#include "ops/compressor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/ref/ref_ops.h"

namespace ecphory::ref {

namespace {

// Channel c of the group that starts at token `first`.
double PoolChannel(const PoolGroupsArgs& args, uint64_t first, size_t c) {
  double max = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < args.ratio; ++i) {
    const size_t slot = (first + i) % args.capacity;
    max = std::max<double>(max, args.gate[slot * args.dim + c]);
  }
  double weight_sum = 0;
  double sum = 0;
  for (size_t i = 0; i < args.ratio; ++i) {
    const size_t slot = (first + i) % args.capacity;
    const double weight = std::exp(args.gate[slot * args.dim + c] - max);
    weight_sum += weight;
    sum += weight * args.kv[slot * args.dim + c];
  }
  return sum / weight_sum;
}

}  // namespace

void PoolGroups(const PoolGroupsArgs& args, ThreadPool&) {
  for (size_t g = 0; g < args.groups; ++g) {
    const uint64_t first = (args.first_group + g) * args.ratio;
    for (size_t c = 0; c < args.dim; ++c) {
      args.latent[g * args.dim + c] =
          static_cast<float>(PoolChannel(args, first, c));
    }
  }
}

}  // namespace ecphory::ref
