// Rows of e4m3 codes to float lanes without their scales, for matvec_tiles;
// compiled once per Highway target. Values come in their natural order, in
// units of 1 / E4M3Rows::kUnit.
#if defined(ECPHORY_OPS_CPU_E4M3_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_E4M3_ROWS_INL_H_
#undef ECPHORY_OPS_CPU_E4M3_ROWS_INL_H_
#else
#define ECPHORY_OPS_CPU_E4M3_ROWS_INL_H_
#endif

#include "ops/cpu/code_tables.h"
#include "ops/cpu/decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3_DL

// A value is a bf16, of which one permutation looks up the high bytes of 64
// codes and another the low bytes; interleaved they are pairs of bf16, the two
// halves of a lane. NaN codes become NaN.
class E4M3Rows {
 public:
  static constexpr uint32_t kUnitExponent = 0;
  static constexpr float kUnit = 1;
  static constexpr size_t kBlock = 64;
  static constexpr size_t kBlockBytes = 64;
  HWY_INLINE E4M3Rows() {
    const E4M3Bytes& bytes = GetE4M3Bytes();
    for (size_t i = 0; i < 2; ++i) {
      high_[i] = _mm512_load_si512(bytes.high + 64 * i);
      low_[i] = _mm512_load_si512(bytes.low + 64 * i);
    }
    places_ = _mm512_load_si512(bytes.places);
  }
  template <size_t kValues, class Sink>
  HWY_INLINE void Decode(const uint8_t* p, const Sink& sink) const {
    static_assert(kValues == 64 || kValues == 32);
    const __m512i stored = kValues == 64
                               ? _mm512_loadu_si512(p)
                               : _mm512_zextsi256_si512(_mm256_loadu_si256(
                                     reinterpret_cast<const __m256i*>(p)));
    const __m512i codes = _mm512_permutexvar_epi8(places_, stored);
    const __m512i low = _mm512_permutex2var_epi8(low_[0], codes, low_[1]);
    // The sign is the codes' and the bf16's highest bit.
    const __m512i high = _mm512_ternarylogic_epi32(
        _mm512_permutex2var_epi8(high_[0], codes, high_[1]), codes,
        _mm512_set1_epi8(static_cast<char>(0x80)), 0xf8);  // a | (b & c)
    EmitPairs(_mm512_unpacklo_epi8(low, high), 0, sink);
    if constexpr (kValues == 64) {
      EmitPairs(_mm512_unpackhi_epi8(low, high), 32, sink);
    }
  }

 private:
  // Two vectors of values from one of pairs.
  template <class Sink>
  static HWY_INLINE void EmitPairs(__m512i pairs, size_t i, const Sink& sink) {
    const __m512i upper =
        _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(~0xffffu)));
    sink(i, VF{_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16))});
    sink(i + kLanes, VF{_mm512_castsi512_ps(upper)});
  }
  __m512i high_[2], low_[2];
  __m512i places_;
};

class E4M3Check {
 public:
  template <size_t kValues>
  HWY_INLINE void Look(const uint8_t*) {}
  HWY_INLINE bool exact() const { return true; }
};

#else

// Left out: the NaN codes (DecodeFiniteE4M3).
class E4M3Rows {
 public:
  static constexpr uint32_t kUnitExponent = 8;
  static constexpr float kUnit = kE4M3HalfUnit;
  static constexpr size_t kBlock = 32;
  static constexpr size_t kBlockBytes = 32;
  template <size_t kValues, class Sink>
  HWY_INLINE void Decode(const uint8_t* p, const Sink& sink) const {
#pragma GCC unroll 8
    for (size_t i = 0; i < kValues; i += kLanes) {
      sink(i, DecodeFiniteE4M3(p + i));
    }
  }
};

class E4M3Check {
 public:
  HWY_INLINE E4M3Check() {}
  template <size_t kValues>
  HWY_INLINE void Look(const uint8_t* p) {
    nan_.Look(p);
  }
  HWY_INLINE bool exact() const { return !nan_.found(); }

 private:
  E4M3NanDetector nan_;
};

#endif

// Other rows, of the same bits, for inputs that they suit (matvec_tiles).
#if HWY_TARGET == HWY_AVX2
// A code's seven bits at the place of fp32's lowest exponents, subnormal ones
// among them: two instructions less than by way of half precision. Where the
// thread takes subnormals for zeros they are of no use.
class FastE4M3Rows {
 public:
  static constexpr uint32_t kUnitExponent = 120;
  static constexpr float kUnit = 0x1p120f;
  static constexpr size_t kBlock = 32;
  static constexpr size_t kBlockBytes = 32;
  template <size_t kValues, class Sink>
  HWY_INLINE void Decode(const uint8_t* p, const Sink& sink) const {
#pragma GCC unroll 8
    for (size_t i = 0; i < kValues; i += kLanes) {
      const __m256i codes = _mm256_cvtepi8_epi32(
          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + i)));
      // The sign fills bits 27 and up; of them only bit 31 stays.
      const __m256i bits =
          _mm256_and_si256(_mm256_slli_epi32(codes, 20),
                           _mm256_set1_epi32(static_cast<int>(0x87f00000)));
      sink(i, VF{_mm256_castsi256_ps(bits)});
    }
  }
};
HWY_INLINE bool FastE4M3RowsWork() {
  constexpr unsigned kDenormalsAreZeros = 0x40;
  return (_mm_getcsr() & kDenormalsAreZeros) == 0;
}
#else
using FastE4M3Rows = E4M3Rows;
HWY_INLINE bool FastE4M3RowsWork() { return false; }
#endif

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
