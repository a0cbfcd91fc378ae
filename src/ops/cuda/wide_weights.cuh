// Weights as the register operand of a warpgroup's products (ops/cuda/
// wgmma.cuh), decoded to fp16 or bf16 with their scales: exactly, relative to
// the largest scale of their row.
#pragma once

#include "ops/cuda/codec.cuh"
#include "ops/cuda/weight_fragment.cuh"
#include "ops/cuda/wgmma.cuh"

namespace ecphory::cuda {

// How a format's operands lie: the parts of x are Fragment's, of which word t
// of unit p of a block of 32 columns (kTransposed) is the p-th pair of a lane
// 4g + t. A piece of kDepth columns of weights is kRowBytes of a row; unit u of
// 16 bytes of row r lies at unit Place(r, u), so that matrices are loaded
// without conflicts. A load serves kSlices steps of 16 columns. kAhead: loading
// the first of a stage's before the products of the one before have begun their
// last steps is faster.
//
// A weight is its operand times 2^(e - kScaleBias) for the row's largest scale
// e; scales down to e - kScaleRange keep that exact.
template <WeightFormat kFormat>
struct WideFragment;

// Formats of experts that have one.
__device__ __host__ inline bool IsWideFormat(WeightFormat format) {
  return format == WeightFormat::kFp8Tile32 ||
         format == WeightFormat::kFp4Row32;
}

// A pair of fp16 values times a scale, which both halves of `scale` are.
__device__ inline uint32_t TimesPair(uint32_t pair, uint32_t scale) {
  const __half2 product = __hmul2(*reinterpret_cast<const __half2*>(&pair),
                                  *reinterpret_cast<const __half2*>(&scale));
  return *reinterpret_cast<const uint32_t*>(&product);
}

template <>
struct WideFragment<WeightFormat::kFp8Tile32>
    : Fragment<WeightFormat::kFp8Tile32> {
  static constexpr bool kTransposed = true;
  static constexpr int kFirst = 4, kSecond = 16;
  static constexpr int kDepth = 128, kRowBytes = 128, kSlices = 2;
  static constexpr bool kAhead = true;
  // Scales up to 2^7 in fp16, down to its least normal.
  static constexpr int kTopExponent = 22, kScaleRange = 21, kScaleBias = 134;
  static constexpr int Place(int row, int unit) { return unit ^ row % 8; }
  // Slice s of the kSlices that were loaded, for rows g and g + 8 of scales low
  // and high.
  static __device__ void Decode(const uint32_t (&raw)[4], int s, uint32_t low,
                                uint32_t high, uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = raw[s * 2 + i % 2];
      const __half2_raw pair = __nv_cvt_fp8x2_to_halfraw2(
          static_cast<uint16_t>(word >> (16 * (i / 2))), __NV_E4M3);
      a[i] = TimesPair(pair.x | static_cast<uint32_t>(pair.y) << 16,
                       i % 2 == 0 ? low : high);
    }
  }
};

template <>
struct WideFragment<WeightFormat::kFp4Row32>
    : Fragment<WeightFormat::kFp4Row32> {
  static constexpr bool kTransposed = true;
  static constexpr int kDepth = 128, kRowBytes = 64, kSlices = 4;
  static constexpr bool kAhead = false;
  // Codes decode to value * 2^-14; scales of up to 2^15.
  static constexpr int kTopExponent = 30, kScaleRange = 24, kScaleBias = 128;
  static constexpr int Place(int row, int unit) { return unit ^ row / 2 % 4; }
  static __device__ void Decode(const uint32_t (&raw)[4], int s, uint32_t low,
                                uint32_t high, uint32_t (&a)[4]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint32_t words[4];
      DecodeE2M1(raw[s / 2 * 2 + h], words);
      const uint32_t scale = h == 0 ? low : high;
      a[h] = TimesPair(words[s % 2 * 2], scale);
      a[2 + h] = TimesPair(words[s % 2 * 2 + 1], scale);
    }
  }
};

template <>
struct WideFragment<WeightFormat::kF16> : Fragment<WeightFormat::kF16> {
  static constexpr bool kTransposed = false;
  static constexpr int kDepth = 64, kRowBytes = 128, kSlices = 1;
  static constexpr bool kAhead = false;
  static constexpr int kTopExponent = 0, kScaleRange = 0, kScaleBias = 0;
  static constexpr int Place(int row, int unit) { return unit ^ row % 8; }
  static __device__ void Decode(const uint32_t (&raw)[4], int, uint32_t,
                                uint32_t, uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = raw[i];
  }
};

template <>
struct WideFragment<WeightFormat::kBF16> : WideFragment<WeightFormat::kF16> {
  static constexpr bool kBf16 = true;
  static constexpr int kPieces = 3, kColumns = 4;
};

// Scales are loaded of 8 blocks of 32 columns at a time: of kScalePieces
// pieces.
inline constexpr int kScaleColumns = 256;
template <WeightFormat kFormat>
inline constexpr int kScalePieces =
    kScaleColumns / WideFragment<kFormat>::kDepth;

// The scales of one row of the tile.
template <WeightFormat kFormat>
struct WideScales {
  using F = WideFragment<kFormat>;
  static constexpr bool kUsed = F::kFactor == FactorPlace::kBeside;

