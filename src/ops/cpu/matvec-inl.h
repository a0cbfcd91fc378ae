// One token: y = W x, rows of W going from codes to products in registers;
// compiled once per Highway target.
//
// Bound by reading W, 8-bit and wider, or by decoding it, 4 bits and fewer.
// Four rows at a time: their sums hide each other's latency, and an x that is
// loaded serves four. Every sum takes its products in DotBlock's order
// (dot-inl.h), in the lane order of the format (weight_decoder-inl.h).
#if defined(ECPHORY_OPS_CPU_MATVEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_MATVEC_INL_H_
#undef ECPHORY_OPS_CPU_MATVEC_INL_H_
#else
#define ECPHORY_OPS_CPU_MATVEC_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "hwy/cache_control.h"
#include "ops/cpu/on_intel.h"
#include "ops/cpu/super_block_decoder-inl.h"
#include "ops/cpu/weight_decoder-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

// The sum of a row's products, a vector of DF lanes; D is DF or half of it.
template <class D>
class RowSum {
 public:
  using V = hn::Vec<D>;
  HWY_INLINE RowSum() : first_(hn::Zero(D())), second_(first_) {}
  HWY_INLINE void Add(size_t i, V w, V x) {
    if (kWhole || i % kLanes == 0) {
      first_ = hn::MulAdd(w, x, first_);
    } else {
      second_ = hn::MulAdd(w, x, second_);
    }
  }
  HWY_INLINE VF Get() const {
#if HWY_TARGET != HWY_SCALAR
    if constexpr (!kWhole) return hn::Combine(kF, second_, first_);
#endif
    if constexpr (kWhole) return first_;
  }

 private:
  static constexpr bool kWhole = hn::MaxLanes(D()) == kLanes;
  V first_;
  V second_;
};

// A sink that multiplies with x and adds the products up.
template <class D>
struct ProductSink {
  HWY_INLINE ProductSink At(size_t i) const { return {x + i, sum}; }
  HWY_INLINE void operator()(size_t i, hn::Vec<D> w) const {
    sum.Add(i, w, hn::LoadU(D(), x + i));
  }
  const float* HWY_RESTRICT x;
  RowSum<D>& sum;
};

// Asks for the bytes that four rows `step` apart, and then the rows behind
// them, come to a little later. The processor looks ahead in each of the four
// runs as well, but not far enough where decoding takes most of the time. Fast
// formats ask earlier, and into the second-level cache: what is asked for in
// the first one waits for one of its few misses. On Intel's processors all of 8
// bits and more ask early (Xeon, 16 threads: 3 to 9 % faster; 4 bits slower).
template <class Decoder>
class RowPrefetch {
 public:
  RowPrefetch(const Matrix& weight, size_t row, size_t step)
      : stride_(step * weight.row_bytes()),
        next_(RowData(weight, row) +
              (kFast || (kWide && kOnIntel) ? kEarly : kLate)) {
    if constexpr (kScaleColumns != 0) {
      const size_t row_scales = weight.cols / kScaleColumns;
      PrefetchScales(weight.scales + (weight.first_row + row + 1) * row_scales,
                     step * row_scales, row_scales);
    }
  }
  HWY_INLINE void Step(size_t block) {
    if (block % kBlocksPerLine != 0) return;
#pragma GCC unroll 4
    for (size_t r = 0; r < kRowsAtOnce; ++r) {
#pragma GCC unroll 4
      for (size_t i = 0; i < Decoder::kBlockBytes; i += kLine) {
        Ask(next_ + r * stride_ + i);
      }
    }
    next_ += kBlocksPerLine * Decoder::kBlockBytes;
  }

 private:
  static constexpr size_t kScaleColumns = [] {
    if constexpr (requires { Decoder::kScaleColumns; }) {
      return Decoder::kScaleColumns;
    } else {
      return size_t{0};
    }
  }();
  // Of the rows behind these four.
  static HWY_INLINE void PrefetchScales(const uint8_t* scales, size_t stride,
                                        size_t row_scales) {
    for (size_t r = 0; r < kRowsAtOnce; ++r) {
      for (size_t i = 0; i < row_scales; i += kLine) {
        Ask(scales + r * stride + i);
      }
    }
  }
  static HWY_INLINE void Ask(const uint8_t* p) {
#if HWY_ARCH_X86
    constexpr auto kHint = kFast ? _MM_HINT_T1 : _MM_HINT_T0;
    _mm_prefetch(reinterpret_cast<const char*>(p), kHint);
#else
    hwy::Prefetch(p);
#endif
  }
  static constexpr size_t kLine = 64;
  static constexpr bool kFast =
      Decoder::kBlockBytes == sizeof(float) * Decoder::kBlock;
  static constexpr bool kWide = Decoder::kBlockBytes >= Decoder::kBlock;
  static constexpr size_t kEarly = 2048, kLate = 512;
  static constexpr size_t kBlocksPerLine =
      std::max<size_t>(1, kLine / Decoder::kBlockBytes);
  size_t stride_;
  const uint8_t* next_;
};

