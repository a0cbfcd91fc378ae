// Rows of codes and scales that were unpacked once for many inputs; compiled
// once per Highway target, of x86 with vectors.
#if defined(ECPHORY_OPS_CPU_INT8_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_INT8_PANEL_INL_H_
#undef ECPHORY_OPS_CPU_INT8_PANEL_INL_H_
#else
#define ECPHORY_OPS_CPU_INT8_PANEL_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "base/ceil_div.h"
#include "ops/cpu/int8_dot-inl.h"
#include "ops/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

// Up to 4 rows of W, `step` apart; missing ones repeat the last, so that
// kernels need no case for them.
struct Int8Group {
  Int8Group(size_t begin, size_t end)
      : first(begin), count(std::min(kInt8Rows, end - begin)) {}
  static Int8Group Apart(size_t first, size_t step) {
    Int8Group group(first, first + kInt8Rows);
    group.step = step;
    return group;
  }
  size_t row(size_t r) const { return first + std::min(r, count - 1) * step; }
  void StoreSums(const float* sums, float* y) const {
    for (size_t r = 0; r < count; ++r) y[first + r * step] = sums[r];
  }
  size_t first;
  size_t count;
  size_t step = 1;
};

// AskAhead() where two rows are read at a time, and then two others: half as
// many lines as of four are under way otherwise.
constexpr size_t kAheadOfTwo = 1024;

// The rows of a matrix, for kernels that begin one every few hundred cycles.
struct PackedRows {
  explicit PackedRows(const Matrix& weight)
      : stride(weight.row_bytes()),
        first(weight.data + weight.first_row * stride) {}
  HWY_INLINE const uint8_t* row(size_t r) const { return first + r * stride; }
  size_t stride;
  const uint8_t* first;
};

// body(group) for rows [begin, end) of one token, four at a time, a quarter of
// all apart, or `apart` where it is not 0 (TokenRows): the processor sees four
// long runs of bytes and reads ahead in each. Neighbouring rows would be four
// short runs that begin anew all the time: 12 to 20 GB/s where these give 30
// (Zen 4, one core, rows of 1.6 to 5 KB, loads alone).
template <class Body>
HWY_INLINE void ForFourRows(size_t begin, size_t end, size_t apart,
                            const Body& body) {
  const FourRuns runs(begin, end, apart);
  const size_t groups = runs.end - begin + (runs.rest < end ? 1 : 0);
  for (size_t i = 0; i < groups; ++i) {
    body(begin + i < runs.end ? Int8Group::Apart(begin + i, runs.apart)
                              : Int8Group(runs.rest, end));
  }
}

// One row of a panel: codes and scales that a class of codes left there, to be
// read as that class would be.
template <class Codes>
struct PanelRow : Codes::Shape {
  using Shape = typename Codes::Shape;
  static constexpr size_t kAskedBytes = 0;  // lies in a cache

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

// Four of them, in this thread's scratch.
template <class Codes>
struct Int8PanelRows {
  using Row = PanelRow<Codes>;
  explicit Int8PanelRows(size_t row_cols) : cols(row_cols) {
    struct PanelBytes;
    struct PanelFloats;
    uint8_t* const codes =
        ThreadScratch<PanelBytes, uint8_t>(kInt8Rows * Row::CodeBytes(cols));
    float* const floats =
        ThreadScratch<PanelFloats>(kInt8Rows * Row::Floats(cols));
    for (size_t r = 0; r < kInt8Rows; ++r) {
      rows[r].codes = codes + r * Row::CodeBytes(cols);
      rows[r].floats = floats + r * Row::Floats(cols);
    }
  }
  void Fill(const Matrix& weight, const Int8Group& group) {
    for (size_t r = 0; r < kInt8Rows; ++r) {
      rows[r].Fill(Codes(weight, group.row(r)), cols);
    }
  }
  size_t cols;
  Row rows[kInt8Rows];
};

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
