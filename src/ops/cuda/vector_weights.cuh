// Weights of a product with a few vectors (ops/cuda/matmul_vector.cuh): how
// pieces of 16 rows lie in shared memory, and how a warp multiplies one.
//
// A lane 4g + t holds rows g and g + 8 of the tensor cores' first operand. FP8
// weights are fp16, and x is two parts of fp16 that add up to it. Weights that
// are small integers times a block's scale stay integers, and x is four digits
// of base 256: the sums of a block are exact.
#pragma once

#include <cstdint>

#include "ops/cuda/mma.cuh"
#include "ops/cuda/operand.cuh"
#include "ops/cuda/weight_fragment.cuh"
#include "tensor/matrix.h"

namespace ecphory::cuda {

// Columns of x that have a power of two in common, which one warp finds.
inline constexpr int kSpan = 128;

// Bytes of zeros that columns of nothing are read from: a piece's digits.
inline constexpr int kVectorZeros = 256;

// x of a launch in shared memory: `parts` of token 0, parts pitch bytes apart,
// tokens kParts * pitch; scales[token * spans + column / kSpan]. Kernels of
// more tokens than there are repeat the last.
struct VectorParts {
  const uint8_t* parts;
  const uint8_t* zeros;  // kVectorZeros
  const float* scales;
  int pitch, spans, last;  // token
};

// Where a warp's walk over its pieces goes: through tiles of 16 rows, tile_step
// apart, and in each through pieces of columns, step apart, so that warps that
// share a tile read what lies beside each other.
struct PieceRange {
  const uint8_t* data;  // of the block's first row
  size_t row_bytes;
  int rows;   // of the block
  int tiles;  // of them, or 0 for a warp that has none
  int tile, tile_step;
  int piece, step, pieces;
};

// 16 bytes from device to shared memory, or zeros; `global` is not read then.
__device__ inline void CopyOrZero(void* shared, const void* global, bool copy) {
  const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile(
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to),
      "l"(global), "r"(copy ? 16 : 0)
      : "memory");
}

// Pieces of 128 bytes of 16 rows, kPitch bytes apart in shared memory: eight
// lanes copy a row's. (Units of 16 bytes of a row that were put apart, so that
// reads need no gaps between rows, halved the rate of copies.)
template <int kPitch>
struct LineWalk {
  static constexpr int kPieceBytes = 128, kSlotBytes = 16 * kPitch;
  static constexpr int kSlots = 2;  // pieces of a warp that are on their way

  __device__ explicit LineWalk(const PieceRange& all)
      : range(all), tile(all.tile), piece(all.piece) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    place = lane / 8 * kPitch + lane % 8 * 16;
    if (piece >= range.pieces) tile = range.tiles;
    BeginTile();
  }
  __device__ void BeginTile() {
    if (tile >= range.tiles) return;
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int row = 16 * tile + lane / 8;
    const int first = piece * kPieceBytes + lane % 8 * 16;
    left = static_cast<int>(range.row_bytes) - first;
    rows = range.rows - row;
    from = range.data + first + static_cast<size_t>(row) * range.row_bytes;
  }
  // The next piece; nothing behind the last.
  __device__ void Fetch(uint8_t* slot) {
    if (tile < range.tiles) {
      const int inside = left > 0 ? rows : 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        CopyOrZero(slot + place + 4 * j * kPitch,
                   from + 4 * j * range.row_bytes, 4 * j < inside);
      }
      from += range.step * kPieceBytes;
      left -= range.step * kPieceBytes;
      piece += range.step;
      if (piece >= range.pieces) {
        piece = range.piece, tile += range.tile_step;
        BeginTile();
      }
    }
    CommitCopies();
  }

  PieceRange range;
  int tile, piece, place, left, rows;
  const uint8_t* from;
};

// Pieces of four blocks of Q8_0, 136 bytes of a row, in a window of 144 that
// begins at a multiple of 16: odd pieces lie 8 bytes into it.
struct WindowWalk {
  static constexpr int kSlotBytes = 16 * 144;
  static constexpr int kSlots = 2;
  static constexpr int kCopies = 5;  // of a lane, of which the last is half

