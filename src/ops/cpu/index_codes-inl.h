// Index scores from FP4 codes; compiled once per Highway target.
//
// Rounded queries and keys are e2m1 codes with a power of two per 32 channels.
// Twice a code is an integer of at most 12 in magnitude, so that the products
// of a block add up exactly in 16 bits (32 * 144 = 4608), and one fp32
// multiply-add per block brings in the scales:
//   dot = sum over blocks, in order, of I * (key_scale * query_scale)
//
// Keys lie across the lanes, four channels of a key to a lane; queries are
// broadcast. Nothing is summed across lanes, and a key's score does not depend
// on its lane or on its neighbours. Keys are stored 12 higher, because the
// instructions multiply unsigned with signed bytes; the accumulators start 12 *
// (sum of the query's codes) lower.
//
// Bound by arithmetic: 64 products a cycle with AVX-512 on Zen 4. At 32 heads a
// token needs 4096 products a key and 68 bytes.
#if defined(ECPHORY_OPS_CPU_INDEX_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_INDEX_CODES_INL_H_
#undef ECPHORY_OPS_CPU_INDEX_CODES_INL_H_
#else
#define ECPHORY_OPS_CPU_INDEX_CODES_INL_H_
#endif

#include <cmath>

#include "ops/cpu/index_queries.h"
#include "ops/cpu/row_encode-inl.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vector-inl.h"
#include "ops/indexer.h"

// The targets that multiply unsigned with signed bytes in pairs or fours.
#undef ECPHORY_INDEX_CODES
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define ECPHORY_INDEX_CODES 1
#else
#define ECPHORY_INDEX_CODES 0
#endif

#if ECPHORY_INDEX_CODES
HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

constexpr size_t kBlockSteps = 8;  // of four channels each
constexpr int32_t kKeyOffset = 12;

using D8 = hn::Repartition<uint8_t, DF>;
using V8 = hn::Vec<D8>;
constexpr D8 kD8;

// The channels of a block in the order of the steps: of each eight the even
// ones, which are the low nibbles of four bytes, then the odd ones.
alignas(16) inline constexpr uint8_t kStepOrder[16] = {
    0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};

#if HWY_TARGET == HWY_AVX3_DL

using Dots = V32;  // sums of four products
HWY_INLINE Dots AddProducts(Dots sums, V8 keys, V8 query) {
  // Highway 1.0.3 does not enable VNNI for this target, but requires it.
  asm("vpdpbusd %2, %1, %0" : "+v"(sums.raw) : "v"(keys.raw), "v"(query.raw));
  return sums;
}
HWY_INLINE Dots StartOf(int32_t start) { return hn::Set(kD32, start); }
HWY_INLINE V32 SumOf(Dots sums) { return sums; }

#else

using D16 = hn::Repartition<int16_t, DF>;
using Dots = hn::Vec<D16>;  // sums of two products
#if HWY_TARGET == HWY_AVX2
HWY_INLINE Dots MulPairs(V8 keys, V8 query) {
  return Dots{_mm256_maddubs_epi16(keys.raw, query.raw)};
}
HWY_INLINE V32 SumOf(Dots sums) {
  return V32{_mm256_madd_epi16(sums.raw, _mm256_set1_epi16(1))};
}
#else
HWY_INLINE Dots MulPairs(V8 keys, V8 query) {
  return Dots{_mm512_maddubs_epi16(keys.raw, query.raw)};
}
HWY_INLINE V32 SumOf(Dots sums) {
  return V32{_mm512_madd_epi16(sums.raw, _mm512_set1_epi16(1))};
}
#endif
HWY_INLINE Dots AddProducts(Dots sums, V8 keys, V8 query) {
  sums = hn::Add(sums, MulPairs(keys, query));
  KeepInRegister(sums);
  return sums;
}
// |start| <= 12 * 384 fits the lower half of each lane.
HWY_INLINE Dots StartOf(int32_t start) {
  return hn::BitCast(D16(), hn::Set(kD32, start & 0xffff));
}

#endif

