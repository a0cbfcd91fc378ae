// Codes and scales of the packed weight formats, for int8_dot-inl.h; compiled
// once per Highway target, of x86 with vectors.
//
// A class of codes reads one row, kGroup values at a time:
// - Begin(c, n) takes the group at c, or the n values that are left;
// - Scales() are then those of the group's parts; Mins(), of kMins classes,
//   what each part subtracts; XScales(x, c) and LoadXSums(x, c) what they are
//   multiplied with, of the rounded input;
// - Step(i, n, out) is the i-th step of the group, kSpan values in kVectors
//   vectors in the order of the rounded input; kWhole false: its first n
//   values, and zeros with the offset for the others;
// - PartOf(i, lane) is the part that a lane of step i belongs to;
// - kAskedBytes of a group, at `group`, are asked for ahead of time, as kAsks
//   says (Asks).
#if defined(ECPHORY_OPS_CPU_INT8_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_INT8_CODES_INL_H_
#undef ECPHORY_OPS_CPU_INT8_CODES_INL_H_
#else
#define ECPHORY_OPS_CPU_INT8_CODES_INL_H_
#endif

#include "ops/cpu/decode-inl.h"
#include "ops/cpu/int8_dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

using D32U8 = hn::Full256<uint8_t>;
using V32U8 = hn::Vec<D32U8>;
constexpr D32U8 k32U8;
using D8F = hn::CappedTag<float, 8>;
using V8F = hn::Vec<D8F>;
constexpr D8F k8F;

HWY_INLINE const uint8_t* RowBytes(const Matrix& weight, size_t row) {
  return weight.data + (weight.first_row + row) * weight.row_bytes();
}

// The same of a format with blocks of kBlockBytes, in place.
template <size_t kValues, size_t kBlockBytes>
HWY_INLINE const uint8_t* RowOfBlocks(const Matrix& weight, size_t row) {
  return weight.data +
         (weight.first_row + row) * (weight.cols / kValues * kBlockBytes);
}

template <size_t kCount, typename T>
HWY_INLINE void GatherFirst(const uint8_t* p, size_t stride,
                            T (&values)[kLanes]) {
#pragma GCC unroll 16
  for (size_t i = 0; i < kCount; ++i) {
    std::memcpy(&values[i], p + i * stride, sizeof(T));
  }
}

// values[i] = the T at p + i * stride, for i < count; zeros behind them. Groups
// are whole but for the last one of a row, which in rows of 1,280 or 2,304
// values is half of one.
template <typename T>
HWY_INLINE void Gather(const uint8_t* p, size_t stride, size_t count,
                       T (&values)[kLanes]) {
  if (HWY_LIKELY(count == kLanes)) {
    return GatherFirst<kLanes>(p, stride, values);
  }
  for (size_t i = 0; i < kLanes; ++i) values[i] = 0;
  if (count == kLanes / 2) return GatherFirst<kLanes / 2>(p, stride, values);
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(&values[i], p + i * stride, sizeof(T));
  }
}

// What all classes share but for blocks of 16 and mins.
struct PlainParts {
  static constexpr bool kMins = false;
  static constexpr Asks kAsks = Asks::kEarly;
  static HWY_INLINE const float* XScales(const Int8Row& x, size_t c) {
    return x.scales + c / 32;
  }
};

// Of 8 lanes, the rest zero.
HWY_INLINE VF Widen(V8F v) {
#if HWY_TARGET == HWY_AVX2
  return v;
#else
  return hn::ZeroExtendVector(kF, v);
#endif
}

#if HWY_TARGET == HWY_AVX3_DL
// The f16 at `first` in the first 8 lanes, that at `second` in the others.
HWY_INLINE VF BothF16(const uint8_t* first, const uint8_t* second) {
  const auto eight = [](const uint8_t* p) HWY_ATTR {
    int16_t code;
    std::memcpy(&code, p, sizeof(code));
    return _mm_set1_epi16(code);
  };
  return VF{_mm512_cvtph_ps(_mm256_inserti128_si256(
      _mm256_castsi128_si256(eight(first)), eight(second), 1))};
}
#endif

struct Q8Shape : PlainParts {
  static constexpr size_t kGroup = kLanes * 32;
  static constexpr size_t kVectors = 1;
  static constexpr size_t kSpan = kStep;
  static constexpr int kOffsetBits = 7;
  static constexpr size_t PartOf(size_t i, size_t lane) {
    return (i * kStep + lane * 4) / 32;
  }
};

struct Q8Codes : Q8Shape {
  using Shape = Q8Shape;
  static constexpr Asks kAsks = Asks::kEarlyOnIntel;
  static constexpr size_t kAskedBytes = kGroup / 32 * 34;