  __device__ explicit WindowWalk(const PieceRange& all)
      : range(all), tile(all.tile), piece(all.piece) {
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < kCopies; ++j) {
      const unsigned i = lane + 32 * j;
      offset[j] = i / 9 * static_cast<unsigned>(range.row_bytes) + i % 9 * 16;
    }
    if (piece >= range.pieces) tile = range.tiles;
  }
  __device__ void Fetch(uint8_t* slot) {
    if (tile < range.tiles) {
      const int lane = static_cast<int>(threadIdx.x % 32);
      const uint8_t* const from = range.data +
                                  size_t{16} * tile * range.row_bytes +
                                  (136 * piece & ~15);
      const int units = 9 * min(range.rows - 16 * tile, 16);
#pragma unroll
      for (int j = 0; j < kCopies; ++j) {
        const int i = lane + 32 * j;
        if (j + 1 < kCopies || lane < 16) {
          CopyOrZero(slot + 16 * i, from + (i < units ? offset[j] : 0),
                     i < units);
        }
      }
      piece += range.step;
      if (piece >= range.pieces) piece = range.piece, tile += range.tile_step;
    }
    CommitCopies();
  }

  PieceRange range;
  int tile, piece;
  unsigned offset[kCopies];
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
// (block of a pair, digit), with zeros in the other block's, so that two blocks
// share an accumulator: lane 4g + t has sums of block t / 2, of lo where t is
// even and of hi where it is odd.
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

  // The lane's columns of each token, at a piece of `cols` and then at every
  // `pieces`-th one. Even blocks' real ones are in lanes of g < 4, odd blocks'
  // in the others.
  struct Columns {
    __device__ Columns(const VectorParts& x, int cols, int piece, int pieces)
        : last(x.last) {
      const int lane = static_cast<int>(threadIdx.x % 32);
      const int t = lane % 4, digit = lane / 4 % 4, parity = lane / 16;
      const uint8_t* const own = x.parts + digit * x.pitch + 8 * t;
      const uint8_t* const zero = x.zeros + 8 * t;
      // By selection: an index that is not a constant would put them in memory.
      const bool odd = parity != 0;
      of[0] = odd ? zero : own + cols * piece;
      of[1] = odd ? own + cols * piece : zero;
      step[0] = odd ? 0 : cols * pieces;
      step[1] = odd ? cols * pieces : 0;
      token[0] = odd ? 0 : kParts * x.pitch;
      token[1] = odd ? kParts * x.pitch : 0;
    }
    __device__ void Advance() { of[0] += step[0], of[1] += step[1]; }
    __device__ uint2 Of(int t, int block) const {
      return *reinterpret_cast<const uint2*>(
          of[block % 2] + (t == 0 ? 0 : min(t, last)) * token[block % 2] +
          32 * block);
    }
    const uint8_t* of[2];
    int step[2], token[2], last;
  };
  // The sums of a lane's block and digits for rows g and g + 8.
  static __device__ float Low(const int (&c)[4]) {
    return static_cast<float>(c[0] + 256 * c[1]);
  }
  static __device__ float High(const int (&c)[4]) {
    return static_cast<float>(c[2] + 256 * c[3]);
  }
};

// What products take of a piece's rows g and, `to_high` after it, g + 8: the
// e8m0 scales of its blocks in shared memory where they lie beside the codes.
struct PieceFactors {
  const uint8_t* low;
  int to_high;
};
// Of code `i` of the two at `codes`; neither is 0 or 255.
__device__ inline float FactorOf(const uint8_t* codes, int i) {
  const uint32_t two = *reinterpret_cast<const uint16_t*>(codes);
  return __uint_as_float((i == 0 ? two << 23 : two << 15) & 0x7f800000u);
}
// The upper bit of each byte that is 0 or 255; of none where none is.
__device__ inline uint32_t ExtremeBytes(uint32_t codes) {
  return ((codes - 0x01010101u) & ~codes) | ((~codes - 0x01010101u) & codes);
}

template <WeightFormat kFormat>
struct VectorFormat;

