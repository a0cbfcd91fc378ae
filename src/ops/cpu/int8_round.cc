// Inputs to int8, in the order of the kernels of the same target: so this file
// is compiled for the same targets as they are.
#define HWY_WANT_AVX3_DL 1
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/int8_round.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <bit>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "ops/cpu/int8_rows.h"
#include "ops/cpu/int8_targets-inl.h"
#include "ops/cpu/vector-inl.h"
#if ECPHORY_INT8_VECTORS
#include "ops/cpu/int8_dot-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

constexpr size_t kBytes = 4 * kLanes;  // of a vector of codes

// Where kernels want the codes of a block of 32, as pieces of 16 or 4: a vector
// of weights comes out of one operation, and its lanes should belong to few
// parts. In order, unless said otherwise.
struct Order {
  size_t span = kInt8Block;  // values that are put in order together
  size_t vectors = 1;        // of codes that a lane takes in a step
  size_t piece = 16;         // values
  bool pairs = false;        // pieces are even and odd values, not halves
  bool eighths = false;      // pieces are every eighth value
  bool sums = false;         // kernels need Int8Row::sums
  bool halves = false;       // kernels need half_scales and half_sums
  float unit = 1;            // of the weights' codes: goes into Int8Row::scales
  size_t block_stride = 0;   // between pieces of neighbouring blocks ...
  size_t blocks = 1;         // ... of so many, after which comes ...
  size_t next_stride = 0;    // ... the next such row of blocks
  size_t piece_stride = 16;  // between the pieces of a block
  // The place in a row of a piece of the block that begins with value c.
  constexpr size_t Place(size_t c, size_t number) const {
    const size_t block = c % span / kInt8Block;
    return c - c % span + block % blocks * block_stride +
           block / blocks * next_stride + number * piece_stride;
  }
};

constexpr Order OrderOf(WeightFormat format) {
  Order order;
  order.sums = format == WeightFormat::kQ4_K;
  order.halves = format == WeightFormat::kQ2_K;
#if ECPHORY_INT8_VECTORS
  constexpr bool kWide = kBytes == 64;
  switch (format) {
#if HWY_TARGET == HWY_AVX3_DL
    case WeightFormat::kIQ2_XXS:  // a vector of each eighth value
      order.span = 512;
      order.vectors = 8;
      order.piece = 4;
      order.eighths = true;
      order.next_stride = 4;
      order.piece_stride = kBytes;
      break;
#else
    case WeightFormat::kIQ2_XXS:
#endif
    case WeightFormat::kFp4Row32:
    case WeightFormat::kMXFP4:  // a vector of first pieces, one of second
                                // ones
      order.span = 2 * kBytes;
      order.vectors = 2;
      order.pairs = format == WeightFormat::kFp4Row32;
      if (format != WeightFormat::kIQ2_XXS) order.unit = 0.5f;
      order.next_stride = 16;
      order.piece_stride = kBytes;
      break;
    case WeightFormat::kQ4_K:  // first halves of even blocks, second ones, and
                               // the same of odd blocks
      if (!kWide) break;
      order.span = 256;
      order.blocks = 2;
      order.block_stride = 128;
      order.next_stride = 16;
      order.piece_stride = 64;
      break;
    case WeightFormat::kQ2_K:  // of 64 bytes the lowest pairs of bits, the next
      if (!kWide) break;
      order.span = 256;
      order.blocks = 4;
      order.block_stride = 64;
      order.next_stride = 32;
      break;
    default: break;
  }
#endif
  return order;
}

// What is known of some blocks of 32 once they are rounded.
constexpr size_t kBlocks = 4;
struct RoundedBlocks {
  float scales[kBlocks];
  int32_t halves[2][kBlocks];  // sums of first and of second pieces, or where
                               // halves are not needed of both, and zeros
};

#if HWY_TARGET == HWY_SCALAR
template <WeightFormat kFormat>
RoundedBlocks RoundBlocks(const float* x, size_t c, size_t count, int8_t* row) {
  constexpr Order kOrder = OrderOf(kFormat);
  RoundedBlocks blocks = {};
  for (size_t b = 0; b < count; ++b) {
    int8_t codes[kInt8Block];
    blocks.scales[b] = RoundToInt8(x + c + b * kInt8Block, codes);
    for (size_t i = 0; i < kInt8Block; ++i) {
      const int8_t code = kOrder.pairs ? codes[i % 16 * 2 + i / 16] : codes[i];
      blocks.halves[i / 16][b] += code;
      row[kOrder.Place(c + b * kInt8Block, i / 16) + i % 16] = code;
    }
  }
  return blocks;
}
#else
using D32 = hn::RebindToSigned<DF>;
using V32 = hn::Vec<D32>;
constexpr D32 k32;
constexpr size_t kVectors = kInt8Block / kLanes;  // of a block

