// Codes and scales of Q4_K and Q2_K, as int8_codes-inl.h has those of blocks of
// 32; compiled once per Highway target, of x86 with vectors.
#if defined(ECPHORY_OPS_CPU_INT8_SUPER_CODES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_INT8_SUPER_CODES_INL_H_
#undef ECPHORY_OPS_CPU_INT8_SUPER_CODES_INL_H_
#else
#define ECPHORY_OPS_CPU_INT8_SUPER_CODES_INL_H_
#endif

#include <cstddef>

#include "ops/cpu/int8_codes-inl.h"
#include "ops/cpu/q4_k_scales-inl.h"
#include "tensor/super_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

// The bytes at p shifted right; of each the lowest bits are its own.
HWY_INLINE VU8 Shifted(const uint8_t* p, int shift) {
  const hn::Repartition<uint64_t, DU8> d64;
  const auto bytes = hn::BitCast(d64, hn::LoadU(kU8, p));
  return hn::BitCast(kU8, hn::ShiftRightSame(bytes, shift));
}

struct Q4KShape : PlainParts {
  static constexpr size_t kGroup = kSuperBlock;
  static constexpr bool kMins = true;
  static constexpr int kOffsetBits = 0;
  // Even parts are low nibbles, odd ones high nibbles, of 32 bytes.
#if HWY_TARGET == HWY_AVX2
  static constexpr size_t kVectors = 1;
  static constexpr size_t kSpan = kStep;
  static constexpr size_t PartOf(size_t i, size_t) { return i; }
#else
  // A quarter of a vector is half a part, and another vector has the other
  // half: all even parts are one step, all odd ones the next.
  static constexpr size_t kVectors = 2;
  static constexpr size_t kSpan = 2 * kStep;
  static constexpr size_t PartOf(size_t i, size_t lane) {
    return lane / 4 * 2 + i;
  }
#endif
  static HWY_INLINE const float* XSums(const Int8Row& x, size_t c) {
    return x.sums + c / 32;
  }
  // Of the group alone: what lies behind them may be anything.
  static HWY_INLINE VF LoadXSums(const Int8Row& x, size_t c) {
    return Widen(hn::LoadU(k8F, XSums(x, c)));
  }
};

struct Q4KCodes : Q4KShape {
  using Shape = Q4KShape;
  static constexpr size_t kAskedBytes = sizeof(Q4KBlock);

  Q4KCodes(const Matrix& weight, size_t row)
      : blocks(RowOfBlocks<kSuperBlock, sizeof(Q4KBlock)>(weight, row)) {}
#if HWY_TARGET == HWY_AVX2
  HWY_INLINE void Begin(size_t c, size_t) {
    const uint8_t* const block = blocks + c / kSuperBlock * sizeof(Q4KBlock);
    group = block + offsetof(Q4KBlock, codes);
    StoreQ4KScalesAndMins(block, parts);
  }
  HWY_INLINE VF Scales() const { return Load(parts); }
  HWY_INLINE VF Mins() const { return Load(parts + kLanes); }
  template <bool kWhole>
  HWY_INLINE void Step(size_t i, size_t, VU8 (&out)[1]) const {
    const VU8 shifted = Shifted(group + i / 2 * kStep, i % 2 == 0 ? 0 : 4);
    out[0] = hn::And(shifted, hn::Set(kU8, uint8_t{15}));
  }
  float parts[2 * kLanes] = {};
#else
  HWY_INLINE void Begin(size_t c, size_t) {
    const uint8_t* const block = blocks + c / kSuperBlock * sizeof(Q4KBlock);
    group = block + offsetof(Q4KBlock, codes);
    parts = Q4KScalesAndMins(block);
    const __m512i first = _mm512_loadu_si512(group);
    const __m512i second = _mm512_loadu_si512(group + 64);
    halves[0] = _mm512_shuffle_i64x2(first, second, _MM_SHUFFLE(2, 0, 2, 0));
    halves[1] = _mm512_shuffle_i64x2(first, second, _MM_SHUFFLE(3, 1, 3, 1));
  }
  // The mins behind the scales belong to no lane.
  HWY_INLINE VF Scales() const { return parts; }
  HWY_INLINE VF Mins() const {
    return VF{_mm512_maskz_shuffle_f32x4(0x00ff, parts.raw, parts.raw,
                                         _MM_SHUFFLE(3, 2, 3, 2))};
  }
  template <bool kWhole>
  HWY_INLINE void Step(size_t i, size_t, VU8 (&out)[2]) const {
#pragma GCC unroll 2
    for (size_t v = 0; v < 2; ++v) {
      const __m512i codes =
          i == 0 ? halves[v] : _mm512_srli_epi64(halves[v], 4);
      out[v] = VU8{_mm512_and_si512(codes, _mm512_set1_epi8(15))};
    }
  }
  VF parts = hn::Zero(kF);  // scales, then mins
  __m512i halves[2] = {};   // the bytes of first halves of parts, of second
#endif
  const uint8_t* blocks;
  const uint8_t* group = nullptr;
};

