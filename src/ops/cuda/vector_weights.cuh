// Weights of a product with a few vectors (ops/cuda/matmul_vector.cuh): how
// pieces of 8 rows lie in shared memory, and how a warp multiplies one.
//
// The tensor cores' first operand has 16 rows: rows g of it are a matrix's rows
// in a block of 32 columns, and rows g + 8 the same ones in the next block. The
// other operand's first four columns are x in the one block, its last four x in
// the other: of the sums a quarter each, rows g by the first columns and rows
// g + 8 by the last, are what is wanted. So a tile is 8 rows, which few
// blocks of a launch do not fill, and a lane 4g + t has sums of row g, in even
// blocks where t < 2 and in odd ones otherwise.
//
// FP8 weights are fp16, and x is two parts of fp16 that add up to it. Weights
// that are small integers times a block's scale stay integers, and x is four
// digits of base 256: the sums of a block are exact.
#pragma once

#include <cstdint>

#include "ops/cuda/mma.cuh"
#include "ops/cuda/operand.cuh"
#include "ops/cuda/weight_fragment.cuh"
#include "tensor/matrix.h"

namespace ecphory::cuda {

// Columns of x that have a power of two in common, which one warp finds.
inline constexpr int kSpan = 128;

// Rows of a tile and of its pieces, which lie F::kPitch bytes apart in shared
// memory so that lanes of different rows read different banks.
inline constexpr int kVectorRows = 8;

// x of a launch in shared memory: `parts` of token 0, parts pitch bytes apart,
// tokens kParts * pitch; scales[token * spans + column / kSpan]. Kernels of
// more tokens than there are repeat the last.
struct VectorParts {
  const uint8_t* parts;
  const float* scales;
  int pitch, spans, last;  // token
};

// c += a b of int8 with int32 sums, exact. As Mma() with four values where that
// has two: a[0]: row g, k 4t; a[2]: row g, k 4t + 16; b[0]: k 4t.
__device__ inline void MmaInt8(int (&c)[4], uint32_t a0, uint32_t a1,
                               uint32_t a2, uint32_t a3, uint32_t b0,
                               uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// As __byte_perm(), but a selector's upper bit asks for the byte's sign.
__device__ inline uint32_t PermuteSigned(uint32_t a, uint32_t b,
                                         uint32_t selectors) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;"
      : "=r"(bytes)
      : "r"(a), "r"(b), "r"(selectors));
  return bytes;
}

// x as integers: hi * 2^15 + lo, each two digits of base 256, so that the
// largest magnitude of a span lies in [2^28, 2^29). The operand's columns are
// (block of a pair, digit): lane 4g + t has sums of lo where t is even and of
// hi where it is odd.
struct DigitOperand {
  static constexpr int kParts = 4;
  static constexpr int kPartBytes = 1;  // of a column
  static constexpr int kPitchRest = 32;
  static constexpr int kTop = 13;  // hi's largest is 2^kTop or more

  // The four values of a lane as a word of each digit.
  static __device__ void Split(const float4& x, float scale,
                               uint32_t (&digits)[4]) {
    // Adding it rounds to an integer, which is then in the low bits, 128 above.
    constexpr float kMagic = 12582912.0f + 128.0f;
    const float v[4] = {x.x, x.y, x.z, x.w};
    uint32_t hi[4], lo[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float rounded = fmaf(v[i], scale, kMagic);
      const float rest = fmaf(v[i], scale, -(rounded - kMagic));
      hi[i] = __float_as_uint(rounded);
      lo[i] = __float_as_uint(fmaf(rest, 0x1p15f, kMagic));
    }
    const auto planes = [](const uint32_t(&w)[4], uint32_t& low,
                           uint32_t& high) {
      const uint32_t a = __byte_perm(w[0], w[1], 0x5140);
      const uint32_t b = __byte_perm(w[2], w[3], 0x5140);
      // The 128 above make the lower digit signed.
      low = __byte_perm(a, b, 0x5410) ^ 0x80808080u;
      high = __byte_perm(a, b, 0x7632);
    };
    planes(lo, digits[0], digits[1]);
    planes(hi, digits[2], digits[3]);
  }

