// Formats with blocks of 256 times inputs rounded to int8.
#define HWY_WANT_AVX3_DL 1
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/int8_super_blocks.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/int8_kernel-inl.h"
#if ECPHORY_INT8_VECTORS
#include "ops/cpu/int8_iq2_xxs-inl.h"
#include "ops/cpu/int8_super_codes-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

#if !ECPHORY_INT8_VECTORS
using Q4KCodes = NoCodes;
using Q2KCodes = NoCodes;
using Iq2xxsCodes = NoCodes;
#endif

void Q4_K(const Matrix& weight, const TokenRows& tokens, size_t begin,
          size_t end) {
  Int8RowRange<Q4KCodes>(weight, tokens, begin, end);
}

void Q2_K(const Matrix& weight, const TokenRows& tokens, size_t begin,
          size_t end) {
  Int8RowRange<Q2KCodes>(weight, tokens, begin, end);
}

void IQ2_XXS(const Matrix& weight, const TokenRows& tokens, size_t begin,
             size_t end) {
  Int8RowRange<Iq2xxsCodes>(weight, tokens, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(Q4_K);
HWY_EXPORT(Q2_K);
HWY_EXPORT(IQ2_XXS);
}  // namespace

void Int8RowsQ4_K(const Matrix& weight, const TokenRows& tokens, size_t begin,
                  size_t end) {
  HWY_DYNAMIC_DISPATCH(Q4_K)(weight, tokens, begin, end);
}

void Int8RowsQ2_K(const Matrix& weight, const TokenRows& tokens, size_t begin,
                  size_t end) {
  HWY_DYNAMIC_DISPATCH(Q2_K)(weight, tokens, begin, end);
}

void Int8RowsIQ2_XXS(const Matrix& weight, const TokenRows& tokens,
                     size_t begin, size_t end) {
  HWY_DYNAMIC_DISPATCH(IQ2_XXS)(weight, tokens, begin, end);
}

}  // namespace ecphory
#endif
