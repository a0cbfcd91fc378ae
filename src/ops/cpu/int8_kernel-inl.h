// The loop over rows and tokens of products with int8 inputs; compiled once per
// Highway target.
#if defined(ECPHORY_OPS_CPU_INT8_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_INT8_KERNEL_INL_H_
#undef ECPHORY_OPS_CPU_INT8_KERNEL_INL_H_
#else
#define ECPHORY_OPS_CPU_INT8_KERNEL_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "base/ceil_div.h"
#include "ops/cpu/int8_rows.h"
#include "ops/cpu/scratch.h"

#include "ops/cpu/int8_targets-inl.h"
#if ECPHORY_INT8_VECTORS
#include "ops/cpu/int8_dot-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

#if ECPHORY_INT8_VECTORS

// Up to 4 rows of W; missing ones repeat the last, so that kernels need no case
// for them.
struct Int8Group {
  Int8Group(size_t begin, size_t end)
      : first(begin), count(std::min(kInt8Rows, end - begin)) {}
  size_t row(size_t r) const { return first + std::min(r, count - 1); }
  void StoreSums(const float* sums, float* y) const {
    std::memcpy(y + first, sums, count * sizeof(float));
  }
  size_t first;
  size_t count;
};

// One row of a panel: codes and scales that a class of codes left there, to be
// read as that class would be.
template <class Codes>
struct PanelRow : Codes::Shape {
  using Shape = typename Codes::Shape;
  static constexpr size_t kGroupBytes = 0;  // nothing to ask memory for

  // The bytes and floats of a row of `cols` values.
  static size_t CodeBytes(size_t cols) {
    return CeilDiv(cols, Shape::kGroup) * Shape::kGroup;
  }
  static size_t Floats(size_t cols) {
    return CeilDiv(cols, Shape::kGroup) * kLanes * (Shape::kMins ? 2 : 1);
  }

  HWY_INLINE void Begin(size_t c, size_t) {
    group = codes + c;
    parts = floats + c / Shape::kGroup * kLanes * (Shape::kMins ? 2 : 1);
  }
  HWY_INLINE VF Scales() const { return hn::Load(kF, parts); }
  HWY_INLINE VF Mins() const { return hn::Load(kF, parts + kLanes); }
  template <bool kWhole>
  HWY_INLINE void Step(size_t i, size_t, VU8 (&out)[Shape::kVectors]) const {
    for (size_t v = 0; v < Shape::kVectors; ++v) {
      out[v] = hn::Load(kU8, group + i * Shape::kSpan + v * kStep);
    }
  }

  void Fill(Codes row, size_t cols) {
    for (size_t c = 0; c < cols; c += Shape::kGroup) {
      const size_t n = HWY_MIN(Shape::kGroup, cols - c);
      row.Begin(c, n);
      Begin(c, n);
      hn::Store(row.Scales(), kF, parts);
      if constexpr (Shape::kMins) hn::Store(row.Mins(), kF, parts + kLanes);
      const size_t steps = n / Shape::kSpan;
      for (size_t i = 0; i < steps; ++i) FillStep<true>(row, i, Shape::kSpan);
      if (n % Shape::kSpan != 0) FillStep<false>(row, steps, n % Shape::kSpan);
    }
  }
  template <bool kWhole>
  HWY_INLINE void FillStep(const Codes& row, size_t i, size_t n) {
    VU8 out[Shape::kVectors];
    row.template Step<kWhole>(i, n, out);
    for (size_t v = 0; v < Shape::kVectors; ++v) {
      hn::Store(out[v], kU8, group + i * Shape::kSpan + v * kStep);
    }
  }

  uint8_t* codes = nullptr;
  float* floats = nullptr;
  uint8_t* group = nullptr;
  float* parts = nullptr;
};

// Tokens whose rounded inputs stay in the second-level cache (half of 1 MB)
// while all rows meet them.
inline size_t Int8TokenBlock(size_t cols) {
  return std::max<size_t>(8, (size_t{512} << 10) / Int8RowBytes(cols));
}

// 4 rows with every token: their codes are unpacked once.
template <class Codes>
void Int8Panel(const Matrix& weight, const Int8Group& group,
               const TokenRows& tokens) {
  using Row = PanelRow<Codes>;
  struct PanelBytes;
  struct PanelFloats;
  const size_t cols = weight.cols;
  uint8_t* const codes =
      ThreadScratch<PanelBytes, uint8_t>(kInt8Rows * Row::CodeBytes(cols));
  float* const floats =
      ThreadScratch<PanelFloats>(kInt8Rows * Row::Floats(cols));
  Row rows[kInt8Rows];
  for (size_t r = 0; r < kInt8Rows; ++r) {
    rows[r].codes = codes + r * Row::CodeBytes(cols);
    rows[r].floats = floats + r * Row::Floats(cols);
    rows[r].Fill(Codes(weight, group.row(r), r), cols);
  }
  for (size_t t = 0; t < tokens.tokens; ++t) {
    float sums[kInt8Rows];
    Int8DotRows(rows, Int8RowAt(tokens.x8[t], cols), cols, 0, sums);
    group.StoreSums(sums, tokens.y[t]);
  }
}

template <class Codes>
void Int8OneToken(const Matrix& weight, const Int8Group& group, uint8_t* x,
                  float* y) {
  Codes rows[kInt8Rows] = {
      Codes(weight, group.row(0), 0), Codes(weight, group.row(1), 1),
      Codes(weight, group.row(2), 2), Codes(weight, group.row(3), 3)};
  float sums[kInt8Rows];
  Int8DotRows(rows, Int8RowAt(x, weight.cols), weight.cols,
              kInt8Rows * weight.row_bytes(), sums);
  group.StoreSums(sums, y);
}

template <class Codes>
HWY_INLINE void Int8RowRange(const Matrix& weight, const TokenRows& tokens,
                             size_t begin, size_t end) {
  const size_t block = Int8TokenBlock(weight.cols);
  const auto rows_of = [&](size_t first, size_t count) {
    return TokenRows{
        .y = tokens.y + first, .tokens = count, .x8 = tokens.x8 + first};
  };
  for (size_t t = 0; t < tokens.tokens; t += block) {
    const size_t count = std::min(block, tokens.tokens - t);
    for (size_t row = begin; row < end; row += kInt8Rows) {
      const Int8Group group(row, end);
      if (count == 1) {
        Int8OneToken<Codes>(weight, group, tokens.x8[t], tokens.y[t]);
      } else {
        Int8Panel<Codes>(weight, group, rows_of(t, count));
      }
    }
  }
}

#else

struct NoCodes {};

// Weights to fp32, times the codes, block by block.
template <class Codes>
HWY_INLINE void Int8RowRange(const Matrix& weight, const TokenRows& tokens,
                             size_t begin, size_t end) {
  struct PlainRow;
  float* const w = ThreadScratch<PlainRow>(weight.cols);
  for (size_t row = begin; row < end; ++row) {
    DequantizeRow(weight, row, w);
    for (size_t t = 0; t < tokens.tokens; ++t) {
      const Int8Row x = Int8RowAt(tokens.x8[t], weight.cols);
      float sum = 0;
      for (size_t c = 0; c < weight.cols; c += kInt8Block) {
        float dot = 0;
        for (size_t i = c; i < c + kInt8Block; ++i) dot += w[i] * x.codes[i];
        sum += dot * x.scales[c / kInt8Block];
      }
      tokens.y[t][row] = sum;
    }
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