  // Scales of a row; FindLargest() comes before anything else of them is asked.
  __device__ void Open(const Matrix& m, size_t row) {
    if constexpr (!kUsed) return;
    blocks = static_cast<int>(m.cols / 32);
    if (kFormat == WeightFormat::kFp8Tile32) row /= 32;
    codes = m.scales + row * blocks;
    aligned = ((reinterpret_cast<uintptr_t>(codes) | blocks) & 7) == 0;
  }

  // Of four rows of as many blocks, among blocks first and on, before `end`:
  // multiples of 8, or the rows' end. All lanes of a warp, of which four
  // neighbours have the same rows. The rows are read side by side: one after
  // the other each would be waited for several times.
  static __device__ void FindLargest(WideScales (&rows)[2][2], int first,
                                     int end) {
    if constexpr (!kUsed) return;
    constexpr int kAtOnce = 4;  // words of a lane
    const int t = static_cast<int>(threadIdx.x % 4);
    uintptr_t bits = static_cast<uintptr_t>(rows[0][0].blocks);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      bits |= reinterpret_cast<uintptr_t>(rows[r / 2][r % 2].codes);
    }
    uint32_t highest[4], lowest[4];  // of 2, in 16 bits each
#pragma unroll
    for (int r = 0; r < 4; ++r) highest[r] = 0, lowest[r] = 0x00ff00ffu;
    const auto take = [&](int r, uint32_t pair) {
      highest[r] = __vmaxu2(highest[r], pair);
      lowest[r] = __vminu2(lowest[r], pair);
    };
    if ((bits & 3) == 0) {
      for (int i = first / 4; i < end / 4; i += 4 * kAtOnce) {
        uint32_t words[4][kAtOnce];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const uint32_t* const from =
              reinterpret_cast<const uint32_t*>(rows[r / 2][r % 2].codes);
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) {  // the last one again
            words[r][j] = __ldg(from + min(i + 4 * j + t, end / 4 - 1));
          }
        }
#pragma unroll
        for (int r = 0; r < 4; ++r) {
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) {
            take(r, words[r][j] & 0x00ff00ffu);
            take(r, words[r][j] >> 8 & 0x00ff00ffu);
          }
        }
      }
    } else {
      for (int i = first + t; i < end; i += 4) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          take(r, 0x00010001u * __ldg(rows[r / 2][r % 2].codes + i));
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      uint32_t most = max(highest[r] & 0xffff, highest[r] >> 16);
      uint32_t least = min(lowest[r] & 0xffff, lowest[r] >> 16);
#pragma unroll
      for (int offset = 1; offset < 4; offset *= 2) {
        most = max(most, __shfl_xor_sync(0xffffffffu, most, offset));
        least = min(least, __shfl_xor_sync(0xffffffffu, least, offset));
      }
      WideScales& row = rows[r / 2][r % 2];
      row.largest = static_cast<int>(most);
      row.exact = most < 255 && most - least <= F::kScaleRange;
    }
  }

  // The codes of blocks 8 * run and on; those past the row's end are like the
  // largest.
  __device__ uint2 Load(int run) const {
    if constexpr (!kUsed) return {};
    if (aligned) return __ldg(reinterpret_cast<const uint2*>(codes) + run);
    uint32_t words[2] = {};
#pragma unroll 1
    for (int i = 7; i >= 0; --i) {
      const uint32_t code = 8 * run + i < blocks
                                ? __ldg(codes + 8 * run + i)
                                : static_cast<uint32_t>(largest);
      words[1] = i < 4 ? words[1] : words[1] << 8 | code;
      words[0] = i < 4 ? words[0] << 8 | code : words[0];
    }
    return {words[0], words[1]};
  }
  // What Load() gave of the blocks of piece `step`, as the high bytes of fp16
  // scales, the first block's lowest. Bytes keep to themselves, but where the
  // row is not exact.
  __device__ uint32_t Fields(uint2 of_run, int step) const {
    if constexpr (!kUsed) return 0;
    static_assert(F::kDepth == 64 || F::kDepth == 128);
    const bool second =
        step % kScalePieces<kFormat> >= kScalePieces<kFormat> / 2;
    uint32_t word = second ? of_run.y : of_run.x;
    if (F::kDepth == 64) word >>= step % 2 * 16;
    return (word +
            0x01010101u * static_cast<uint32_t>(F::kTopExponent - largest))
           << 2;
  }
  // The scale of the fields' block as a pair of fp16.
  static __device__ uint32_t Pair(uint32_t fields, int block) {
    return __byte_perm(fields, 0, 0x0404 + 0x1010 * block);
  }
  // The power of two that sums of the row are to be multiplied by.
  __device__ int Power() const { return kUsed ? largest - F::kScaleBias : 0; }

  const uint8_t* codes = nullptr;
  int blocks = 0, largest = 0;
  bool aligned = true, exact = true;
};

// 2^power and `scale`, a power of two, times a sum, whatever lies between.
struct RowPower {
  __device__ explicit RowPower(int power)
      : first(PowerOfTwo(power / 2)), second(PowerOfTwo(power - power / 2)) {}
  static __device__ float PowerOfTwo(int e) {
    return __int_as_float((e + 127) << 23);
  }
  __device__ float Times(float sum, float scale) const {
    return sum * first * scale * second;
  }
  float first, second;
};

}  // namespace ecphory::cuda