// hn::NearestInt and hn::DemoteTo of values of int8's range, which need no care
// of others.
HWY_INLINE V32 NearestOf(VF v) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  return V32{_mm512_cvtps_epi32(v.raw)};
#elif HWY_TARGET == HWY_AVX2
  return V32{_mm256_cvtps_epi32(v.raw)};
#else
  return hn::NearestInt(v);
#endif
}
HWY_INLINE void StoreBytes(V32 integers, int8_t* to) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm512_cvtsepi32_epi8(integers.raw));
#else
  const hn::Rebind<int8_t, DF> d8;
  hn::StoreU(hn::DemoteTo(d8, integers), d8, to);
#endif
}

// A block's values; of kPairs the even ones, then the odd ones.
template <bool kPairs>
HWY_INLINE void LoadBlock(const float* HWY_RESTRICT x, VF (&values)[kVectors]) {
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; v += kPairs ? 2 : 1) {
    if constexpr (kPairs) {
      hn::LoadInterleaved2(kF, x + v * kLanes, values[v / 2],
                           values[kVectors / 2 + v / 2]);
    } else {
      values[v] = Load(x + v * kLanes);
    }
  }
}

// Four vectors to one of four lanes, what `op` makes of the lanes of each.
template <class D, class Op>
HWY_INLINE hn::Vec<hn::Full128<int32_t>> FoldBlocks(D, hn::Vec<D> v,
                                                    const Op& op) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return FoldBlocks(half, op(hn::LowerHalf(half, v), hn::UpperHalf(half, v)),
                      op);
  }
}
template <class Op>
HWY_INLINE hn::Vec<hn::Full128<int32_t>> Fold4(const V32 (&v)[kBlocks],
                                               const Op& op) {
  const hn::Repartition<int64_t, D32> d64;
  const auto pair = [&](V32 a, V32 b) HWY_ATTR {
    return hn::BitCast(d64, op(hn::InterleaveLower(k32, a, b),
                               hn::InterleaveUpper(k32, a, b)));
  };
  const auto ab = pair(v[0], v[1]);
  const auto cd = pair(v[2], v[3]);
  return FoldBlocks(k32,
                    op(hn::BitCast(k32, hn::InterleaveLower(d64, ab, cd)),
                       hn::BitCast(k32, hn::InterleaveUpper(d64, ab, cd))),
                    op);
}

#if HWY_TARGET == HWY_AVX3_DL
// Codes of a block as eight times every eighth of them.
HWY_INLINE void ToEighths(int8_t* codes) {
  alignas(32) static constexpr uint8_t kFrom[kInt8Block] = {
      0, 8,  16, 24, 1, 9,  17, 25, 2, 10, 18, 26, 3, 11, 19, 27,
      4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31};
  __m256i* const block = reinterpret_cast<__m256i*>(codes);
  const __m256i from =
      _mm256_load_si256(reinterpret_cast<const __m256i*>(kFrom));
  _mm256_store_si256(block,
                     _mm256_permutexvar_epi8(from, _mm256_load_si256(block)));
}

// The last block of a row, where it has none to go with in the lanes of a
// vector, for both halves of the lanes: kernels have such blocks of two rows
// there. Scales behind it stay 0, so that others may take the vector as it is.
HWY_INLINE void RepeatLastBlock(const Int8Row& row, size_t cols) {
  const size_t span = OrderOf(WeightFormat::kIQ2_XXS).span;
  if (cols % span == 0) return;
  int8_t* const codes = row.codes + cols / span * span;
  for (size_t v = 0; v < span; v += kBytes) {
    std::memcpy(codes + v + kBytes / 2, codes + v, kBytes / 2);
  }
}
#endif