// --- Queries ----------------------------------------------------------------

// One block of a query: 32 codes, its accumulators' start and its scale.
HWY_INLINE void EncodeBlock(const float* x, int8_t* codes, int32_t* start,
                            float* scale) {
  const float top = BlockMax(x);
  const bool finite = std::isfinite(top);
  // The scale that rounding chose, or half of it: codes then are twice as
  // large.
  const uint8_t scale_code = finite ? Fp4ScaleCode(top) : 1;
  const VF twice = hn::Set(kF, 2 / E8M0ToF32(scale_code));
  alignas(64) int8_t in_order[kCodeBlock];
  V32 sum = hn::Zero(kD32);
  for (size_t i = 0; i < kCodeBlock; i += kLanes) {
    const VF value = finite ? hn::Mul(Load(x + i), twice) : hn::Zero(kF);
    const V32 code = hn::ConvertTo(kD32, value);
    sum = hn::Add(sum, code);
    hn::StoreU(hn::DemoteTo(hn::Rebind<int8_t, DF>(), code),
               hn::Rebind<int8_t, DF>(), in_order + i);
  }
  const hn::Full128<int8_t> d128;
  const auto order =
      hn::Load(d128, reinterpret_cast<const int8_t*>(kStepOrder));
  for (size_t i = 0; i < kCodeBlock; i += 16) {
    hn::StoreU(hn::TableLookupBytes(hn::Load(d128, in_order + i), order), d128,
               codes + i);
  }
  *start = -kKeyOffset * hn::GetLane(hn::SumOfLanes(kD32, sum));
  // A quarter, because codes of queries and keys are doubled.
  *scale = finite ? 0.25f * E8M0ToF32(scale_code)
                  : std::numeric_limits<float>::quiet_NaN();
}

// Rows [begin, end) of the queries [tokens * heads, dim].
HWY_INLINE void EncodeQueryRows(const IndexScoresArgs& args,
                                const IndexQueries& queries, size_t begin,
                                size_t end) {
  for (size_t i = begin * args.dim; i < end * args.dim; i += kCodeBlock) {
    const size_t block = i / kCodeBlock;
    EncodeBlock(args.q + i, queries.codes + i, queries.starts + block,
                queries.scales + block);
  }
}

// --- Keys -------------------------------------------------------------------

// The 16 bytes at `offset` of every fourth row from `rows` on.
template <class D>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const uint8_t* const* rows,
                                 size_t offset) {
  if constexpr (hn::MaxLanes(D()) == 16) {
    return hn::LoadU(d, rows[0] + offset);
  } else {
    const hn::Half<D> half;
    constexpr size_t kHalfRows = hn::MaxLanes(half) / 4;
    return hn::Combine(d, LoadBlocks(half, rows + kHalfRows, offset),
                       LoadBlocks(half, rows, offset));
  }
}

// Writes the next two steps of a vector of keys: `codes` holds eight of a key's
// codes in each lane.
HWY_INLINE void StoreSteps(V8 codes, size_t stride, uint8_t* out) {
  alignas(16) static constexpr uint8_t kRaised[16] = {
      12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
  const V8 table = hn::LoadDup128(kD8, kRaised);
  const V8 low = hn::Set(kD8, uint8_t{15});
  hn::Store(hn::TableLookupBytes(table, hn::And(codes, low)), kD8, out);
  hn::Store(hn::TableLookupBytes(table, hn::ShiftRight<4>(codes)), kD8,
            out + stride);
}

// Block `block` of a vector of keys, transposed: four bytes of a key a lane.
HWY_INLINE void StoreBlock(const uint8_t* const* rows, size_t block,
                           size_t stride, uint8_t* out) {
  const hn::Repartition<uint32_t, DF> d32;
  const hn::Repartition<uint64_t, DF> d64;
  const auto load = [&](size_t first) {
    return hn::BitCast(d32,
                       LoadBlocks(kD8, rows + first, block * (kCodeBlock / 2)));
  };
  const auto a = load(0), b = load(1), c = load(2), d = load(3);
  const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d32, a, b));
  const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d32, a, b));
  const auto cd_low = hn::BitCast(d64, hn::InterleaveLower(d32, c, d));
  const auto cd_high = hn::BitCast(d64, hn::InterleaveUpper(d32, c, d));
  const auto store = [&](size_t pair, auto codes) {
    StoreSteps(hn::BitCast(kD8, codes), stride, out + 2 * pair * stride);
  };
  store(0, hn::InterleaveLower(d64, ab_low, cd_low));
  store(1, hn::InterleaveUpper(d64, ab_low, cd_low));
  store(2, hn::InterleaveLower(d64, ab_high, cd_high));
  store(3, hn::InterleaveUpper(d64, ab_high, cd_high));
}