  Q8Codes(const Matrix& weight, size_t row)
      : blocks(RowOfBlocks<32, 34>(weight, row)) {}
  HWY_INLINE void Begin(size_t c, size_t n) {
    group = blocks + c / 32 * 34;
    count = n / 32;
  }
  HWY_INLINE VF Scales() const {
    alignas(64) uint16_t halves[kLanes];
    Gather(group, 34, count, halves);
    return DecodeF16(reinterpret_cast<const uint8_t*>(halves));
  }
  template <bool kWhole>
  HWY_INLINE void Step(size_t i, size_t, VU8 (&out)[1]) const {
#if HWY_TARGET == HWY_AVX2
    const VU8 codes = hn::LoadU(kU8, group + 34 * i + 2);
#else
    const V32U8 first = hn::LoadU(k32U8, group + 68 * i + 2);
    VU8 codes = hn::ZeroExtendVector(kU8, first);
    if constexpr (kWhole) {
      codes = hn::Combine(kU8, hn::LoadU(k32U8, group + 68 * i + 36), first);
    }
#endif
    out[0] = hn::Xor(codes, hn::Set(kU8, uint8_t{0x80}));
  }
  const uint8_t* blocks;
  const uint8_t* group = nullptr;
  size_t count = 0;  // of the group's blocks
};

// Twice the e2m1 values plus 16, by their codes; four times over, for look-ups
// by 6 bits of which 4 matter.
#define ECPHORY_E2M1_ROW \
  16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4
alignas(64) inline constexpr uint8_t kE2M1Codes[64] = {
    ECPHORY_E2M1_ROW, ECPHORY_E2M1_ROW, ECPHORY_E2M1_ROW, ECPHORY_E2M1_ROW};
#undef ECPHORY_E2M1_ROW

// The values of e8m0 codes, which are the exponents of these bits.
HWY_INLINE VF DecodeE8M0(hn::Vec<hn::RebindToUnsigned<DF>> bits) {
  const hn::RebindToUnsigned<DF> d32;
  // Code 0 is 2^-127, a subnormal, and 255 a NaN: not the zero and the infinity
  // that their bits are.
  const auto smallest = hn::Set(d32, 0x00400000u);
#if HWY_TARGET <= HWY_AVX3
  // By class, from bit 0: quiet NaN, NaN, zero, one, -infinity, infinity,
  // negative, positive. 0: the first operand; 1: the second; 3: NaN.
  const __m512i action = _mm512_set1_epi32(0x10301000);
  return VF{_mm512_fixupimm_ps(_mm512_castsi512_ps(smallest.raw),
                               _mm512_castsi512_ps(bits.raw), action, 0)};
#else
  const auto odd = hn::Or(hn::Eq(bits, hn::Zero(d32)),
                          hn::Eq(bits, hn::Set(d32, 0x7f800000u)));
  return hn::BitCast(kF, hn::Or(bits, hn::IfThenElseZero(odd, smallest)));
#endif
}
HWY_INLINE VF DecodeE8M0(hn::Vec<hn::Rebind<uint8_t, DF>> codes) {
  const hn::RebindToUnsigned<DF> d32;
  return DecodeE8M0(hn::ShiftLeft<23>(hn::PromoteTo(d32, codes)));
}

// Low nibbles, then high nibbles.
HWY_INLINE void LookUpNibbles(VU8 bytes, VU8 (&out)[2]) {
#if HWY_TARGET == HWY_AVX3_DL
  const __m512i table = _mm512_load_si512(kE2M1Codes);
  out[0] = VU8{_mm512_permutexvar_epi8(bytes.raw, table)};
  out[1] = VU8{_mm512_permutexvar_epi8(_mm512_srli_epi16(bytes.raw, 4), table)};
#else
  const VU8 table = hn::Load(kU8, kE2M1Codes);
  const VU8 low = hn::And(bytes, hn::Set(kU8, uint8_t{15}));
  out[0] = hn::TableLookupBytes(table, low);
  out[1] = hn::TableLookupBytes(table, hn::ShiftRight<4>(bytes));
#endif
}

// The 16 bytes at p, p + stride, ... that make a vector, of `count` of them.
template <bool kWhole>
HWY_INLINE VU8 LoadSixteens(const uint8_t* p, size_t stride, size_t count) {
#if HWY_TARGET == HWY_AVX2
  const hn::Full128<uint8_t> d16;
  const auto first = hn::LoadU(d16, p);
  if constexpr (!kWhole) return hn::ZeroExtendVector(kU8, first);
  return hn::Combine(kU8, hn::LoadU(d16, p + stride), first);
#else
  const auto load = [&](size_t i) HWY_ATTR {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i * stride));
  };
  __m512i bytes = _mm512_zextsi128_si512(load(0));
  if (kWhole || count > 1) bytes = _mm512_inserti32x4(bytes, load(1), 1);
  if (kWhole || count > 2) bytes = _mm512_inserti32x4(bytes, load(2), 2);
  if (kWhole) bytes = _mm512_inserti32x4(bytes, load(3), 3);
  return VU8{bytes};
#endif
}

// What the two formats of e2m1 codes share. The codes are of doubled values,
// which the scales of the rounded input make up for (int8_round.cc).
struct Fp4Shape : PlainParts {
  using DCodes = hn::Rebind<uint8_t, DF>;
  static constexpr size_t kGroup = kLanes * 32;
  static constexpr size_t kVectors = 2;
  static constexpr size_t kSpan = 2 * kStep;
  static constexpr int kOffsetBits = 4;
  static constexpr size_t PartOf(size_t i, size_t lane) {
    return i * (kSpan / 32) + lane / 4;
  }
};