// 127 / largest magnitude and the scale of each block, of the largest
// magnitudes' bits; 0 for 127 / largest where all codes are 0.
HWY_INLINE void ScalesOf(hn::Vec<hn::Full128<int32_t>> largest,
                         float (&inverses)[kBlocks], float (&scales)[kBlocks]) {
  const hn::Full128<float> d;
  const auto amax = hn::BitCast(d, largest);
  const auto smallest = hn::Set(d, kInt8MinMagnitude);
  const auto usable =
      hn::And(hn::Ge(amax, smallest),
              hn::Le(amax, hn::Set(d, std::numeric_limits<float>::max())));
  const auto all = hn::Set(d, 127.0f);
  const auto nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  hn::StoreU(hn::IfThenElseZero(usable, hn::Div(all, amax)), d, inverses);
  hn::StoreU(hn::IfThenElse(usable, hn::Div(amax, all),
                            hn::IfThenZeroElse(hn::Lt(amax, smallest), nan)),
             d, scales);
}

// RoundToInt8() in lanes, of up to four blocks together: what must be added up
// or compared within a block, four times as fast. Codes go to their places in
// `row`.
template <WeightFormat kFormat>
HWY_INLINE RoundedBlocks RoundBlocks(const float* HWY_RESTRICT x, size_t c,
                                     size_t count, int8_t* HWY_RESTRICT row) {
  constexpr Order kOrder = OrderOf(kFormat);
  const hn::Full128<int32_t> d4;
  // The bits of magnitudes compare as these do: infinity and NaN are larger
  // than all others.
  V32 largest[kBlocks];
#pragma GCC unroll 4
  for (size_t b = 0; b < kBlocks; ++b) {
    largest[b] = hn::Zero(k32);
    if (b >= count) continue;
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
      const VF value = Load(x + c + b * kInt8Block + v * kLanes);
      largest[b] = hn::Max(largest[b], hn::BitCast(k32, hn::Abs(value)));
    }
  }
  RoundedBlocks blocks;
  float inverses[kBlocks];
  ScalesOf(
      Fold4(largest, [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); }),
      inverses, blocks.scales);
  V32 halves[2][kBlocks];
#pragma GCC unroll 4
  for (size_t b = 0; b < kBlocks; ++b) {
    halves[0][b] = halves[1][b] = hn::Zero(k32);
    if (b >= count) continue;
    VF values[kVectors];
    LoadBlock<kOrder.pairs>(x + c + b * kInt8Block, values);
    alignas(32) int8_t codes[kInt8Block];
    // 0 in place of NaN, which an infinity times 0 is.
    const bool zeros = inverses[b] == 0;
    const VF inverse = hn::Set(kF, inverses[b]);
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
      const VF clean = zeros ? hn::Zero(kF) : hn::Mul(values[v], inverse);
      const V32 integers = NearestOf(clean);
      V32& half = halves[kOrder.halves ? v / (kVectors / 2) : 0][b];
      half = hn::Add(half, integers);
      const size_t i = v * kLanes;
      int8_t* const to =
          kOrder.piece == 16
              ? row + kOrder.Place(c + b * kInt8Block, i / 16) + i % 16
              : codes + i;
      StoreBytes(integers, to);
    }
#if HWY_TARGET == HWY_AVX3_DL
    if constexpr (kOrder.eighths) ToEighths(codes);
#endif
    if constexpr (kOrder.piece != 16) {
#pragma GCC unroll 8
      for (size_t i = 0; i < kInt8Block; i += kOrder.piece) {
        std::memcpy(row + kOrder.Place(c + b * kInt8Block, i / kOrder.piece),
                    codes + i, kOrder.piece);
      }
    }
  }
  const auto sum = [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); };
  hn::StoreU(Fold4(halves[0], sum), d4, blocks.halves[0]);
  hn::StoreU(kOrder.halves ? Fold4(halves[1], sum) : hn::Zero(d4), d4,
             blocks.halves[1]);
  return blocks;
}
#endif

HWY_INLINE void StoreLaneSums(const Int8Row& row, size_t cols, size_t vectors) {
  const size_t step = vectors * kBytes;
  for (size_t c = 0; c < cols; c += step) {
    const int8_t* const codes = row.codes + c;
    int32_t* const sums = row.lane_sums + c / vectors / 4;
#if ECPHORY_INT8_VECTORS
    VI32 sum = hn::Zero(kI32);
    for (size_t v = 0; v < step; v += kBytes) {
      const VU8 bytes =
          hn::LoadU(kU8, reinterpret_cast<const uint8_t*>(codes + v));
      sum = AddQuads(sum, hn::Set(kU8, uint8_t{1}), bytes);
    }
    hn::StoreU(hn::Neg(sum), kI32, sums);
#else
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] = 0;
    for (size_t i = 0; i < step; ++i) sums[i % kBytes / 4] -= codes[i];
#endif
  }
}

