// Packed codes to float lanes; compiled once per Highway target. Values are
// exactly those of tensor/float_codec.h, except that the FP4 code of -0 decodes
// to +0.
#if defined(ECPHORY_OPS_CPU_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_DECODE_INL_H_
#undef ECPHORY_OPS_CPU_DECODE_INL_H_
#else
#define ECPHORY_OPS_CPU_DECODE_INL_H_
#endif

#include "ops/cpu/code_tables.h"
#include "ops/cpu/vector-inl.h"
#include "tensor/float_codec.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

// Vectors that hold a block of 32 values.
constexpr size_t kBlockVectors = 32 / kLanes;

HWY_INLINE VF DecodeBf16(const uint8_t* p) {
  const hn::Rebind<uint16_t, DF> d16;
  const hn::RebindToUnsigned<DF> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(kF, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

// Emulated targets convert half precision in software, without infinities and
// NaNs: they take the scalar definitions.
constexpr bool kNativeF16 =
    HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128;

HWY_INLINE float DecodeOneF16(const uint8_t* p) {
  if constexpr (!kNativeF16) {
    uint16_t code;
    std::memcpy(&code, p, sizeof(code));
    return F16ToF32(code);
  } else {
    const hn::CappedTag<float, 1> d1;
    const hn::Rebind<hwy::float16_t, decltype(d1)> d16;
    return hn::GetLane(hn::PromoteTo(
        d1, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p))));
  }
}

HWY_INLINE VF DecodeF16(const uint8_t* p) {
  if constexpr (!kNativeF16) {
    float values[kLanes];
    for (size_t i = 0; i < kLanes; ++i) values[i] = DecodeOneF16(p + 2 * i);
    return Load(values);
  }
  const hn::Rebind<hwy::float16_t, DF> d16;
  return hn::PromoteTo(
      kF, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
}

HWY_INLINE VF DecodeI8(const int8_t* p) {
  const hn::Rebind<int8_t, DF> d8;
  const hn::RebindToSigned<DF> d32;
  return hn::ConvertTo(kF, hn::PromoteTo(d32, hn::LoadU(d8, p)));
}

// e4m3 differs from half precision by its narrower exponent only: shifted into
// place its bits are a half that is 2^8 too small, subnormals included.
HWY_INLINE VF DecodeE4M3(const uint8_t* p) {
  if constexpr (!kNativeF16) {
    float values[kLanes];
    for (size_t i = 0; i < kLanes; ++i) values[i] = E4M3ToF32(p[i]);
    return Load(values);
  }
  const hn::Rebind<uint8_t, DF> d8;
  const hn::Rebind<uint16_t, DF> d16;
  const hn::Rebind<hwy::float16_t, DF> df16;
  const auto code = hn::PromoteTo(d16, hn::LoadU(d8, p));
  const auto magnitude = hn::And(code, hn::Set(d16, uint16_t{0x7f}));
  const auto sign = hn::ShiftLeft<8>(hn::Xor(code, magnitude));
  // 0x7f is NaN: 0x4000 fills up the half's exponent.
  const auto nan =
      hn::IfThenElseZero(hn::Eq(magnitude, hn::Set(d16, uint16_t{0x7f})),
                         hn::Set(d16, uint16_t{0x4000}));
  const auto bits = hn::Or(hn::Or(sign, nan), hn::ShiftLeft<7>(magnitude));
  return hn::Mul(hn::PromoteTo(kF, hn::BitCast(df16, bits)),
                 hn::Set(kF, 256.0f));
}

// The same without the NaN codes, in units of 2^-8 (kE4M3HalfUnit): a scale
// that is multiplied anyway takes up the 2^8.
constexpr float kE4M3HalfUnit = 256.0f;
HWY_INLINE VF DecodeFiniteE4M3(const uint8_t* p) {
  if constexpr (!kNativeF16) {
    float values[kLanes];
    for (size_t i = 0; i < kLanes; ++i) {
      values[i] = E4M3ToF32(p[i]) / kE4M3HalfUnit;
    }
    return Load(values);
  }
  const hn::Rebind<int8_t, DF> d8;
  const hn::Rebind<int16_t, DF> d16;
  const hn::Rebind<hwy::float16_t, DF> df16;
  const auto code =
      hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(p)));
  // The sign fills bits 7 and up; bit 14, the exponent's highest, is cleared.
  const auto bits = hn::And(hn::ShiftLeft<7>(code),
                            hn::Set(d16, static_cast<int16_t>(0xbfff)));
  return hn::PromoteTo(kF, hn::BitCast(df16, bits));
}