template <>
struct VectorFormat<WeightFormat::kFp4Row32> : DigitOperand {
  static constexpr int kPitch = 144;
  using Walk = LineWalk<kPitch>;
  static constexpr bool kDigits = true;
  static constexpr FactorPlace kFactor = FactorPlace::kBeside;
  static constexpr int kCols = 256, kBlocks = 8;  // of a piece
  static constexpr float kPower = 0.5f;           // codes are taken twice
  static constexpr int kAligned = 32;             // columns of a matrix

  // Where a block's m-th word of a digit lies, and its four values of x: k is
  // the first, were they in order.
  static __device__ int WordAt(int m) { return m; }
  static __device__ float4 Load(const float* x, int k, int cols) {
    return k < cols ? *reinterpret_cast<const float4*>(x + k)
                    : make_float4(0, 0, 0, 0);
  }
  struct Reader {
    __device__ explicit Reader(const uint8_t* zeros) {
      const int lane = static_cast<int>(threadIdx.x % 32);
      at = kPitch * (lane / 4) + 4 * (lane % 4);
      // Read from memory as far as the compiler knows: constants would be moved
      // to a register for each look-up.
      const uint32_t zero = *reinterpret_cast<const volatile uint32_t*>(zeros);
      positive = 0x04030200u | zero, negative = 0xfdfeff00u | zero;
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

  // sums[token] += the products of a piece with x, of which the lane's scales
  // are `scales`, a token's x.spans apart.
  template <int kTokens>
  static __device__ void Multiply(const Reader& r, const uint8_t* slot, int,
                                  const Columns& x, const float* scales,
                                  int spans, const PieceFactors& factors,
                                  float (&sums)[kTokens][2]) {
    const int parity = static_cast<int>(threadIdx.x % 4) / 2;
    // Of the two blocks of a pair the lane has one: the lower or the upper
    // byte.
    const uint32_t to_exponent = parity == 0 ? 1u << 23 : 1u << 15;
    const auto factor_of = [&](const uint8_t* pair) {
      const uint32_t two = *reinterpret_cast<const uint16_t*>(pair);
      return __uint_as_float(two * to_exponent & 0x7f800000u);
    };
    float added[kTokens][2] = {};
#pragma unroll
    for (int pair = 0; pair < kBlocks / 2; ++pair) {
      int c[kTokens][4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int block = 2 * pair + half;
        const uint8_t* const codes = slot + r.at + 16 * block;
        const uint32_t low = Word(codes), high = Word(codes + 8 * kPitch);
        const uint32_t a0 = r.Positive(low), a1 = r.Positive(high);
        const uint32_t a2 = r.Positive(low >> 16), a3 = r.Positive(high >> 16);
        const uint32_t not_low = low ^ 0x88888888u;
        const uint32_t not_high = high ^ 0x88888888u;
        const uint32_t n0 = r.Negative(not_low), n1 = r.Negative(not_high);
        const uint32_t n2 = r.Negative(not_low >> 16);
        const uint32_t n3 = r.Negative(not_high >> 16);
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          const uint2 v = x.Of(t, block);
          MmaInt8(c[t], a0, a1, a2, a3, v.x, v.y);
          MmaInt8(c[t], n0, n1, n2, n3, v.x, v.y);
        }
      }
      const float low_factor = factor_of(factors.low + 2 * pair);
      const float high_factor =
          factor_of(factors.low + factors.to_high + 2 * pair);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        added[t][0] = fmaf(Low(c[t]), low_factor, added[t][0]);
        added[t][1] = fmaf(High(c[t]), high_factor, added[t][1]);
        if (pair % 2 == 0) continue;
        const float scale =
            scales[(t == 0 ? 0 : min(t, x.last)) * spans + pair / 2];
        sums[t][0] = fmaf(added[t][0], scale, sums[t][0]);
        sums[t][1] = fmaf(added[t][1], scale, sums[t][1]);
        added[t][0] = added[t][1] = 0;
      }
    }
  }
};

