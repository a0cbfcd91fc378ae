#define HWY_WANT_AVX3_DL 1  // for VBMI
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/matmul_fp8_tile32.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

void Rows(const Matrix& weight, const TokenRows& tokens, size_t begin,
          size_t end, float* panel) {
  MatmulRowRange<WeightDecoder<WeightFormat::kFp8Tile32>>(weight, tokens, begin,
                                                          end, panel);
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

void MatmulRowsFp8Tile32(const Matrix& weight, const TokenRows& tokens,
                         size_t begin, size_t end, float* panel) {
  HWY_DYNAMIC_DISPATCH(Rows)(weight, tokens, begin, end, panel);
}

}  // namespace ecphory
#endif
