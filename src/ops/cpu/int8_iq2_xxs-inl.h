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
#include "tensor/iq2_xxs.h"
#include "tensor/super_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

// What all targets share: codes have 64 added.
struct Iq2xxsBase : PlainParts {
  static constexpr size_t kGroup = kSuperBlock;
  static constexpr int kOffsetBits = 6;
  static constexpr size_t kAskedBytes = sizeof(Iq2xxsBlock);
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

// The eight signs of each index of seven, of which the last makes the number of
// negative ones even.
struct SignTable {
  constexpr SignTable() : bytes() {
    for (uint32_t i = 0; i < 128; ++i) bytes[i] = Iq2xxsSigns(i);
  }
  alignas(64) uint8_t bytes[128];
};
inline constexpr SignTable kSigns;

// A part is a 64-bit lane throughout: 4 entries, then 4 sign indices of 7 bits
// and the scale. The vector v of a block has entry v of each part.
struct Iq2xxsShape : Iq2xxsBase {
  static constexpr size_t kVectors = 4;
  static constexpr size_t kSpan = kGroup;
  static constexpr size_t kPiece = 8;
  static constexpr size_t PartOf(size_t, size_t lane) { return lane / 2; }
};

struct Iq2xxsCodes : Iq2xxsShape {
  using Shape = Iq2xxsShape;

  Iq2xxsCodes(const Matrix& weight, size_t row)
      : blocks(RowBytes(weight, row)), last(weight.cols / kSuperBlock - 1) {
    for (size_t b = 0; b < kAhead; ++b) UnpackSigns(b);
  }
  HWY_INLINE void Begin(size_t c, size_t) {
    block = c / kSuperBlock;
    UnpackSigns(block + kAhead);
    group = blocks + block * sizeof(Iq2xxsBlock);
    // Of each entry the 16-bit lane that begins with it: the look-up ignores
    // what lies above.
    grid = GridCodes(_mm512_multishift_epi64_epi8(
        _mm512_set1_epi64(0x2018181010080800), Parts(group)));
  }
  HWY_INLINE VF Scales() const {
    const V8F fours{_mm256_cvtepi32_ps(
        _mm512_cvtepi64_epi32(_mm512_srli_epi64(Parts(group), 60)))};
    return ScalesOf(fours, group);
  }
  template <bool kWhole>
  HWY_INLINE void Step(size_t, size_t, VU8 (&out)[4]) const {
    const uint64_t* const signs = negative[block % kSlots];
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; ++v) {
      // Each digit of an entry is shifted to a byte.
      const __m512i digits = _mm512_multishift_epi64_epi8(
          _mm512_set1_epi64(0x0e0c0a0806040200 +
                            static_cast<int64_t>(v) * 0x1010101010101010),
          grid);
      const __m512i codes =
          _mm512_permutexvar_epi8(digits, _mm512_load_si512(kDigits.bytes));
      out[v] = VU8{_mm512_mask_sub_epi8(
          codes, signs[v], _mm512_set1_epi8(static_cast<char>(128)), codes)};
    }
  }

  static HWY_INLINE __m512i Parts(const uint8_t* from) {
    return _mm512_loadu_si512(from + offsetof(Iq2xxsBlock, parts));
  }
  // Some blocks before they are needed: a mask that is loaded where a vector
  // has just been stored waits for long. Behind a row's end its last again.
  HWY_INLINE void UnpackSigns(size_t at) {
    // Byte v of each part goes to the vector v.
    alignas(64) static constexpr uint8_t kPlaces[64] = {
        0, 8,  16, 24, 32, 40, 48, 56, 1, 9,  17, 25, 33, 41, 49, 57,
        2, 10, 18, 26, 34, 42, 50, 58, 3, 11, 19, 27, 35, 43, 51, 59};
    const __m512i parts =
        Parts(blocks + HWY_MIN(at, last) * sizeof(Iq2xxsBlock));
    const __m512i indices =
        _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x352e2720), parts);
    const __m512i signs =
        _mm512_permutex2var_epi8(_mm512_load_si512(kSigns.bytes), indices,
                                 _mm512_load_si512(kSigns.bytes + 64));
    const __m512i placed =
        _mm512_permutexvar_epi8(_mm512_load_si512(kPlaces), signs);
    _mm256_store_si256(reinterpret_cast<__m256i*>(negative[at % kSlots]),
                       _mm512_castsi512_si256(placed));
  }
  static constexpr size_t kAhead = 3;  // blocks
  static constexpr size_t kSlots = 4;
  const uint8_t* blocks;
  size_t last;  // block of a row
  size_t block = 0;
  const uint8_t* group = nullptr;
  // Of a block; a bit a value, 64 for each vector of codes.
  alignas(32) uint64_t negative[kSlots][4];
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

// The first vector of a step has entries 0 and 1 of each part, the second 2 and
// 3.
struct Iq2xxsShape : Iq2xxsBase {
  static constexpr size_t kVectors = 2;
  static constexpr size_t kSpan = 2 * kStep;
  static constexpr size_t PartOf(size_t i, size_t lane) {
    return i * (kSpan / 32) + lane / 4;
  }
};

struct Iq2xxsCodes : Iq2xxsShape {
  using Shape = Iq2xxsShape;

  static constexpr size_t kParts = kSpan / 32;  // of a step

  Iq2xxsCodes(const Matrix& weight, size_t row)
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