template <>
struct VectorFormat<WeightFormat::kQ8_0> : DigitOperand {
  using Walk = WindowWalk;
  static constexpr bool kDigits = true;
  static constexpr FactorPlace kFactor = FactorPlace::kInRow;
  static constexpr int kCols = 128, kBlocks = 4;
  static constexpr float kPower = 1;
  static constexpr int kAligned = 256;  // rows are multiples of 16 bytes

  // A lane's words are t and t + 4 of a block's eight. The codes of odd blocks
  // lie at multiples of 4 bytes; those of even ones 2 off, where word m begins
  // with value 4m + 2 and the last has the two first values, too.
  static __device__ int WordAt(int m) { return m % 4 * 2 + m / 4; }
  static __device__ float4 Load(const float* x, int k, int cols) {
    if (k >= cols) return make_float4(0, 0, 0, 0);
    const int block = k & ~31, off = k / 32 % 2 == 0 ? 2 : 0;
    const float2 a =
        *reinterpret_cast<const float2*>(x + block + (k + off) % 32);
    const float2 b =
        *reinterpret_cast<const float2*>(x + block + (k + off + 2) % 32);
    return make_float4(a.x, a.y, b.x, b.y);
  }

  struct Reader {
    __device__ explicit Reader(const uint8_t*) {
      const int lane = static_cast<int>(threadIdx.x % 32);
      const int t = lane % 4;
      row = 144 * (lane / 4) + 4 * t;
      scale_row = 144 * (lane / 4) + (t == 2 ? 32 : 0);
      // Of the words at 20 + 4t and at scale_row of a pair: the second word of
      // the even block's codes, and the lane's scale.
      codes = t == 3 ? 0x7610 : 0x3210;
      scale = t < 2 ? 0x4454 : t == 2 ? 0x4476 : 0x4432;
    }
    int row, scale_row;
    uint32_t codes, scale;
  };
  static __device__ float ScaleOf(uint32_t half) {
    return F16ToF32(static_cast<uint16_t>(half));
  }

  template <int kTokens>
  static __device__ void Multiply(const Reader& r, const uint8_t* slot,
                                  int piece, const Columns& x,
                                  const float* scales, int spans,
                                  const PieceFactors&,
                                  float (&sums)[kTokens][2]) {
    constexpr int kHigh = 8 * 144;
    const uint8_t* const window = slot + 8 * (piece % 2);
    const uint8_t* const own = window + r.row;
    const uint8_t* const own_scale = window + r.scale_row;
    float added[kTokens][2] = {};
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const uint8_t* const even = own + 68 * pair;
      const uint8_t* const beside = own_scale + 68 * pair;
      const uint32_t end_low = Word(even + 20);
      const uint32_t end_high = Word(even + 20 + kHigh);
      const uint32_t beside_low = Word(beside);
      const uint32_t beside_high = Word(beside + kHigh);
      const uint32_t a0 = Word(even + 4), a1 = Word(even + 4 + kHigh);
      const uint32_t a2 = __byte_perm(end_low, beside_low, r.codes);
      const uint32_t a3 = __byte_perm(end_high, beside_high, r.codes);
      const uint8_t* const odd = even + 36;
      const uint32_t b0 = Word(odd), b1 = Word(odd + kHigh);
      const uint32_t b2 = Word(odd + 16), b3 = Word(odd + 16 + kHigh);
      const float low_factor =
          ScaleOf(__byte_perm(end_low, beside_low, r.scale));
      const float high_factor =
          ScaleOf(__byte_perm(end_high, beside_high, r.scale));
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        int c[4] = {};
        const uint2 v = x.Of(t, 2 * pair), w = x.Of(t, 2 * pair + 1);
        MmaInt8(c, a0, a1, a2, a3, v.x, v.y);
        MmaInt8(c, b0, b1, b2, b3, w.x, w.y);
        added[t][0] = fmaf(Low(c), low_factor, added[t][0]);
        added[t][1] = fmaf(High(c), high_factor, added[t][1]);
      }
    }
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float scale = scales[(t == 0 ? 0 : min(t, x.last)) * spans];
      sums[t][0] = fmaf(added[t][0], scale, sums[t][0]);
      sums[t][1] = fmaf(added[t][1], scale, sums[t][1]);
    }
  }
};