  // Where a lane's columns of the first token begin, at column 0.
  static __device__ const uint8_t* Columns(const VectorParts& x) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    return x.parts + lane / 4 % 4 * x.pitch + 32 * (lane / 16) + 8 * (lane % 4);
  }
  // Those of token t at a pair of blocks; `columns` are at the piece.
  static __device__ uint2 Of(const uint8_t* columns, const VectorParts& x,
                             int t, int pair) {
    return *reinterpret_cast<const uint2*>(
        columns + (t == 0 ? 0 : min(t, x.last) * kParts * x.pitch) + 64 * pair);
  }
  // The sum of the lane's block, digits together.
  static __device__ float Sum(const int (&c)[4]) {
    const int even = c[0] + 256 * c[1], odd = c[2] + 256 * c[3];
    return static_cast<float>(threadIdx.x % 4 < 2 ? even : odd);
  }
  // A row's sum of all blocks and digits, in lanes of t = 0.
  static __device__ float OfRow(float sum) {
    sum *= threadIdx.x % 2 == 0 ? 0x1p-15f : 1.0f;
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
  }
};

// The value of an e8m0 code in shared memory that is neither 0 nor 255; 0 of 0.
__device__ inline float FactorAt(const uint8_t* code) {
  return __uint_as_float(static_cast<uint32_t>(*code) << 23);
}
// The upper bit of each byte that is 0 or 255; of none where none is.
__device__ inline uint32_t ExtremeBytes(uint32_t codes) {
  return ((codes - 0x01010101u) & ~codes) | ((~codes - 0x01010101u) & codes);
}

template <WeightFormat kFormat>
struct VectorFormat;

template <>
struct VectorFormat<WeightFormat::kFp4Row32> : DigitOperand {
  static constexpr bool kDigits = true;
  static constexpr FactorPlace kFactor = FactorPlace::kBeside;
  static constexpr int kCols = 256, kBlocks = 8, kPieceBytes = 128;
  static constexpr int kPitch = 144, kUnits = 8;  // of 16 bytes that are copied
  static constexpr float kPower = 0.5f;           // codes are taken twice
  static constexpr int kAligned = 256;            // columns of a matrix

  // Where a block's m-th word of a digit lies, and its four values of x: k is
  // the first, were they in order.
  static __device__ int WordAt(int m) { return m; }
  static __device__ float4 Load(const float* x, int k) {
    return *reinterpret_cast<const float4*>(x + k);
  }
  struct Reader {
    // `zero`: one in shared memory.
    __device__ explicit Reader(const int* zero) {
      const int lane = static_cast<int>(threadIdx.x % 32);
      at = kPitch * (lane / 4) + 4 * (lane % 4);
      // Read from memory as far as the compiler knows: constants would be moved
      // to a register for each look-up.
      const uint32_t none =
          static_cast<uint32_t>(*static_cast<const volatile int*>(zero));
      positive = 0x04030200u | none, negative = 0xfdfeff00u | none;
    }
    // A byte permute looks four codes up; where a selector's upper bit, a
    // code's sign, is set, it gives the sign of the byte instead. So a code's
    // value is the sum of two bytes: for positive ones value + 1 and -1, for
    // negative ones 0 and the value. Both are multiplied with the same columns.
    __device__ uint32_t Positive(uint32_t codes) const {
      return PermuteSigned(positive, 0x0d090705u, codes);
    }
    __device__ uint32_t Negative(uint32_t inverse) const {
      return PermuteSigned(negative, 0xf4f8fafcu, inverse);
    }
    int at;
    uint32_t positive, negative;  // of the four smallest magnitudes
  };

