// Weights as operands of tensor-core products (ops/cuda/mma.cuh): a warp holds
// 16 rows by 32 columns, lane 4g + t the 8 values at positions 8t.. of rows g
// and g + 8. Which column a position stands for is the format's choice; the
// other operand is laid out to match. Values are fp16 or bf16, exact but for a
// power of two, and times a factor of the row's block of 32 columns.
#pragma once

#include <cstdint>

#include "ops/cuda/codec.cuh"
#include "tensor/matrix.h"

namespace ecphory::cuda {

// Where an operand keeps its factors.
enum class FactorPlace : uint8_t {
  kNone,    // none: factors are 1
  kBeside,  // e8m0 scales apart from the codes
  kInRow,   // in the row, in front of each block
};

// What formats of fp16 operands share. A token takes kColumns columns of the
// other operand, of which kPieces are parts of x that add up to it.
struct HalfOperand {
  static constexpr bool kBf16 = false;
  static constexpr bool kTransposed = false;  // see ops/cuda/wide_weights.cuh
  static constexpr int kPieces = 2, kColumns = 2;
};

// Columns of a lane's positions: two runs of four, at kFirst * t and kSecond +
// kFirst * t of the block; position i is value Order(i) of the eight.
struct NaturalOrder {
  static constexpr int kFirst = 8, kSecond = 4;
  static constexpr __device__ int Order(int i) { return i; }
};

__device__ inline uint32_t Word(const uint8_t* shared) {
  return *reinterpret_cast<const uint32_t*>(shared);
}

// Four bytes at any address of shared memory, from the words around it;
// `phase` is the address modulo 4, a constant once loops are unrolled.
__device__ inline uint32_t WordAt(const uint8_t* shared, int phase) {
  const uint8_t* const base = shared - phase;
  if (phase == 0) return Word(base);
  return __funnelshift_r(Word(base), Word(base + 4), 8 * phase);
}

// Four e8m0 codes as bf16, which holds each exactly.
__device__ inline uint2 E8M0ToBF16(uint32_t codes) {
  const uint32_t inverse = ~codes;
  const uint32_t extreme =
      ((codes - 0x01010101u) & ~codes) | ((inverse - 0x01010101u) & ~inverse);
  uint32_t low = __byte_perm(codes, 0, 0x1404) >> 1;
  uint32_t high = __byte_perm(codes, 0, 0x3424) >> 1;
  if ((extreme & 0x80808080u) != 0) {  // 0 or 255, or next to one that is
    const auto bf16 = [&](int i) {
      const uint8_t code = static_cast<uint8_t>(codes >> (8 * i));
      return __float_as_uint(E8M0ToF32(code)) >> 16;
    };
    low = bf16(0) | bf16(1) << 16, high = bf16(2) | bf16(3) << 16;
  }
  return make_uint2(low, high);
}

// Eight e2m1 codes as the halves of value times 2^-14: an e2m1 code is a half
// with fewer bits, subnormals included. Low nibbles give the first two pairs.
__device__ inline void DecodeE2M1(uint32_t codes, uint32_t (&out)[4]) {
  const uint32_t low = (codes << 4 & 0x80808080u) | (codes << 1 & 0x0e0e0e0eu);
  const uint32_t high = (codes & 0x80808080u) | (codes >> 3 & 0x0e0e0e0eu);
  out[0] = __byte_perm(low, 0, 0x1404), out[1] = __byte_perm(low, 0, 0x3424);
  out[2] = __byte_perm(high, 0, 0x1404), out[3] = __byte_perm(high, 0, 0x3424);
}

// Four int8 as halves: u = code + 128 as the low bits of 1024 + u.
__device__ inline void DecodeInt8(uint32_t codes, uint32_t* out) {
  const uint32_t biased = codes ^ 0x80808080u;
  const __half2 offset = __float2half2_rn(-1152.0f);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t bits =
        __byte_perm(biased, 0x64646464u, i == 0 ? 0x4140 : 0x4342);
    const __half2 pair =
        __hadd2(*reinterpret_cast<const __half2*>(&bits), offset);
    out[i] = *reinterpret_cast<const uint32_t*>(&pair);
  }
}

// A row is kBlockBytes for every 32 columns. kTilePitch and kTileUnit are
// kPitch and kUnit for pieces of 128 columns.
//
// kChunk columns of a row are staged together: kChunkBytes, which are copied by
// kUnit bytes and lie kPitch apart in shared memory, so that the lanes of a
// warp read different banks. Rows of the format that are multiples of kUnit
// bytes can be taken.
template <WeightFormat kFormat>
struct Fragment;

