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

struct RoundedBlock {
  float scale;
  int32_t halves[2];  // sums of the first and the last 16 codes as they lie
};

#if HWY_TARGET == HWY_SCALAR
template <bool kPairs>
RoundedBlock RoundBlock(const float* x, int8_t* codes) {
  int8_t natural[kInt8Block];
  RoundedBlock block{RoundToInt8(x, natural), {0, 0}};
  for (size_t i = 0; i < kInt8Block; ++i) {
    codes[i] = kPairs ? natural[i % 16 * 2 + i / 16] : natural[i];
    block.halves[i / 16] += codes[i];
  }
  return block;
}
#else
constexpr size_t kVectors = kInt8Block / kLanes;

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

// The largest magnitude, of bits that compare as the values do: infinity and
// NaN are larger than all others.
HWY_INLINE float LargestOf(const VF (&values)[kVectors]) {
  const hn::RebindToSigned<DF> d32;
  auto largest = hn::Zero(d32);
#pragma GCC unroll 8
  for (const VF& value : values) {
    largest = hn::Max(largest, hn::BitCast(d32, hn::Abs(value)));
  }
  return std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(d32, largest)));
}

// RoundToInt8() in lanes.
template <bool kPairs>
HWY_INLINE RoundedBlock RoundBlock(const float* HWY_RESTRICT x,
                                   int8_t* HWY_RESTRICT codes) {
  const hn::Rebind<int8_t, DF> d8;
  const hn::RebindToSigned<DF> d32;
  VF values[kVectors];
  LoadBlock<kPairs>(x, values);
  const float amax = LargestOf(values);
  const bool usable =
      amax >= kInt8MinMagnitude && amax <= std::numeric_limits<float>::max();
  const VF inverse = hn::Set(kF, usable ? 127 / amax : 0.0f);
  hn::Vec<decltype(d32)> halves[2] = {hn::Zero(d32), hn::Zero(d32)};
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) {
    // 0 in place of NaN, which an infinity times 0 is.
    const VF clean = usable ? hn::Mul(values[v], inverse) : hn::Zero(kF);
    const auto integers = hn::NearestInt(clean);
    auto& half = halves[v / (kVectors / 2)];
    half = hn::Add(half, integers);
    hn::StoreU(hn::DemoteTo(d8, integers), d8, codes + v * kLanes);
  }
  RoundedBlock block;
  block.scale = amax / 127;
  if (!usable) {
    block.scale =
        amax < kInt8MinMagnitude ? 0 : std::numeric_limits<float>::quiet_NaN();
  }
  for (size_t h = 0; h < 2; ++h) {
    block.halves[h] = hn::GetLane(hn::SumOfLanes(d32, halves[h]));
  }
  return block;
}
#endif

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
  bool sums = false;         // kernels need Int8Row::sums and half_sums
  float unit = 1;            // of the weights' codes: goes into Int8Row::scales
  size_t block_stride = 0;   // between pieces of neighbouring blocks ...
  size_t blocks = 1;         // ... of so many, after which comes ...
  size_t next_stride = 0;    // ... the next such row of blocks
  size_t piece_stride = 16;  // between the pieces of a block
  constexpr size_t Place(size_t block, size_t number) const {
    return block % blocks * block_stride + block / blocks * next_stride +
           number * piece_stride;
  }
};

constexpr Order OrderOf(WeightFormat format) {
  Order order;
  order.sums = format == WeightFormat::kQ4_K || format == WeightFormat::kQ2_K;
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

template <WeightFormat kFormat>
HWY_INLINE void StoreCodes(const int8_t* codes, size_t block, int8_t* span) {
  constexpr Order kOrder = OrderOf(kFormat);
  constexpr size_t kCopied = kOrder.piece < 8 ? kOrder.piece : 8;
#pragma GCC unroll 8
  for (size_t i = 0; i < kInt8Block; i += kCopied) {
    const size_t place =
        kOrder.Place(block, i / kOrder.piece) + i % kOrder.piece;
    std::memcpy(span + place, codes + i, kCopied);
  }
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
#endif

void StoreSums(const Int8Row& row, size_t c, const RoundedBlock& block) {
  const float scale = block.scale;
  row.sums[c / 32] =
      scale * static_cast<float>(block.halves[0] + block.halves[1]);
  row.half_sums[c / 16] = scale * static_cast<float>(block.halves[0]);
  row.half_sums[c / 16 + 1] = scale * static_cast<float>(block.halves[1]);
}

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

template <WeightFormat kFormat>
HWY_INLINE void RoundRowOf(const float* x, size_t cols, const Int8Row& row) {
  constexpr Order kOrder = OrderOf(kFormat);
  for (size_t c = 0; c < cols; c += kInt8Block) {
    alignas(64) int8_t codes[kInt8Block];
    const RoundedBlock block = RoundBlock<kOrder.pairs>(x + c, codes);
    row.scales[c / 32] = kOrder.unit * block.scale;
    row.half_scales[c / 16] = row.half_scales[c / 16 + 1] = block.scale;
    if constexpr (kOrder.sums) StoreSums(row, c, block);
    row.block_sums[c / 32] = block.halves[0] + block.halves[1];
    const size_t first = c % kOrder.span;
#if HWY_TARGET == HWY_AVX3_DL
    if constexpr (kOrder.eighths) ToEighths(codes);
#endif
    StoreCodes<kFormat>(codes, first / kInt8Block, row.codes + c - first);
  }
  if constexpr (!kOrder.sums) StoreLaneSums(row, cols, kOrder.vectors);
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
