// Formats with blocks of 32 times inputs rounded to int8.
#define HWY_WANT_AVX3_DL 1
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/int8_blocks.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/int8_kernel-inl.h"
#if ECPHORY_INT8_VECTORS
#include "ops/cpu/int8_codes-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

#if !ECPHORY_INT8_VECTORS
using Q8Codes = NoCodes;
using Mxfp4Codes = NoCodes;
using Fp4RowCodes = NoCodes;
#endif

void Q8_0(const Matrix& weight, const TokenRows& tokens, size_t begin,
          size_t end) {
  Int8RowRange<Q8Codes>(weight, tokens, begin, end);
}

void MXFP4(const Matrix& weight, const TokenRows& tokens, size_t begin,
           size_t end) {
  Int8RowRange<Mxfp4Codes>(weight, tokens, begin, end);
}

void Fp4Row32(const Matrix& weight, const TokenRows& tokens, size_t begin,
              size_t end) {
  Int8RowRange<Fp4RowCodes>(weight, tokens, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(Q8_0);
HWY_EXPORT(MXFP4);
HWY_EXPORT(Fp4Row32);
}  // namespace

void Int8RowsQ8_0(const Matrix& weight, const TokenRows& tokens, size_t begin,
                  size_t end) {
  HWY_DYNAMIC_DISPATCH(Q8_0)(weight, tokens, begin, end);
}

void Int8RowsMXFP4(const Matrix& weight, const TokenRows& tokens, size_t begin,
                   size_t end) {
  HWY_DYNAMIC_DISPATCH(MXFP4)(weight, tokens, begin, end);
}

void Int8RowsFp4Row32(const Matrix& weight, const TokenRows& tokens,
                      size_t begin, size_t end) {
  HWY_DYNAMIC_DISPATCH(Fp4Row32)(weight, tokens, begin, end);
}

}  // namespace ecphory
#endif
