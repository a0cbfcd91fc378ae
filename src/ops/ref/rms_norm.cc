#include "ops/rms_norm.h"

#include "ops/ref/math.h"
#include "ops/ref/ref_ops.h"

namespace ecphory::ref {

void RmsNorm(const RmsNormArgs& args, ThreadPool&) {
  for (size_t r = 0; r < args.rows; ++r) {
    const float* x = args.x + r * args.dim;
    float* y = args.y + r * args.dim;
    const double scale = InverseRms(x, args.dim, args.eps);
    for (size_t i = 0; i < args.dim; ++i) {
      const double weight = args.weight != nullptr ? args.weight[i] : 1.0;
      y[i] = static_cast<float>(weight * x[i] * scale);
    }
    if (args.round_bf16) RoundValues(y, args.dim);
  }
}

}  // namespace ecphory::ref
