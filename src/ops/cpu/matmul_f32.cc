#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/matmul_f32.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

struct Decoder {
  Decoder(const Matrix& weight, size_t row)
      : values(weight.data + (weight.first_row + row) * weight.row_bytes()) {}
  HWY_INLINE void Block(size_t block, VF* out) const {
#pragma GCC unroll 8
    for (size_t v = 0; v < kBlockVectors; ++v) {
      out[v] = Load(reinterpret_cast<const float*>(values) + block * 32 +
                    v * kLanes);
    }
  }
  const uint8_t* values;
};

void Rows(const Matrix& weight, const TokenRows& tokens, size_t begin,
          size_t end, float* panel) {
  MatmulRowRange<Decoder>(weight, tokens, begin, end, panel);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(Rows);
}  // namespace

void MatmulRowsF32(const Matrix& weight, const TokenRows& tokens, size_t begin,
                   size_t end, float* panel) {
  HWY_DYNAMIC_DISPATCH(Rows)(weight, tokens, begin, end, panel);
}

}  // namespace ecphory
#endif
