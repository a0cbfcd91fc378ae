// One token times kFp8Tile32: y = W x; compiled once per Highway target.
//
// A scale belongs to 32 rows and is a power of two, so it goes into x once for
// all of them: code * (scale * x) has the bits of (code * scale) * x unless a
// value leaves fp32's normal range. Where one might (CanScale), and where a
// code is a NaN that is not decoded, rows are left to the plain codec.
#if defined(ECPHORY_OPS_CPU_MATVEC_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_MATVEC_TILES_INL_H_
#undef ECPHORY_OPS_CPU_MATVEC_TILES_INL_H_
#else
#define ECPHORY_OPS_CPU_MATVEC_TILES_INL_H_
#endif

#include <algorithm>

#include "ops/cpu/e4m3_rows-inl.h"
#include "ops/cpu/matvec-inl.h"
#include "ops/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

constexpr size_t kTile = 32;  // rows and columns

template <class Decoder>
constexpr bool kTileScales = false;
template <>
constexpr bool kTileScales<WeightDecoder<WeightFormat::kFp8Tile32>> = true;

// The exponents of an input as fp32 has them: 0 of denormals, 255 of infinities
// and NaNs. Zeros do not count.
struct ExponentRange {
  uint32_t smallest;
  uint32_t largest;
};
HWY_INLINE ExponentRange ExponentsOf(const float* HWY_RESTRICT x, size_t n) {
  const hn::RebindToUnsigned<DF> du;
  const auto one = hn::Set(du, 1u);
  auto largest = hn::Zero(du);
  auto smallest = hn::Set(du, ~0u);  // minus one, which leaves out zeros
  for (size_t i = 0; i < n; i += kLanes) {
    const auto bits = hn::BitCast(du, hn::Abs(Load(x + i)));
    largest = hn::Max(largest, bits);
    smallest = hn::Min(smallest, hn::Sub(bits, one));
  }
  uint32_t lanes[2][kLanes];
  hn::StoreU(smallest, du, lanes[0]);
  hn::StoreU(largest, du, lanes[1]);
  return {*std::min_element(lanes[0], lanes[0] + kLanes) >> 23,
          *std::max_element(lanes[1], lanes[1] + kLanes) >> 23};
}

// As what the codes of a tile meet an input that is multiplied with the tile's
// scales and the unit: kNone, E4M3Rows or FastE4M3Rows.
enum class TileWay { kNone, kUsual, kFast };

// The best way in which no value of such an input, times any of the scales and
// in the way's unit, and no code times any of them leaves the normal range.
HWY_INLINE TileWay WayOf(const ExponentRange& x, const uint8_t* scales,
                         size_t count) {
  const auto range = std::minmax_element(scales, scales + count);
  const uint32_t low = *range.first, high = *range.second;
  if (x.smallest < 1 || x.smallest + low < 128 || x.largest > 254 || low < 10 ||
      high > 245) {
    return TileWay::kNone;
  }
  const auto fits = [&](uint32_t unit) {
    return high + unit <= 254 && x.largest + high + unit <= 127 + 254;
  };
  if (FastE4M3RowsWork() && fits(FastE4M3Rows::kUnitExponent)) {
    return TileWay::kFast;
  }
  return fits(E4M3Rows::kUnitExponent) ? TileWay::kUsual : TileWay::kNone;
}

// out = x times the scales of its blocks of 32, in units of `unit`.
HWY_INLINE void ScaleInput(const float* HWY_RESTRICT x,
                           const uint8_t* HWY_RESTRICT scales, float unit,
                           size_t cols, float* HWY_RESTRICT out) {
  const float* const e8m0 = GetCodeTables().e8m0.data();
  for (size_t c = 0; c < cols; c += kTile) {
    const VF scale = hn::Set(kF, e8m0[scales[c / kTile]] * unit);
#pragma GCC unroll 8
    for (size_t i = c; i < c + kTile; i += kLanes) {
      Store(hn::Mul(Load(x + i), scale), out + i);
    }
  }
}

HWY_INLINE void PrefetchToL2(const uint8_t* p) {
#if HWY_ARCH_X86
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
#else
  hwy::Prefetch(p);
#endif
}

// Asks for the bytes that four runs of rows, which are a tile, come to in
// kAhead bytes, and past their ends for those of the next tile. Into the
// second-level cache: what is asked for in the first one waits for one of its
// few misses.
template <size_t kBlockBytes>
class TilePrefetch {
 public:
  // Row `row` of a run that ends with row `run_end`, `step` rows.
  TilePrefetch(const Matrix& weight, size_t row, size_t run_end, size_t step)
      : stride_(step * weight.row_bytes()),
        next_(RowData(weight, row) + kAhead),
        end_(RowData(weight, run_end)) {}
  HWY_INLINE void Step(size_t block) {
    if (block % kBlocksPerLine != 0) return;
    if (next_ >= end_) {
      next_ += (kRowsAtOnce - 1) * stride_;
      end_ += kRowsAtOnce * stride_;
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < kRowsAtOnce; ++r) {
#pragma GCC unroll 4
      for (size_t i = 0; i < kBlockBytes; i += kLine) {
        PrefetchToL2(next_ + r * stride_ + i);
      }
    }
    next_ += kBlocksPerLine * kBlockBytes;
  }