template <class D>
struct FourSums {
  HWY_INLINE FourSums() {}
  HWY_INLINE void Store(float* sums) const {
    StoreSums4(sum0.Get(), sum1.Get(), sum2.Get(), sum3.Get(), sums);
  }
  RowSum<D> sum0, sum1, sum2, sum3;
};

// An open block of four rows, step by step.
template <size_t kStep = 0, class Decoder, class D>
HWY_INLINE void AddSteps(Decoder& rows, size_t block,
                         const float* HWY_RESTRICT x, FourSums<D>& sums) {
  if constexpr (kStep < Decoder::kSteps) {
    rows.template Step<kStep, 0>(block, ProductSink<D>{x, sums.sum0});
    rows.template Step<kStep, 1>(block, ProductSink<D>{x, sums.sum1});
    rows.template Step<kStep, 2>(block, ProductSink<D>{x, sums.sum2});
    rows.template Step<kStep, 3>(block, ProductSink<D>{x, sums.sum3});
    AddSteps<kStep + 1>(rows, block, x + Decoder::kBlock / Decoder::kSteps,
                        sums);
  }
}

// Both return false when a row was not decoded exactly: then `sums` are not to
// be used.
template <class Decoder>
HWY_INLINE bool DotFourRows(const Matrix& weight, size_t row, size_t step,
                            const float* HWY_RESTRICT x, float* sums) {
  Decoder rows(weight, row, step);
  RowPrefetch<Decoder> prefetch(weight, row, step);
  FourSums<typename Decoder::Lanes> four;
  const size_t blocks = weight.cols / Decoder::kBlock;
  for (size_t b = 0; b < blocks; ++b, x += Decoder::kBlock) {
    prefetch.Step(b);
    rows.template Open<0>(b);
    rows.template Open<1>(b);
    rows.template Open<2>(b);
    rows.template Open<3>(b);
    AddSteps(rows, b, x, four);
  }
  four.Store(sums);
  return rows.exact();
}

template <class Decoder>
HWY_INLINE bool DotOneRow(const Matrix& weight, size_t row,
                          const float* HWY_RESTRICT x, float* sums) {
  using D = typename Decoder::Lanes;
  Decoder rows(weight, row);
  RowSum<D> sum;
  const size_t blocks = weight.cols / Decoder::kBlock;
  for (size_t b = 0; b < blocks; ++b, x += Decoder::kBlock) {
    DecodeBlock(rows, b, ProductSink<D>{x, sum});
  }
  StoreSums4(sum.Get(), sum.Get(), sum.Get(), sum.Get(), sums);
  return rows.exact();
}

// y[row] = weight[row] . x, x in the decoder's lane order, for rows that are
// whole blocks. Four rows at a time, a quarter of all rows apart, or `apart`
// where it is not 0 (TokenRows): the processor sees four long runs of bytes and
// reads ahead in each, where neighbouring rows would be four short ones that
// begin anew all the time. The bits are the same. Rows that are left over come
// one by one; inexact(row, count) is called for rows that are left to the plain
// codec.
template <class Decoder, class Inexact>
HWY_INLINE void MatvecRows(const Matrix& weight, const float* HWY_RESTRICT x,
                           float* HWY_RESTRICT y, size_t begin, size_t end,
                           size_t apart, const Inexact& inexact) {
  const FourRuns runs(begin, end, apart);
  float sums[kRowsAtOnce];
  for (size_t row = begin; row < runs.end; ++row) {
    const bool exact = DotFourRows<Decoder>(weight, row, runs.apart, x, sums);
    for (size_t r = 0; r < kRowsAtOnce; ++r) {
      y[row + r * runs.apart] = sums[r];
      if (!exact) inexact(row + r * runs.apart, size_t{1});
    }
  }
  for (size_t row = runs.rest; row < end; ++row) {
    const bool exact = DotOneRow<Decoder>(weight, row, x, sums);
    y[row] = sums[0];
    if (!exact) inexact(row, size_t{1});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