// Whether a NaN code, 0x7f or 0xff, was among those looked at, 32 at a time:
// twice the code without its sign is the largest then.
class E4M3NanDetector {
 public:
  HWY_INLINE E4M3NanDetector() : largest_(hn::Zero(kBytes)) {}
  HWY_INLINE void Look(const uint8_t* p) {
    for (size_t i = 0; i < 32; i += hn::MaxLanes(kBytes)) {
      const auto codes = hn::LoadU(kBytes, p + i);
      largest_ = hn::Max(largest_, hn::Add(codes, codes));
    }
  }
  HWY_INLINE bool found() const {
    return !hn::AllFalse(kBytes,
                         hn::Eq(largest_, hn::Set(kBytes, uint8_t{0xfe})));
  }

 private:
  static constexpr hn::CappedTag<uint8_t, 32> kBytes{};
  hn::Vec<hn::CappedTag<uint8_t, 32>> largest_;
};

// 32 e2m1 codes as integers in units of 1/2, in the order of the elements.
enum class NibbleOrder {
  kPairs,  // low nibble = even element, high nibble = the next
  kHalves  // low nibbles = elements 0..15, high nibbles = 16..31
};
template <NibbleOrder kOrder>
HWY_INLINE void DecodeE2M1Halves(const uint8_t* p, int8_t* out) {
  alignas(16) static constexpr int8_t kTwice[16] = {
      0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
#if HWY_TARGET == HWY_SCALAR
  for (size_t i = 0; i < 16; ++i) {
    const bool halves = kOrder == NibbleOrder::kHalves;
    out[halves ? i : 2 * i] = kTwice[p[i] & 15];
    out[halves ? i + 16 : 2 * i + 1] = kTwice[p[i] >> 4];
  }
#else
  const hn::Full128<uint8_t> d8;
  const auto table = hn::Load(d8, reinterpret_cast<const uint8_t*>(kTwice));
  const auto bytes = hn::LoadU(d8, p);
  const auto low =
      hn::TableLookupBytes(table, hn::And(bytes, hn::Set(d8, uint8_t{15})));
  const auto high = hn::TableLookupBytes(table, hn::ShiftRight<4>(bytes));
  uint8_t* const bytes_out = reinterpret_cast<uint8_t*>(out);
  if constexpr (kOrder == NibbleOrder::kHalves) {
    hn::Store(low, d8, bytes_out);
    hn::Store(high, d8, bytes_out + 16);
  } else {
    hn::Store(hn::InterleaveLower(d8, low, high), d8, bytes_out);
    hn::Store(hn::InterleaveUpper(d8, low, high), d8, bytes_out + 16);
  }
#endif
}

// out = the 32 values at p times `scale`.
template <NibbleOrder kOrder>
HWY_INLINE void DecodeE2M1Block(const uint8_t* p, float scale, VF* out) {
  alignas(16) int8_t twice[32];
  DecodeE2M1Halves<kOrder>(p, twice);
  const VF half_scale = hn::Set(kF, 0.5f * scale);
#pragma GCC unroll 8
  for (size_t v = 0; v < kBlockVectors; ++v) {
    out[v] = hn::Mul(DecodeI8(twice + v * kLanes), half_scale);
  }
}

// 32 e2m1 codes at a time, times the scale of an e8m0 code: operator() calls
// sink(i, w) with w the values at the places i ... of the decoder's order.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
// A vector holds what each code stands for, scaled, and one permutation looks
// up as many as it has lanes. It ignores the bits above a code. The codes of
// eight bytes are loaded into every pair of lanes and shifted into place, which
// leaves the units that permute to the look-ups (17 % faster on Zen 4 than
// widening bytes to lanes).
template <NibbleOrder kOrder>
class E2M1Decoder {
 public:
  // The element in each lane of the two vectors.
  struct Places {
    constexpr Places() : element() {
      for (int i = 0; i < 32; ++i) {
        const int nibble = Nibble(i % 16 / 2);
        const int byte = i / 16 * 8 + i % 2 * 4 + nibble / 2;
        element[i] = kOrder == NibbleOrder::kPairs ? 2 * byte + nibble % 2
                                                   : nibble % 2 * 16 + byte;
      }
    }
    // Of a lane's four bytes, for the pairs of lanes in turn.
    static constexpr int Nibble(int pair) {
      return kOrder == NibbleOrder::kPairs ? pair : pair % 4 * 2 + pair / 4;
    }
    alignas(64) int32_t element[32];
  };
  static constexpr Places kPlaces{};

  HWY_INLINE E2M1Decoder() : e8m0_(GetCodeTables().e8m0.data()) {
    alignas(64) static constexpr float kValues[16] = {
        0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
        -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    alignas(64) int32_t shifts[16];
    for (int i = 0; i < 16; ++i) shifts[i] = 4 * Places::Nibble(i / 2);
    shifts_ = _mm512_load_si512(shifts);
    values_ = hn::Load(kF, kValues);
    unscaled_ = _mm512_sub_epi32(_mm512_castps_si512(values_.raw),
                                 _mm512_set1_epi32(0x3f800000));  // 1.0
    // Where the compiler sees that they are constants it loads them each time.
    asm("" : "+v"(shifts_), "+v"(unscaled_));
  }
  template <class Sink>
  HWY_INLINE void operator()(const uint8_t* p, uint8_t scale,
                             const Sink& sink) const {
    const VF table = Scaled(scale);
#pragma GCC unroll 2
    for (size_t i = 0; i < 2; ++i) {
      const __m512i bytes = _mm512_broadcastq_epi64(
          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * i)));
      const __m512i codes = _mm512_srlv_epi32(bytes, shifts_);
      sink(i * kLanes, VF{_mm512_permutexvar_ps(codes, table.raw)});
    }
  }

 private:
  // The exponents are added, which any of the execution units can do, while
  // those that multiply have the products to form. Not where that leaves the
  // normal range.
  HWY_INLINE VF Scaled(uint8_t code) const {
    if (HWY_UNLIKELY(code < 2 || code > 252)) {
      return hn::Mul(values_, hn::Set(kF, e8m0_[code]));
    }
    constexpr __mmask16 kNonzero = 0xfefe;
    // As integers this is a load alone, as floats on Zen 4 a permutation too.
    __m512i exponent;
    asm("vpbroadcastd %1, %0" : "=v"(exponent) : "m"(e8m0_[code]));
    return VF{_mm512_castsi512_ps(
        _mm512_maskz_add_epi32(kNonzero, unscaled_, exponent))};
  }

  const float* e8m0_;
  __m512i shifts_;
  VF values_;
  __m512i unscaled_;  // values_ over 1.0, as exponents; zeros are not used
};
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
// A scaled value is a bf16, of which one look-up of bytes finds the high halves
// of 32 codes and another the low ones; interleaved they are pairs of bf16, the
// two halves of a lane. The low nibbles lie in the first 128 bits, the high
// ones in the others: half j of vector v has those of bytes v / 2 * 8 + v % 2 +
// 2 i in its lanes i (LaneOrder::kNibblePairs, kNibbleHalves).
template <NibbleOrder kOrder>
class E2M1Decoder {
 public:
  HWY_INLINE E2M1Decoder() : tables_(&GetScaledE2M1()) {}
  template <class Sink>
  HWY_INLINE void operator()(const uint8_t* p, uint8_t scale,
                             const Sink& sink) const {
    const ScaledE2M1::Bytes& table = tables_->by_scale[scale];
    const __m256i codes = _mm256_and_si256(
        _mm256_srlv_epi64(Twice(p), _mm256_setr_epi64x(0, 0, 4, 4)),
        _mm256_set1_epi8(15));
    const __m256i low = _mm256_shuffle_epi8(Twice(table.low), codes);
    const __m256i high = _mm256_shuffle_epi8(Twice(table.high), codes);
    EmitPairs(_mm256_unpacklo_epi8(low, high), 0, sink);
    EmitPairs(_mm256_unpackhi_epi8(low, high), 16, sink);
  }