struct Q2KShape {
  static constexpr bool kMins = true;
  static constexpr size_t kPart = 16;
  static constexpr size_t kGroup = kLanes * kPart;  // a block, or half of one
  static constexpr Asks kAsks = Asks::kLate;
  static constexpr size_t kAskedBytes = kGroup * sizeof(Q2KBlock) / kSuperBlock;
  static constexpr size_t kVectors = 1;
  static constexpr size_t kSpan = kStep;
  static constexpr int kOffsetBits = 0;
  // Two parts in each 32 bytes of a pair of bits, 8 in each half block.
  static constexpr size_t PartOf(size_t i, size_t lane) {
    return lane / 8 * 8 + 2 * i + lane % 8 / 4;
  }
  static HWY_INLINE const float* XScales(const Int8Row& x, size_t c) {
    return x.half_scales + c / kPart;
  }
  static HWY_INLINE const float* XSums(const Int8Row& x, size_t c) {
    return x.half_sums + c / kPart;
  }
  static HWY_INLINE VF LoadXSums(const Int8Row& x, size_t c) {
    return Load(XSums(x, c));
  }
};

struct Q2KCodes : Q2KShape {
  using Shape = Q2KShape;
  using DParts = hn::Rebind<uint8_t, DF>;

  Q2KCodes(const Matrix& weight, size_t row)
      : blocks(RowOfBlocks<kSuperBlock, sizeof(Q2KBlock)>(weight, row)) {}
  HWY_INLINE void Begin(size_t c, size_t) {
    block = blocks + c / kSuperBlock * sizeof(Q2KBlock);
    const size_t half = c % kSuperBlock / 128;
    group = block + offsetof(Q2KBlock, codes) + half * 32;
    packed = hn::LoadU(DParts(), block + offsetof(Q2KBlock, scales) + half * 8);
  }
  HWY_INLINE VF Scales() const {
    const float d = DecodeOneF16(block + offsetof(Q2KBlock, d));
    const auto low = hn::And(packed, hn::Set(DParts(), uint8_t{15}));
    return hn::Mul(ToF32(low), hn::Set(kF, d));
  }
  HWY_INLINE VF Mins() const {
    const float dmin = DecodeOneF16(block + offsetof(Q2KBlock, dmin));
    return hn::Mul(ToF32(hn::ShiftRight<4>(packed)), hn::Set(kF, dmin));
  }
  template <bool kWhole>
  HWY_INLINE void Step(size_t i, size_t, VU8 (&out)[1]) const {
    const VU8 shifted = Shifted(group, static_cast<int>(2 * i));
    out[0] = hn::And(shifted, hn::Set(kU8, uint8_t{3}));
  }
  static HWY_INLINE VF ToF32(hn::Vec<DParts> bytes) {
    return hn::ConvertTo(kF, hn::PromoteTo(kI32, bytes));
  }
  const uint8_t* blocks;
  const uint8_t* block = nullptr;
  const uint8_t* group = nullptr;
  hn::Vec<DParts> packed = hn::Zero(DParts());  // scale and min of each part
};

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
