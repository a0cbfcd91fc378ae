#include "ops/cpu/digits.h"

#define HWY_WANT_AVX3_DL 1
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/digits.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <algorithm>

#include "hwy/highway.h"
#include "ops/cpu/parallel.h"
#if HWY_TARGET == HWY_AVX3_DL
#include "ops/cpu/digits-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX3_DL

size_t RowBytesOf(WeightFormat format, size_t cols) {
  switch (format) {
    case WeightFormat::kIQ2_XXS:
      return DigitLayout<Iq2xxsShape>::RowBytes(cols);
    case WeightFormat::kQ2_K: return DigitLayout<Q2KDigitShape>::RowBytes(cols);
    default: return 0;
  }
}

DigitRow Split(WeightFormat format, const float* x, size_t cols, uint8_t* out) {
  if (format == WeightFormat::kIQ2_XXS) {
    return SplitRow<Iq2xxsShape>(x, cols, out);
  }
  return SplitRow<Q2KDigitShape>(x, cols, out);
}

void Rows(const Matrix& weight, const TokenRows& tokens, size_t begin,
          size_t end) {
  if (weight.format == WeightFormat::kIQ2_XXS) {
    return DigitRowRange<Iq2xxsCodes>(weight, tokens, begin, end);
  }
  return DigitRowRange<Q2KDigitCodes>(weight, tokens, begin, end);
}

size_t PanelBytes(WeightFormat format, size_t cols) {
  return format == WeightFormat::kIQ2_XXS
             ? DigitPanel<Iq2xxsCodes>::Bytes(cols)
             : DigitPanel<Q2KDigitCodes>::Bytes(cols);
}

#else

size_t RowBytesOf(WeightFormat, size_t) { return 0; }
DigitRow Split(WeightFormat, const float*, size_t, uint8_t*) { return {}; }
void Rows(const Matrix&, const TokenRows&, size_t, size_t) {}
size_t PanelBytes(WeightFormat, size_t) { return 0; }

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(RowBytesOf);
HWY_EXPORT(Split);
HWY_EXPORT(Rows);
HWY_EXPORT(PanelBytes);
}  // namespace

bool TakesDigits(WeightFormat format) { return DigitRowBytes(format, 1) != 0; }

size_t DigitRowBytes(WeightFormat format, size_t cols) {
  return HWY_DYNAMIC_DISPATCH(RowBytesOf)(format, cols);
}

DigitRow SplitToDigits(WeightFormat format, const float* x, size_t cols,
                       uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(Split)(format, x, cols, out);
}

void SplitRowsToDigits(WeightFormat format, const float* x, size_t x_stride,
                       size_t cols, size_t count, uint8_t* out, DigitRow* rows,
                       ThreadPool& pool) {
  const size_t bytes = DigitRowBytes(format, cols);
  // Splitting a value takes about as long as 8 multiply-adds.
  pool.ParallelFor(
      count, GrainFor(8 * cols), [&](size_t begin, size_t end, size_t) {
        for (size_t r = begin; r < end; ++r) {
          rows[r] =
              SplitToDigits(format, x + r * x_stride, cols, out + r * bytes);
        }
      });
}

void DigitMatmulRows(const Matrix& weight, const TokenRows& tokens,
                     size_t begin, size_t end) {
  HWY_DYNAMIC_DISPATCH(Rows)(weight, tokens, begin, end);
}

size_t DigitPanelBytes(WeightFormat format, size_t cols, size_t tokens) {
  return tokens < 2 ? 0 : HWY_DYNAMIC_DISPATCH(PanelBytes)(format, cols);
}

}  // namespace ecphory
#endif