 private:
  static HWY_INLINE __m256i Twice(const uint8_t* p) {
    return _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  // Two vectors of values from one of pairs.
  template <class Sink>
  static HWY_INLINE void EmitPairs(__m256i pairs, size_t i, const Sink& sink) {
    const __m256i upper =
        _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(~0xffffu)));
    sink(i, VF{_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16))});
    sink(i + kLanes, VF{_mm256_castsi256_ps(upper)});
  }
  const ScaledE2M1* tables_;
};
#else
template <NibbleOrder kOrder>
class E2M1Decoder {
 public:
  template <class Sink>
  HWY_INLINE void operator()(const uint8_t* p, uint8_t scale,
                             const Sink& sink) const {
    VF w[kBlockVectors];
    DecodeE2M1Block<kOrder>(p, GetCodeTables().e8m0[scale], w);
#pragma GCC unroll 8
    for (size_t v = 0; v < kBlockVectors; ++v) sink(v * kLanes, w[v]);
  }
};
#endif

HWY_INLINE void DecodeE4M3Block(const uint8_t* p, float scale, VF* out) {
  const VF scale_v = hn::Set(kF, scale);
#pragma GCC unroll 8
  for (size_t v = 0; v < kBlockVectors; ++v) {
    out[v] = hn::Mul(DecodeE4M3(p + v * kLanes), scale_v);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