  // sums[token] += the products of a piece with x. `columns` and `factors` are
  // the lane's, the latter of its row and blocks; `scales` those of the piece's
  // spans, a token's x.spans apart.
  template <int kTokens>
  static __device__ void Multiply(const Reader& r, const uint8_t* piece,
                                  const uint8_t* columns,
                                  const uint8_t* factors, const float* scales,
                                  const VectorParts& x,
                                  float (&sums)[kTokens]) {
    float added[kTokens] = {};
#pragma unroll
    for (int pair = 0; pair < kBlocks / 2; ++pair) {
      const uint8_t* const codes = piece + r.at + 32 * pair;
      // By four: shifting eight apart takes more than reading twice.
      const auto four = [codes](int at) {
        return uint32_t{*reinterpret_cast<const uint16_t*>(codes + at)};
      };
      const uint32_t even0 = four(0), even1 = four(2);
      const uint32_t odd0 = four(16), odd1 = four(18);
      const uint32_t a0 = r.Positive(even0), a1 = r.Positive(odd0);
      const uint32_t a2 = r.Positive(even1), a3 = r.Positive(odd1);
      constexpr uint32_t kSigns = 0x8888u;
      const uint32_t n0 = r.Negative(even0 ^ kSigns);
      const uint32_t n1 = r.Negative(odd0 ^ kSigns);
      const uint32_t n2 = r.Negative(even1 ^ kSigns);
      const uint32_t n3 = r.Negative(odd1 ^ kSigns);
      const float factor = FactorAt(factors + 2 * pair);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        int c[4] = {};
        const uint2 v = Of(columns, x, t, pair);
        MmaInt8(c, a0, a1, a2, a3, v.x, v.y);
        MmaInt8(c, n0, n1, n2, n3, v.x, v.y);
        added[t] = fmaf(Sum(c), factor, added[t]);
        if (pair % 2 == 0) continue;
        const float scale =
            scales[(t == 0 ? 0 : min(t, x.last)) * x.spans + pair / 2];
        sums[t] = fmaf(added[t], scale, sums[t]);
        added[t] = 0;
      }
    }
  }
};

template <>
struct VectorFormat<WeightFormat::kQ8_0> : DigitOperand {
  static constexpr bool kDigits = true;
  static constexpr FactorPlace kFactor = FactorPlace::kInRow;
  static constexpr int kCols = 128, kBlocks = 4, kPieceBytes = 136;
  // Pieces lie in windows that begin at multiples of 16 bytes: odd ones 8 bytes
  // into it.
  static constexpr int kPitch = 144, kUnits = 9;
  static constexpr float kPower = 1;
  static constexpr int kAligned = 256;  // rows are multiples of 16 bytes

  // A lane's words are t and t + 4 of a block's eight. The codes of odd blocks
  // lie at multiples of 4 bytes; those of even ones 2 off, where word m begins
  // with value 4m + 2 and the last has the two first values, too.
  static __device__ int WordAt(int m) { return m % 4 * 2 + m / 4; }
  static __device__ float4 Load(const float* x, int k) {
    const int block = k & ~31, off = k / 32 % 2 == 0 ? 2 : 0;
    const float2 a =
        *reinterpret_cast<const float2*>(x + block + (k + off) % 32);
    const float2 b =
        *reinterpret_cast<const float2*>(x + block + (k + off + 2) % 32);
    return make_float4(a.x, a.y, b.x, b.y);
  }

  struct Reader {
    __device__ explicit Reader(const int*) {
      const int lane = static_cast<int>(threadIdx.x % 32);
      const int t = lane % 4, row = kPitch * (lane / 4);
      at = row + 4 * t;
      beside = row + (t == 2 ? 32 : 0);
      // Of the words at 20 + 4t and at `beside` of a pair: the second word of
      // the even block's codes, and the lane's scale.
      codes = t == 3 ? 0x7610 : 0x3210;
      scale = t < 2 ? 0x4454 : t == 2 ? 0x4476 : 0x4432;
    }
    int at, beside;
    uint32_t codes, scale;
  };

  template <int kTokens>
  static __device__ void Multiply(const Reader& r, const uint8_t* piece,
                                  const uint8_t* columns, const uint8_t*,
                                  const float* scales, const VectorParts& x,
                                  float (&sums)[kTokens]) {
    float added[kTokens] = {};
#pragma unroll
    for (int pair = 0; pair < kBlocks / 2; ++pair) {
      const uint8_t* const even = piece + r.at + 68 * pair;
      const uint8_t* const odd = even + 36;
      const uint32_t end = Word(even + 20);
      const uint32_t beside = Word(piece + r.beside + 68 * pair);
      const uint32_t a0 = Word(even + 4), a1 = Word(odd);
      const uint32_t a2 = __byte_perm(end, beside, r.codes);
      const uint32_t a3 = Word(odd + 16);
      const float factor =
          F16ToF32(static_cast<uint16_t>(__byte_perm(end, beside, r.scale)));
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        int c[4] = {};
        const uint2 v = Of(columns, x, t, pair);
        MmaInt8(c, a0, a1, a2, a3, v.x, v.y);
        added[t] = fmaf(Sum(c), factor, added[t]);
      }
    }
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float scale = scales[(t == 0 ? 0 : min(t, x.last)) * x.spans];
      sums[t] = fmaf(added[t], scale, sums[t]);
    }
  }
};