 private:
  static constexpr size_t kLine = 64;
  static constexpr size_t kAhead = 2048;
  static constexpr size_t kBlocksPerLine =
      std::max<size_t>(1, kLine / kBlockBytes);
  size_t stride_;
  const uint8_t* next_;
  const uint8_t* end_;
};

// sums[r] = row (row + r * step) . x, of kRows rows of a tile.
template <class Codes, size_t kRows>
HWY_INLINE bool DotTileRows(const Matrix& weight, size_t row, size_t run_end,
                            size_t step, const float* HWY_RESTRICT x,
                            float* sums) {
  const RowBytes rows(weight, row, step);
  const Codes codes;
  E4M3Check check;
  TilePrefetch<Codes::kBlockBytes> prefetch(weight, row, run_end, step);
  RowSum<DF> sum0, sum1, sum2, sum3;
  size_t c = 0;
  const auto block = [&](auto values) HWY_ATTR {
    const auto one = [&](const uint8_t* p, RowSum<DF>& sum) HWY_ATTR {
      check.template Look<values()>(p);
      codes.template Decode<values()>(p, ProductSink<DF>{x + c, sum});
    };
    one(rows.At<0>(c), sum0);
    if constexpr (kRows == 1) return;
    one(rows.At<1>(c), sum1);
    one(rows.At<2>(c), sum2);
    one(rows.At<3>(c), sum3);
  };
  constexpr size_t kBlock = Codes::kBlock;
  for (; c + kBlock <= weight.cols; c += kBlock) {
    if constexpr (kRows > 1) prefetch.Step(c / kBlock);
    block(std::integral_constant<size_t, kBlock>());
  }
  if (c < weight.cols) block(std::integral_constant<size_t, kTile>());
  if constexpr (kRows == 1) {
    StoreSums4(sum0.Get(), sum0.Get(), sum0.Get(), sum0.Get(), sums);
  } else {
    StoreSums4(sum0.Get(), sum1.Get(), sum2.Get(), sum3.Get(), sums);
  }
  return check.exact();
}

// What a thread keeps of an input from one range of rows to the next.
struct ScaledInput {
  uint64_t input_id = 0;  // TokenRows::input_id; 0: nothing is kept
  ExponentRange exponents;
  const uint8_t* scales = nullptr;  // of the tile that x was multiplied with
  TileWay way = TileWay::kNone;
};

// MatvecRows() of kFp8Tile32; `input_id` as in TokenRows.
template <class Inexact>
HWY_INLINE void MatvecTiles(const Matrix& weight, const float* HWY_RESTRICT x,
                            uint64_t input_id, float* HWY_RESTRICT y,
                            size_t begin, size_t end, const Inexact& inexact) {
  struct Scaled;
  const size_t cols = weight.cols;
  float* const scaled = ThreadScratch<Scaled>(cols);
  thread_local ScaledInput kept;
  if (input_id == 0 || input_id != kept.input_id) {
    kept = {.input_id = input_id, .exponents = ExponentsOf(x, cols)};
  }
  for (size_t row = begin; row < end;) {
    const size_t stored = weight.first_row + row;
    const size_t tile_end = std::min(end, row + kTile - stored % kTile);
    const uint8_t* const scales =
        weight.scales + stored / kTile * (cols / kTile);
    if (scales != kept.scales) {
      kept.scales = scales;
      kept.way = WayOf(kept.exponents, scales, cols / kTile);
      if (kept.way != TileWay::kNone) {
        ScaleInput(
            x, scales,
            kept.way == TileWay::kFast ? FastE4M3Rows::kUnit : E4M3Rows::kUnit,
            cols, scaled);
      }
    }
    const TileWay way = kept.way;
    const auto dot = [&](auto rows, size_t first, size_t run_end,
                         size_t step) HWY_ATTR {
      float sums[kRowsAtOnce];
      bool exact = false;
      switch (way) {
        case TileWay::kNone: break;
        case TileWay::kUsual:
          exact = DotTileRows<E4M3Rows, rows()>(weight, first, run_end, step,
                                                scaled, sums);
          break;
        case TileWay::kFast:
          exact = DotTileRows<FastE4M3Rows, rows()>(weight, first, run_end,
                                                    step, scaled, sums);
          break;
      }
      for (size_t r = 0; r < rows(); ++r) {
        const size_t at = first + r * step;
        exact ? void(y[at] = sums[r]) : inexact(at, size_t{1});
      }
    };
    const size_t quarter = (tile_end - row) / kRowsAtOnce;
    for (size_t r = row; r < row + quarter; ++r) {
      dot(std::integral_constant<size_t, kRowsAtOnce>(), r, row + quarter,
          quarter);
    }
    for (row += kRowsAtOnce * quarter; row < tile_end; ++row) {
      dot(std::integral_constant<size_t, 1>(), row, row + 1, 1);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
