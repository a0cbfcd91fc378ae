#include "ops/cpu/digits.h"

#define HWY_WANT_AVX3_DL 1
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/digits.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <algorithm>

#include "hwy/highway.h"
#if HWY_TARGET == HWY_AVX3_DL
#include "ops/cpu/digits-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX3_DL

size_t BytesOf(WeightFormat format, size_t cols) {
  switch (format) {
    case WeightFormat::kIQ2_XXS:
      return DigitLayout<Iq2xxsShape>::RowBytes(cols);
    case WeightFormat::kQ2_K: return DigitLayout<Q2KDigitShape>::RowBytes(cols);
    default: return 0;
  }
}

bool Takes(WeightFormat format) { return BytesOf(format, 1) != 0; }

uint64_t Rows(const Matrix& weight, const TokenRows& tokens, size_t begin,
              size_t end) {
  if (weight.format == WeightFormat::kIQ2_XXS) {
    return DigitRowRange<Iq2xxsCodes>(weight, tokens, begin, end);
  }
  return DigitRowRange<Q2KDigitCodes>(weight, tokens, begin, end);
}

size_t Scratch(WeightFormat format, size_t cols, size_t tokens) {
  const size_t block = std::min(tokens, kMaxDigitTokens);
  const size_t digits = BytesOf(format, cols) * block;
  if (digits == 0 || block < 2) return digits;
  return digits + (format == WeightFormat::kIQ2_XXS
                       ? DigitPanel<Iq2xxsCodes>::Bytes(cols)
                       : DigitPanel<Q2KDigitCodes>::Bytes(cols));
}

#else

bool Takes(WeightFormat) { return false; }
uint64_t Rows(const Matrix&, const TokenRows&, size_t, size_t) { return ~0ull; }
size_t Scratch(WeightFormat, size_t, size_t) { return 0; }

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(Takes);
HWY_EXPORT(Rows);
HWY_EXPORT(Scratch);
}  // namespace

bool TakesDigits(WeightFormat format) {
  return HWY_DYNAMIC_DISPATCH(Takes)(format);
}

uint64_t DigitMatmulRows(const Matrix& weight, const TokenRows& tokens,
                         size_t begin, size_t end) {
  return HWY_DYNAMIC_DISPATCH(Rows)(weight, tokens, begin, end);
}

size_t DigitScratchBytes(WeightFormat format, size_t cols, size_t tokens) {
  return HWY_DYNAMIC_DISPATCH(Scratch)(format, cols, tokens);
}

}  // namespace ecphory
#endif
