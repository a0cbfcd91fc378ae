// Codes and scales of IQ2_XXS, as int8_codes-inl.h has those of blocks of 32;
// compiled once per Highway target, of x86 with vectors.
#if defined(ECPHORY_OPS_CPU_INT8_IQ2_XXS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_INT8_IQ2_XXS_INL_H_
#undef ECPHORY_OPS_CPU_INT8_IQ2_XXS_INL_H_
#else
#define ECPHORY_OPS_CPU_INT8_IQ2_XXS_INL_H_
#endif

#include <cstddef>

#include "ops/cpu/int8_codes-inl.h"
#include "ops/cpu/scratch.h"
#include "tensor/iq2_xxs.h"
#include "tensor/super_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

// What all targets share. The first vector of a step has entries 0 and 1 of
// each part, the second 2 and 3; codes have 64 added.
struct Iq2xxsShape : PlainParts {
  static constexpr size_t kGroup = kSuperBlock;
  static constexpr size_t kVectors = 2;
  static constexpr size_t kSpan = 2 * kStep;
  static constexpr int kOffsetBits = 6;
  static constexpr size_t PartOf(size_t i, size_t lane) {
    return i * (kSpan / 32) + lane / 4;
  }
  // Of parts with the 4-bit scales `fours`.
  static HWY_INLINE VF ScalesOf(V8F fours, const uint8_t* d) {
    return Widen(hn::Mul(hn::Add(fours, hn::Set(k8F, 0.5f)),
                         hn::Set(k8F, DecodeOneF16(d) * 0.25f)));
  }
};

#if HWY_TARGET == HWY_AVX3_DL

// Magnitudes plus 64 by 2-bit digits, for look-ups by 6 bits of which 2 matter.
struct DigitTable {
  constexpr DigitTable() : bytes() {
    for (size_t i = 0; i < 64; ++i) {
      bytes[i] = static_cast<uint8_t>(64 + kIq2xxsMagnitudes[i % 4 % 3]);
    }
  }
  alignas(64) uint8_t bytes[64];
};
inline constexpr DigitTable kDigits;

// The grid's 32 codes at 32 indices of 16 bits: the grid is in 8 registers.
HWY_INLINE __m512i GridCodes(__m512i entries) {
  const auto look_up = [&](size_t first) HWY_ATTR {
    return _mm512_permutex2var_epi16(
        _mm512_loadu_si512(kIq2xxsCodes + first), entries,
        _mm512_loadu_si512(kIq2xxsCodes + first + 32));
  };
  const __mmask32 odd = _mm512_test_epi16_mask(entries, _mm512_set1_epi16(64));
  const __mmask32 upper =
      _mm512_test_epi16_mask(entries, _mm512_set1_epi16(128));
  const __m512i low = _mm512_mask_mov_epi16(look_up(0), odd, look_up(64));
  const __m512i high = _mm512_mask_mov_epi16(look_up(128), odd, look_up(192));
  return _mm512_mask_mov_epi16(low, upper, high);
}

// A part is 64 bits: 4 entries, then 4 sign indices of 7 bits and the scale.
//
// The signs of the whole row are unpacked first: masks are loaded eight bytes
// at a time, which waits for long when a vector has just been stored there.
struct Iq2xxsCodes : Iq2xxsShape {
  using Shape = Iq2xxsShape;
  static constexpr size_t kGroupBytes = sizeof(Iq2xxsBlock);

  struct Signs {  // of a block; a bit a value, 64 for each vector of codes
    alignas(32) uint64_t negative[4];
  };