// The powers of two of e8m0 codes, one in each lane.
HWY_INLINE VF DecodeE8M0(hn::Vec<hn::RebindToUnsigned<DF>> codes) {
  const hn::RebindToUnsigned<DF> du;
  // 0 stands for 2^-127, which is subnormal, and 255 for NaN; their neighbours
  // are normal. Both have this bit and no other beside the exponent's.
  const auto next = hn::And(hn::Add(codes, hn::Set(du, 1u)), hn::Set(du, 255u));
  const auto is_edge = hn::Lt(next, hn::Set(du, 2u));
  const auto edge = hn::IfThenElseZero(is_edge, hn::Set(du, 0x00400000u));
  return hn::BitCast(kF, hn::Or(hn::ShiftLeft<23>(codes), edge));
}

// --- Scores -----------------------------------------------------------------

// A few keys, unpacked once and scored for any number of tokens.
class CodeTile {
 public:
  // With two heads: eight accumulators and as many sums in 32 registers, four
  // and four in 16.
  static constexpr size_t kVectors = HWY_TARGET == HWY_AVX2 ? 2 : 4;
  static constexpr size_t kKeys = kVectors * kLanes;

  CodeTile(const IndexScoresArgs& args, const IndexQueries& queries)
      : args_(args),
        queries_(queries),
        blocks_(args.dim / kCodeBlock),
        codes_(ThreadScratch<CodeTile, uint8_t>(kKeys * args.dim)),
        scales_(ThreadScratch<CodeTile>(kKeys * blocks_)) {}

  // rows[kKeys], any of them the same.
  void Load(const uint8_t* const* rows) {
    for (size_t block = 0; block < blocks_; ++block) {
      for (size_t v = 0; v < kVectors; ++v) {
        StoreBlock(rows + v * kLanes, block, kStride,
                   codes_ + block * kBlockSteps * kStride + v * kVectorBytes);
      }
    }
    for (size_t block = 0; block < blocks_; block += 4) {
      LoadScales(rows, block, std::min<size_t>(4, blocks_ - block));
    }
  }

  // scores[kKeys] of one token.
  void Score(size_t token, float* scores) const {
    VF totals[kVectors];
    for (VF& total : totals) total = hn::Zero(kF);
    size_t row = token * args_.heads;
    const size_t end = row + args_.heads;
    for (; row + 2 <= end; row += 2) AddHeads<2>(row, totals);
    if (row < end) AddHeads<1>(row, totals);
    const VF scale = hn::Set(kF, args_.key_scale * args_.head_scale);
    for (size_t v = 0; v < kVectors; ++v) {
      Store(hn::Mul(totals[v], scale), scores + v * kLanes);
    }
  }

 private:
  static constexpr size_t kVectorBytes = kLanes * 4;
  static constexpr size_t kStride = kVectors * kVectorBytes;  // of a step