template <>
struct VectorFormat<WeightFormat::kFp8Tile32> {
  using F = Fragment<WeightFormat::kFp8Tile32>;
  static constexpr bool kDigits = false;
  static constexpr FactorPlace kFactor = FactorPlace::kBeside;
  static constexpr int kCols = 128, kBlocks = 4, kPieceBytes = 128;
  static constexpr int kPitch = 160, kUnits = 8;  // lanes read 8 bytes
  static constexpr float kPower = 1;
  static constexpr int kAligned = 128;
  static constexpr int kParts = 2;
  static constexpr int kPartBytes = 2;
  static constexpr int kPitchRest = 64;
  static constexpr int kTop = 14;

  static __device__ float4 Load(const float* x, int k) {
    return *reinterpret_cast<const float4*>(x + k);
  }

  // The four columns of a block are two tokens' two parts: sums[pair of tokens]
  // of lane 4g + t is of the token t % 2 of them.
  static __device__ const uint8_t* Columns(const VectorParts& x) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    return x.parts + lane / 4 % 2 * x.pitch + 64 * (lane / 16) +
           16 * (lane % 4);
  }
  template <int kTokens>
  static __device__ uint4 Of(const uint8_t* columns, const VectorParts& x,
                             int tokens, int pair) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int t = min(2 * tokens + lane / 8 % 2, x.last);
    return *reinterpret_cast<const uint4*>(
        columns + (kTokens == 1 ? 0 : t * kParts * x.pitch) + 128 * pair);
  }
  // A row's sum of all blocks, in lanes of t < 2.
  static __device__ float OfRow(float sum) {
    return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
  }

  struct Reader {
    __device__ explicit Reader(const int*) {
      const int lane = static_cast<int>(threadIdx.x % 32);
      at = kPitch * (lane / 4) + 8 * (lane % 4);
    }
    int at;
  };

  template <int kTokens, int kPairs = (kTokens + 1) / 2>
  static __device__ void Multiply(const Reader& r, const uint8_t* piece,
                                  const uint8_t* columns,
                                  const uint8_t* factors, const float* scales,
                                  const VectorParts& x, float (&sums)[kPairs]) {
    const int t = static_cast<int>(threadIdx.x % 4);
    float added[kPairs] = {};
#pragma unroll
    for (int pair = 0; pair < kBlocks / 2; ++pair) {
      const uint8_t* const codes = piece + r.at + 64 * pair;
      const uint2 even = *reinterpret_cast<const uint2*>(codes);
      const uint2 odd = *reinterpret_cast<const uint2*>(codes + 32);
      const uint32_t even_words[2] = {even.x, even.y};
      const uint32_t odd_words[2] = {odd.x, odd.y};
      uint32_t a[4], b[4];
      F::DecodeWords(even_words, a);
      F::DecodeWords(odd_words, b);
      const float factor = FactorAt(factors + 2 * pair);
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        const uint4 v = Of<kTokens>(columns, x, i, pair);
        float c[4];
        MmaFromZero(c, a[0], b[0], a[1], b[1], v.x, v.y);
        Mma<false>(c, a[2], b[2], a[3], b[3], v.z, v.w);
        added[i] = fmaf(t < 2 ? c[0] + c[1] : c[2] + c[3], factor, added[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const float scale =
          scales[(kTokens == 1 ? 0 : min(2 * i + t % 2, x.last)) * x.spans];
      sums[i] = fmaf(added[i], scale, sums[i]);
    }
  }
};

}  // namespace ecphory::cuda