template <>
struct VectorFormat<WeightFormat::kFp8Tile32> {
  using F = Fragment<WeightFormat::kFp8Tile32>;
  static constexpr int kPitch = 160;  // 8 bytes of four rows without conflicts
  using Walk = LineWalk<kPitch>;
  static constexpr bool kDigits = false;
  static constexpr FactorPlace kFactor = FactorPlace::kBeside;
  static constexpr int kCols = 128, kBlocks = 4;
  static constexpr float kPower = 1;
  static constexpr int kAligned = 32;
  static constexpr int kParts = 2;
  static constexpr int kPartBytes = 2;
  static constexpr int kPitchRest = 64;
  static constexpr int kTop = 14;

  static __device__ float4 Load(const float* x, int k, int cols) {
    return k < cols ? *reinterpret_cast<const float4*>(x + k)
                    : make_float4(0, 0, 0, 0);
  }

  // A tile of 8 columns is four tokens' two parts; lane 4g + t has the sums of
  // token t of each.
  struct Columns {
    __device__ Columns(const VectorParts& x, int, int piece, int pieces)
        : last(x.last) {
      const int lane = static_cast<int>(threadIdx.x % 32);
      token_step = kParts * x.pitch;
      of = x.parts + lane / 4 % 2 * x.pitch + 16 * (lane % 4) +
           kPartBytes * kCols * piece;
      token = lane / 8;
      step = kPartBytes * kCols * pieces;
    }
    __device__ void Advance() { of += step; }
    template <int kTokens>
    __device__ uint4 Of(int tile, int block) const {
      const int t = min(4 * tile + token, last);
      return *reinterpret_cast<const uint4*>(
          of + (kTokens == 1 ? 0 : t * token_step) + 64 * block);
    }
    const uint8_t* of;
    int token, token_step, step, last;
  };

  struct Reader {
    __device__ explicit Reader(const uint8_t*) {
      const int lane = static_cast<int>(threadIdx.x % 32);
      at = kPitch * (lane / 4) + 8 * (lane % 4);
    }
    int at;
  };

  // sums[tile]: of token 4 * tile + t.
  template <int kTokens, int kTiles = (kTokens + 3) / 4>
  static __device__ void Multiply(const Reader& r, const uint8_t* slot, int,
                                  const Columns& x, const float* scales,
                                  int spans, const PieceFactors& factors,
                                  float (&sums)[kTiles][2]) {
    float added[kTiles][2] = {};
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const uint8_t* const codes = slot + r.at + 32 * block;
      const uint2 low = *reinterpret_cast<const uint2*>(codes);
      const uint2 high = *reinterpret_cast<const uint2*>(codes + 8 * kPitch);
      const uint32_t low_words[2] = {low.x, low.y};
      const uint32_t high_words[2] = {high.x, high.y};
      uint32_t a[4], b[4];
      F::DecodeWords(low_words, a);
      F::DecodeWords(high_words, b);
      const uint8_t* const pair = factors.low + block / 2 * 2;
      const float low_factor = FactorOf(pair, block % 2);
      const float high_factor = FactorOf(pair + factors.to_high, block % 2);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4 v = x.template Of<kTokens>(tile, block);
        float c[4];
        MmaFromZero(c, a[0], b[0], a[1], b[1], v.x, v.y);
        Mma<false>(c, a[2], b[2], a[3], b[3], v.z, v.w);
        added[tile][0] = fmaf(c[0] + c[1], low_factor, added[tile][0]);
        added[tile][1] = fmaf(c[2] + c[3], high_factor, added[tile][1]);
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int t = static_cast<int>(threadIdx.x % 4);
      const float scale =
          scales[(kTokens == 1 ? 0 : min(4 * tile + t, x.last)) * spans];
      sums[tile][0] = fmaf(added[tile][0], scale, sums[tile][0]);
      sums[tile][1] = fmaf(added[tile][1], scale, sums[tile][1]);
    }
  }
};

}  // namespace ecphory::cuda