template <>
struct Fragment<WeightFormat::kFp8Tile32> : HalfOperand, NaturalOrder {
  static constexpr FactorPlace kFactor = FactorPlace::kBeside;
  static constexpr float kPower = 1;
  static constexpr int kChunk = 128, kChunkBytes = 128, kUnit = 16;
  static constexpr int kPitch = 144;
  static constexpr int kBlockBytes = 32, kTilePitch = 160, kTileUnit = 16;
  static __device__ void Decode(const uint8_t* row, int block, int t,
                                uint32_t (&out)[4]) {
    const uint2 codes =
        *reinterpret_cast<const uint2*>(row + 32 * block + 8 * t);
    const uint32_t words[2] = {codes.x, codes.y};
    DecodeWords(words, out);
  }
  static __device__ void DecodeWords(const uint32_t* words,
                                     uint32_t (&out)[4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#if __CUDA_ARCH__ >= 890
      // By halves of a register, which the conversion takes as they are.
      asm("{.reg .b16 low, high; mov.b32 {low, high}, %2;"
          "cvt.rn.f16x2.e4m3x2 %0, low; cvt.rn.f16x2.e4m3x2 %1, high;}"
          : "=r"(out[2 * i]), "=r"(out[2 * i + 1])
          : "r"(words[i]));
#else
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const __half2_raw pair = __nv_cvt_fp8x2_to_halfraw2(
            static_cast<uint16_t>(words[i] >> (16 * j)), __NV_E4M3);
        out[2 * i + j] = pair.x | static_cast<uint32_t>(pair.y) << 16;
      }
#endif
    }
  }
};

template <>
struct Fragment<WeightFormat::kFp4Row32> : HalfOperand {
  static constexpr FactorPlace kFactor = FactorPlace::kBeside;
  static constexpr float kPower = 0x1p14f;
  static constexpr int kFirst = 8, kSecond = 4;
  static constexpr __device__ int Order(int i) { return 2 * i % 8 + i / 4; }
  static constexpr int kChunk = 256, kChunkBytes = 128, kUnit = 16;
  static constexpr int kPitch = 144;
  static constexpr int kBlockBytes = 16, kTilePitch = 80, kTileUnit = 16;
  static __device__ void Decode(const uint8_t* row, int block, int t,
                                uint32_t (&out)[4]) {
    DecodeE2M1(Word(row + 16 * block + 4 * t), out);
  }
  static __device__ void DecodeWords(const uint32_t* words,
                                     uint32_t (&out)[4]) {
    DecodeE2M1(words[0], out);
  }
};

template <>
struct Fragment<WeightFormat::kMXFP4> : HalfOperand {
  static constexpr FactorPlace kFactor = FactorPlace::kInRow;
  static constexpr float kPower = 0x1p14f;
  // Byte i holds values i and i + 16.
  static constexpr int kFirst = 4, kSecond = 16;
  static constexpr __device__ int Order(int i) { return i; }
  static constexpr int kChunk = 256, kChunkBytes = 136, kUnit = 8;
  static constexpr int kPitch = 144;
  static constexpr int kBlockBytes = 17, kTilePitch = 80, kTileUnit = 4;
  static __device__ void Decode(const uint8_t* row, int block, int t,
                                uint32_t (&out)[4]) {
    DecodeE2M1(WordAt(row + 17 * block + 1 + 4 * t, (block + 1) % 4), out);
  }
  static __device__ float Factor(const uint8_t* row, int block) {
    return E8M0ToF32(row[17 * block]);
  }
};

template <>
struct Fragment<WeightFormat::kQ8_0> : HalfOperand, NaturalOrder {
  static constexpr FactorPlace kFactor = FactorPlace::kInRow;
  static constexpr float kPower = 1;
  static constexpr int kChunk = 128, kChunkBytes = 136, kUnit = 8;
  static constexpr int kPitch = 144;
  static constexpr int kBlockBytes = 34, kTilePitch = 144, kTileUnit = 8;
  static __device__ void Decode(const uint8_t* row, int block, int t,
                                uint32_t (&out)[4]) {
    const uint8_t* const codes = row + 34 * block + 2 + 8 * t;
    const int phase = (block + 1) % 2 * 2;
    DecodeInt8(WordAt(codes, phase), out);
    DecodeInt8(WordAt(codes + 4, phase), out + 2);
  }
  static __device__ float Factor(const uint8_t* row, int block) {
    return F16ToF32(*reinterpret_cast<const uint16_t*>(row + 34 * block));
  }
};

template <>
struct Fragment<WeightFormat::kF16> : HalfOperand, NaturalOrder {
  static constexpr FactorPlace kFactor = FactorPlace::kNone;
  static constexpr float kPower = 1;
  static constexpr int kChunk = 64, kChunkBytes = 128, kUnit = 16;
  static constexpr int kPitch = 144;
  static constexpr int kBlockBytes = 64, kTilePitch = 320, kTileUnit = 16;
  static __device__ void Decode(const uint8_t* row, int block, int t,
                                uint32_t (&out)[4]) {
    const uint4 v = *reinterpret_cast<const uint4*>(row + 64 * block + 16 * t);
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
  }
};

template <>
struct Fragment<WeightFormat::kBF16> : Fragment<WeightFormat::kF16> {
  static constexpr bool kBf16 = true;
  static constexpr int kPieces = 3, kColumns = 4;
};

}  // namespace ecphory::cuda