  Iq2xxsCodes(const Matrix& weight, size_t row, size_t slot)
      : blocks(RowBytes(weight, row)) {
    struct Unpacked;
    const size_t count = weight.cols / kSuperBlock;
    Signs* const unpacked =
        ThreadScratch<Unpacked, Signs>(kInt8Rows * count) + slot * count;
    for (size_t b = 0; b < count; ++b) {
      UnpackSigns(Parts(blocks + b * sizeof(Iq2xxsBlock)), unpacked + b);
    }
    signs = unpacked;
  }
  HWY_INLINE void Begin(size_t c, size_t) {
    group = blocks + c / kSuperBlock * sizeof(Iq2xxsBlock);
    here = signs + c / kSuperBlock;
    grid = GridCodes(_mm512_cvtepu8_epi16(_mm512_cvtepi64_epi32(Parts(group))));
  }
  HWY_INLINE VF Scales() const {
    const V8F fours{_mm256_cvtepi32_ps(
        _mm512_cvtepi64_epi32(_mm512_srli_epi64(Parts(group), 60)))};
    return ScalesOf(fours, group);
  }
  static HWY_INLINE __m512i Parts(const uint8_t* block) {
    return _mm512_loadu_si512(block + offsetof(Iq2xxsBlock, parts));
  }
  static HWY_INLINE void UnpackSigns(__m512i parts, Signs* out) {
    // The bytes of each vector's entries, two of 4 parts.
    alignas(64) static constexpr uint8_t kPlaces[64] = {
        0,  1,  8,  9,  16, 17, 24, 25, 2,  3,  10, 11, 18, 19, 26, 27,
        32, 33, 40, 41, 48, 49, 56, 57, 34, 35, 42, 43, 50, 51, 58, 59};
    const __m512i seven = _mm512_and_si512(
        _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x352e2720), parts),
        _mm512_set1_epi8(0x7f));
    // The eighth sign makes their number even.
    const __m512i parity =
        _mm512_and_si512(_mm512_slli_epi16(_mm512_popcnt_epi8(seven), 7),
                         _mm512_set1_epi8(static_cast<char>(0x80)));
    const __m512i placed = _mm512_permutexvar_epi8(
        _mm512_load_si512(kPlaces), _mm512_or_si512(seven, parity));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out->negative),
                       _mm512_castsi512_si256(placed));
  }
  template <bool kWhole>
  HWY_INLINE void Step(size_t i, size_t, VU8 (&out)[2]) const {
    // Entries go to 64-bit lanes, where each digit is shifted to a byte.
    const __m512i first = _mm512_set_epi64(13, 12, 9, 8, 5, 4, 1, 0);
#pragma GCC unroll 2
    for (size_t v = 0; v < 2; ++v) {
      const __m512i places = _mm512_add_epi64(
          first, _mm512_set1_epi64(static_cast<int64_t>(16 * i + 2 * v)));
      const __m512i digits =
          _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x0e0c0a0806040200),
                                       _mm512_permutexvar_epi16(places, grid));
      const __m512i codes =
          _mm512_permutexvar_epi8(digits, _mm512_load_si512(kDigits.bytes));
      out[v] = VU8{_mm512_mask_sub_epi8(
          codes, here->negative[2 * i + v],
          _mm512_set1_epi8(static_cast<char>(128)), codes)};
    }
  }
  const uint8_t* blocks;
  const uint8_t* group = nullptr;
  const Signs* signs = nullptr;
  const Signs* here = nullptr;
  __m512i grid = _mm512_setzero_si512();
};

#else

// The grid's entries with 64 added to each value.
struct GridTable {
  constexpr GridTable() : entries() {
    for (size_t e = 0; e < 256; ++e) {
      for (size_t i = 0; i < 8; ++i) {
        entries[e] |= uint64_t{64u + kIq2xxsGrid[e][i]} << (8 * i);
      }
    }
  }
  uint64_t entries[256];
};
inline constexpr GridTable kGridPlus64;

struct Iq2xxsCodes : Iq2xxsShape {
  using Shape = Iq2xxsShape;
  static constexpr size_t kGroupBytes = sizeof(Iq2xxsBlock);

  static constexpr size_t kParts = kSpan / 32;  // of a step

  Iq2xxsCodes(const Matrix& weight, size_t row, size_t)
      : blocks(RowBytes(weight, row)) {}
  HWY_INLINE void Begin(size_t c, size_t) {
    group = blocks + c / kSuperBlock * sizeof(Iq2xxsBlock);
    for (size_t j = 0; j < 8; ++j) {
      uint32_t word;
      std::memcpy(&word, Part(j) + 4, sizeof(word));
      fours[j] = static_cast<float>(word >> 28);
      for (size_t k = 0; k < 4; ++k) {
        signs[j / kParts * 2 + k / 2][j % kParts * 2 + k % 2] =
            Iq2xxsSigns(word >> (7 * k) & 127);
      }
    }
  }
  HWY_INLINE VF Scales() const {
    return ScalesOf(hn::LoadU(k8F, fours), group);
  }
  template <bool kWhole>
  HWY_INLINE void Step(size_t i, size_t, VU8 (&out)[2]) const {
    for (size_t v = 0; v < 2; ++v) {
      alignas(64) uint64_t entries[2 * kParts];
      for (size_t j = 0; j < 2 * kParts; ++j) {
        entries[j] =
            kGridPlus64.entries[Part(i * kParts + j / 2)[2 * v + j % 2]];
      }
      const VU8 codes =
          hn::Load(kU8, reinterpret_cast<const uint8_t*>(entries));
      const VU8 mirrored = hn::Sub(hn::Set(kU8, uint8_t{128}), codes);
      out[v] = hn::IfThenElse(hn::LoadMaskBits(kU8, signs[2 * i + v]), mirrored,
                              codes);
    }
  }
  HWY_INLINE const uint8_t* Part(size_t j) const {
    return group + offsetof(Iq2xxsBlock, parts) + 8 * j;
  }
  const uint8_t* blocks;
  const uint8_t* group = nullptr;
  float fours[8] = {};  // 4-bit scales of the parts
  // Of each vector of codes, a bit a value.
  uint8_t signs[kSuperBlock / kStep][kStep / 8 < 8 ? 8 : kStep / 8] = {};
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