// All but lane sums, of the blocks from value c on.
template <WeightFormat kFormat>
HWY_INLINE void RoundAndStore(const float* x, size_t c, size_t count,
                              const Int8Row& row) {
  constexpr Order kOrder = OrderOf(kFormat);
  const RoundedBlocks blocks = RoundBlocks<kFormat>(x, c, count, row.codes);
  for (size_t b = 0; b < count; ++b) {
    const size_t block = c / kInt8Block + b;
    const int32_t sum = blocks.halves[0][b] + blocks.halves[1][b];
    const float scale = blocks.scales[b];
    row.scales[block] = kOrder.unit * scale;
    row.block_sums[block] = sum;
    if constexpr (kOrder.sums) {
      row.sums[block] = scale * static_cast<float>(sum);
    }
    if constexpr (kOrder.halves) {
      for (size_t h = 0; h < 2; ++h) {
        row.half_scales[2 * block + h] = scale;
        row.half_sums[2 * block + h] =
            scale * static_cast<float>(blocks.halves[h][b]);
      }
    }
  }
}

template <WeightFormat kFormat>
HWY_INLINE void RoundRowOf(const float* x, size_t cols, const Int8Row& row) {
  constexpr Order kOrder = OrderOf(kFormat);
  constexpr size_t kValues = kBlocks * kInt8Block;
  size_t c = 0;
  for (; c + kValues <= cols; c += kValues) {
    RoundAndStore<kFormat>(x, c, kBlocks, row);
  }
  if (c < cols) {
    RoundAndStore<kFormat>(x, c, (cols - c) / kInt8Block, row);
  }
#if HWY_TARGET == HWY_AVX3_DL
  if constexpr (kOrder.eighths) RepeatLastBlock(row, cols);
#endif
  if constexpr (!kOrder.sums && !kOrder.halves) {
    StoreLaneSums(row, cols, kOrder.vectors);
  }
}

void RoundRow(WeightFormat format, const float* x, size_t cols, uint8_t* out) {
  const Int8Row row = Int8RowAt(out, cols);
  switch (format) {
    case WeightFormat::kFp4Row32:
      return RoundRowOf<WeightFormat::kFp4Row32>(x, cols, row);
    case WeightFormat::kMXFP4:
      return RoundRowOf<WeightFormat::kMXFP4>(x, cols, row);
    case WeightFormat::kQ4_K:
      return RoundRowOf<WeightFormat::kQ4_K>(x, cols, row);
    case WeightFormat::kQ2_K:
      return RoundRowOf<WeightFormat::kQ2_K>(x, cols, row);
    case WeightFormat::kIQ2_XXS:
      return RoundRowOf<WeightFormat::kIQ2_XXS>(x, cols, row);
    default: return RoundRowOf<WeightFormat::kQ8_0>(x, cols, row);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(RoundRow);

// Kernels read whole groups. Codes that a block puts in order leave gaps where
// blocks are missing.
void ZeroPadding(const Int8Row& row, size_t cols) {
  const size_t padded = Int8PaddedCols(cols);
  const size_t whole = cols / 512 * 512;
  std::memset(row.codes + whole, 0, padded - whole);
  std::memset(row.lane_sums + whole / 4, 0, padded - whole);
  for (float* part : {row.scales, row.sums}) {
    std::memset(part + cols / 32, 0, (padded - cols) / 32 * sizeof(float));
  }
  for (float* part : {row.half_scales, row.half_sums}) {
    std::memset(part + cols / 16, 0, (padded - cols) / 16 * sizeof(float));
  }
}
}  // namespace

void RoundRowToInt8(WeightFormat format, const float* x, size_t cols,
                    uint8_t* out) {
  ZeroPadding(Int8RowAt(out, cols), cols);
  HWY_DYNAMIC_DISPATCH(RoundRow)(format, x, cols, out);
}

}  // namespace ecphory
#endif