struct Mxfp4Codes : Fp4Shape {
  using Shape = Fp4Shape;
  static constexpr Asks kAsks = Asks::kEarlyOnIntel;
  static constexpr size_t kAskedBytes = kGroup / 32 * 17;

  Mxfp4Codes(const Matrix& weight, size_t row)
      : blocks(RowOfBlocks<32, 17>(weight, row)) {}
  HWY_INLINE void Begin(size_t c, size_t n) {
    group = blocks + c / 32 * 17;
    count = n / 32;
  }
  HWY_INLINE VF Scales() const {
#if HWY_TARGET == HWY_AVX3_DL
    if (HWY_LIKELY(count % 8 == 0)) return LoadScales();
#endif
    alignas(16) uint8_t scales[kLanes];
    Gather(group, 17, count, scales);
    return DecodeE8M0(hn::Load(DCodes(), scales));
  }
#if HWY_TARGET == HWY_AVX3_DL
  // Of 16 blocks, or of 8: four times those of four, to the highest bytes of
  // their lanes.
  HWY_INLINE VF LoadScales() const {
    alignas(64) static constexpr uint8_t kFrom[64] = {
        0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 34, 0, 0, 0, 51,
        0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 34, 0, 0, 0, 51,
        0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 34, 0, 0, 0, 51,
        0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 34, 0, 0, 0, 51};
    const __m512i from = _mm512_load_si512(kFrom);
    const auto four = [&](__m512i others, size_t i) HWY_ATTR {
      return _mm512_mask_permutexvar_epi8(others, __mmask64{0x8888} << 16 * i,
                                          from,
                                          _mm512_loadu_si512(group + 68 * i));
    };
    __m512i codes = four(_mm512_setzero_si512(), 0);
    codes = four(codes, 1);
    if (count == kLanes) codes = four(four(codes, 2), 3);
    return DecodeE8M0(
        hn::Vec<hn::RebindToUnsigned<DF>>{_mm512_srli_epi32(codes, 1)});
  }
  // The codes of four blocks, the last of which ends 68 bytes on.
  static HWY_INLINE VU8 LoadFour(const uint8_t* p) {
    alignas(64) static constexpr uint8_t kFrom[64] = {
        1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33,
        35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50};
    const __m512i three = _mm512_permutexvar_epi8(_mm512_load_si512(kFrom),
                                                  _mm512_loadu_si512(p));
    // Of this load nothing but the last 16 bytes is touched.
    return VU8{_mm512_mask_loadu_epi64(three, 0xc0, p + 4)};
  }
#endif
  template <bool kWhole>
  HWY_INLINE void Step(size_t i, size_t n, VU8 (&out)[2]) const {
    const uint8_t* const p = group + i * (kSpan / 32) * 17;
#if HWY_TARGET == HWY_AVX3_DL
    if constexpr (kWhole) return LookUpNibbles(LoadFour(p), out);
#endif
    LookUpNibbles(LoadSixteens<kWhole>(p + 1, 17, n / 32), out);
  }
  const uint8_t* blocks;
  const uint8_t* group = nullptr;
  size_t count = 0;  // of the group's blocks
};

struct Fp4RowCodes : Fp4Shape {
  using Shape = Fp4Shape;
  static constexpr size_t kAskedBytes = kGroup / 2;

  Fp4RowCodes(const Matrix& weight, size_t row)
      : pairs(RowOfBlocks<32, 16>(weight, row)),
        scales(weight.scales + (weight.first_row + row) * (weight.cols / 32)) {}
  HWY_INLINE void Begin(size_t c, size_t n) {
    group = pairs + c / 2;
    group_scales = scales + c / 32;
    count = n / 32;
    // A line lasts for four groups, too long for the processor to see a run.
    _mm_prefetch(reinterpret_cast<const char*>(group_scales + 128),
                 _MM_HINT_T1);
  }
  HWY_INLINE VF Scales() const {
    if (HWY_LIKELY(count == kLanes)) {
      return DecodeE8M0(hn::LoadU(DCodes(), group_scales));
    }
    if (count <= 8) {
      uint64_t some = 0;
      std::memcpy(&some, group_scales, count);
      return DecodeE8M0(
          hn::Vec<DCodes>{_mm_cvtsi64_si128(static_cast<int64_t>(some))});
    }
    alignas(16) uint8_t some[kLanes];
    Gather(group_scales, 1, count, some);
    return DecodeE8M0(hn::Load(DCodes(), some));
  }
  template <bool kWhole>
  HWY_INLINE void Step(size_t i, size_t n, VU8 (&out)[2]) const {
    const uint8_t* const p = group + i * (kSpan / 2);
    LookUpNibbles(
        kWhole ? hn::LoadU(kU8, p) : LoadSixteens<false>(p, 16, n / 32), out);
  }
  const uint8_t* pairs;
  const uint8_t* scales;
  const uint8_t* group_scales = nullptr;
  const uint8_t* group = nullptr;
  size_t count = 0;  // of the group's blocks
};

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