  // The scales of n <= 4 blocks from `block` on.
  HWY_INLINE void LoadScales(const uint8_t* const* rows, size_t block,
                             size_t n) {
    const hn::RebindToUnsigned<DF> du;
    alignas(64) uint32_t words[kKeys];  // four codes of a key
    for (size_t i = 0; i < kKeys; ++i) {
      const uint8_t* const codes = rows[i] + args_.dim / 2 + block;
      if (n == 4) {
        std::memcpy(&words[i], codes, 4);
      } else {
        words[i] = 0;
        for (size_t b = 0; b < n; ++b) words[i] |= uint32_t{codes[b]} << 8 * b;
      }
    }
    for (size_t v = 0; v < kVectors; ++v) {
      auto codes = hn::Load(du, words + v * kLanes);
      for (size_t b = 0; b < n; ++b) {
        Store(DecodeE8M0(hn::And(codes, hn::Set(du, 255u))),
              scales_ + (block + b) * kKeys + v * kLanes);
        codes = hn::ShiftRight<8>(codes);
      }
    }
  }

  // totals += relu(q . k) * weight for query rows [row, row + kHeads).
  template <size_t kHeads>
  HWY_INLINE void AddHeads(size_t row, VF (&totals)[kVectors]) const {
    VF dots[kHeads][kVectors];
    for (size_t h = 0; h < kHeads; ++h) {
      for (size_t v = 0; v < kVectors; ++v) dots[h][v] = hn::Zero(kF);
    }
    for (size_t block = 0; block < blocks_; ++block) {
      AddBlock<kHeads>(row, block, dots);
    }
    for (size_t h = 0; h < kHeads; ++h) {
      const VF weight = hn::Set(kF, args_.weights[row + h]);
      for (size_t v = 0; v < kVectors; ++v) {
        // In this order a NaN stays one: x86 returns the second operand.
        const VF relu = hn::Max(hn::Zero(kF), dots[h][v]);
        totals[v] = hn::MulAdd(relu, weight, totals[v]);
      }
    }
  }

  template <size_t kHeads>
  HWY_INLINE void AddBlock(size_t row, size_t block,
                           VF (&dots)[kHeads][kVectors]) const {
    const size_t first = row * blocks_ + block;
    Dots sums[kHeads][kVectors];
    for (size_t h = 0; h < kHeads; ++h) {
      const Dots start = StartOf(queries_.starts[first + h * blocks_]);
      for (size_t v = 0; v < kVectors; ++v) sums[h][v] = start;
    }
    const uint8_t* keys = codes_ + block * kBlockSteps * kStride;
    const int8_t* query = queries_.codes + first * kCodeBlock;
#pragma GCC unroll 8
    for (size_t step = 0; step < kBlockSteps; ++step) {
      AddStep<kHeads>(keys + step * kStride, query + step * 4, sums);
    }
    const float* const key_scales = scales_ + block * kKeys;
    for (size_t h = 0; h < kHeads; ++h) {
      const VF scale = hn::Set(kF, queries_.scales[first + h * blocks_]);
      for (size_t v = 0; v < kVectors; ++v) {
        const VF both =
            hn::Mul(scale, HWY_NAMESPACE::Load(key_scales + v * kLanes));
        dots[h][v] =
            hn::MulAdd(hn::ConvertTo(kF, SumOf(sums[h][v])), both, dots[h][v]);
      }
    }
  }

  template <size_t kHeads>
  HWY_INLINE void AddStep(const uint8_t* keys, const int8_t* query,
                          Dots (&sums)[kHeads][kVectors]) const {
    V8 k[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      k[v] = hn::Load(kD8, keys + v * kVectorBytes);
      KeepInRegister(k[v]);
    }
    for (size_t h = 0; h < kHeads; ++h) {
      int32_t four;
      std::memcpy(&four, query + h * args_.dim, sizeof(four));
      const V8 q = hn::BitCast(kD8, hn::Set(kD32, four));
      for (size_t v = 0; v < kVectors; ++v) {
        sums[h][v] = AddProducts(sums[h][v], k[v], q);
      }
    }
  }

  const IndexScoresArgs& args_;
  const IndexQueries& queries_;
  const size_t blocks_;
  uint8_t* const codes_;  // [blocks, kBlockSteps, kVectors, kLanes, 4]
  float* const scales_;   // [blocks, kKeys]
};

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();
#endif  // ECPHORY_INDEX_CODES

#endif  // per-target guard
