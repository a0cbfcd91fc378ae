// Inputs to int8, in the order of the kernels of the same target: so this file
// is compiled for the same targets as they are.
#define HWY_WANT_AVX3_DL 1
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/int8_round.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <cstring>

#include "hwy/highway.h"
#include "ops/cpu/int8_rows.h"
#include "ops/cpu/int8_targets-inl.h"
#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR
float RoundBlock(const float* x, int8_t* codes) {
  return RoundToInt8(x, codes);
}
#else
// RoundToInt8() in lanes.
HWY_INLINE float RoundBlock(const float* HWY_RESTRICT x,
                            int8_t* HWY_RESTRICT codes) {
  constexpr size_t kVectors = kInt8Block / kLanes;
  const hn::Rebind<int8_t, DF> d8;
  VF largest = hn::Zero(kF);
  VF nan = hn::Zero(kF);  // x - x: 0, or NaN of what is not finite
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) {
    const VF value = Load(x + v * kLanes);
    largest = hn::Max(largest, hn::Abs(value));
    nan = hn::Add(nan, hn::Sub(value, value));
  }
  const float finite = hn::GetLane(hn::SumOfLanes(kF, nan));
  const float amax = hn::GetLane(hn::MaxOfLanes(kF, largest));
  const bool usable = finite == 0 && amax >= kInt8MinMagnitude;
  const VF inverse = hn::Set(kF, usable ? 127 / amax : 0.0f);
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) {
    // 0 in place of NaN, which an infinity times 0 is.
    const VF scaled = hn::Mul(Load(x + v * kLanes), inverse);
    const VF clean = usable ? scaled : hn::Zero(kF);
    hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(clean)), d8, codes + v * kLanes);
  }
  return usable ? amax / 127 : finite;
}
#endif

constexpr size_t kBytes = 4 * kLanes;  // of a vector of codes

// Where kernels want the codes of a block of 32, as pieces of 16 or 8: a vector
// of weights comes out of one operation, and its lanes should belong to few
// parts. In order, unless said otherwise.
struct Order {
  size_t span = kInt8Block;  // values that are put in order together
  size_t vectors = 1;        // of codes that a lane takes in a step
  size_t piece = 16;         // values
  bool pairs = false;        // pieces are even and odd values, not halves
  bool sums = false;         // kernels need Int8Row::sums and half_sums
  size_t block_stride = 0;   // between pieces of neighbouring blocks ...
  size_t blocks = 1;         // ... of so many, after which comes ...
  size_t next_stride = 0;    // ... the next such row of blocks
  size_t piece_stride = 16;  // between the pieces of a block
  size_t Place(size_t block, size_t number) const {
    return block % blocks * block_stride + block / blocks * next_stride +
           number * piece_stride;
  }
};

Order OrderOf(WeightFormat format) {
  Order order;
  order.sums = format == WeightFormat::kQ4_K || format == WeightFormat::kQ2_K;
#if ECPHORY_INT8_VECTORS
  constexpr bool kWide = kBytes == 64;
  switch (format) {
#if HWY_TARGET == HWY_AVX3_DL
    case WeightFormat::kIQ2_XXS:  // a vector of each quarter
      order.span = 256;
      order.vectors = 4;
      order.piece = 8;
      order.next_stride = 8;
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
      order.next_stride = 16;
      order.piece_stride = kBytes;
      break;
    case WeightFormat::kQ4_K:  // low nibbles of 64 bytes, then high ones
      if (!kWide) break;
      order.span = 128;
      order.blocks = 2;
      order.block_stride = 64;
      order.next_stride = 32;
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

void StoreCodes(const Order& order, const int8_t* codes, size_t block,
                int8_t* span) {
  int8_t split[kInt8Block];
  if (order.pairs) {
    for (size_t i = 0; i < 16; ++i) {
      split[i] = codes[2 * i];
      split[16 + i] = codes[2 * i + 1];
    }
    codes = split;
  }
  for (size_t i = 0; i < kInt8Block; i += 8) {
    const size_t place = order.Place(block, i / order.piece) + i % order.piece;
    std::memcpy(span + place, codes + i, 8);
  }
}

void StoreSums(const Int8Row& row, size_t c, float scale, const int8_t* codes) {
  int halves[2] = {0, 0};
  for (size_t i = 0; i < 16; ++i) {
    halves[0] += codes[i];
    halves[1] += codes[16 + i];
  }
  row.sums[c / 32] = scale * static_cast<float>(halves[0] + halves[1]);
  row.half_sums[c / 16] = scale * static_cast<float>(halves[0]);
  row.half_sums[c / 16 + 1] = scale * static_cast<float>(halves[1]);
}

void StoreLaneSums(const Int8Row& row, size_t cols, size_t vectors) {
  const size_t step = vectors * kBytes;
  for (size_t c = 0; c < cols; c += step) {
    const int8_t* const codes = row.codes + c;
    int32_t* const sums = row.lane_sums + c / vectors / 4;
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] = 0;
    for (size_t i = 0; i < step; ++i) sums[i % kBytes / 4] -= codes[i];
  }
}

void RoundRow(WeightFormat format, const float* x, size_t cols, uint8_t* out) {
  const Int8Row row = Int8RowAt(out, cols);
  const Order order = OrderOf(format);
  for (size_t c = 0; c < cols; c += kInt8Block) {
    alignas(64) int8_t codes[kInt8Block];
    const float scale = RoundBlock(x + c, codes);
    row.scales[c / 32] = scale;
    row.half_scales[c / 16] = row.half_scales[c / 16 + 1] = scale;
    if (order.sums) StoreSums(row, c, scale, codes);
    int32_t sum = 0;
    for (const int8_t code : codes) sum += code;
    row.block_sums[c / 32] = sum;
    const size_t first = c % order.span;
    StoreCodes(order, codes, first / kInt8Block, row.codes + c - first);
  }
  if (!order.sums) StoreLaneSums(row, cols, order.vectors);
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
