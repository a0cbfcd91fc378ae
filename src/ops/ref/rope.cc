#include "ops/rope.h"

#include <cmath>

#include "ops/ref/math.h"
#include "ops/ref/ref_ops.h"

namespace ecphory::ref {

namespace {

// Rotates the pairs of x[2 * pairs] by position * inv_freq[pair]. The angle is
// rounded to fp32: the model was trained with that product.
void Rotate(float* x, const float* inv_freq, size_t pairs, int64_t position,
            bool inverse) {
  for (size_t i = 0; i < pairs; ++i) {
    const float angle = static_cast<float>(position) * inv_freq[i];
    const double cosine = std::cos(static_cast<double>(angle));
    const double sine = std::sin(static_cast<double>(inverse ? -angle : angle));
    const double re = x[2 * i];
    const double im = x[2 * i + 1];
    x[2 * i] = static_cast<float>(re * cosine - im * sine);
    x[2 * i + 1] = static_cast<float>(re * sine + im * cosine);
  }
}

}  // namespace

void Rope(const RopeArgs& args, ThreadPool&) {
  for (size_t t = 0; t < args.tokens; ++t) {
    for (size_t head = 0; head < args.heads; ++head) {
      float* x = args.x + (t * args.heads + head) * args.dim;
      Rotate(x + args.dim - args.rope_dim, args.inv_freq, args.rope_dim / 2,
             args.positions[t], args.inverse);
      if (args.round_bf16) {
        RoundValues(x + args.dim - args.rope_dim, args.rope_dim);
      }
    }
  }
}

}  // namespace ecphory::ref
