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

#if HWY_TARGET == HWY_AVX3_DL

// A byte has half of a grid entry: the digits of value 0, 1, 2 and 3 (or 4 to
// 7) in bits 4, 2, 0 and 6. So each of them but the last lies in the low 6 bits
// of a look-up, apart from the bit of its sign, which is bit 0, 1, 2 and 3 (or
// that after a shift by 4): one instruction puts both into an index, and no
// digit or sign is moved to a byte of its own.
inline constexpr int kIq2xxsDigitBits[4] = {4, 2, 0, 6};

struct Iq2xxsTables {
  constexpr Iq2xxsTables() : halves(), signs(), values() {
    for (size_t e = 0; e < 256; ++e) {
      for (size_t i = 0; i < 8; ++i) {
        halves[i / 4][e] |= static_cast<uint8_t>(
            (kIq2xxsCodes[e] >> (2 * i) & 3) << kIq2xxsDigitBits[i % 4]);
      }
    }
    for (uint32_t i = 0; i < 128; ++i) signs[i] = Iq2xxsSigns(i);
    for (size_t j = 0; j < 4; ++j) {
      // The last one's digit comes shifted right by 2.
      const int digit = j == 3 ? 4 : kIq2xxsDigitBits[j];
      for (size_t i = 0; i < 64; ++i) {
        const int size = kIq2xxsMagnitudes[(i >> digit & 3) % 3];
        values[j][i] =
            static_cast<uint8_t>(64 + ((i >> j & 1) != 0 ? -size : size));
      }
    }
  }
  alignas(64) uint8_t halves[2][256];  // by entry
  alignas(64) uint8_t signs[128];      // by sign index
  // The code by an index of 6 bits, for value j or 4 + j.
  alignas(64) uint8_t values[4][64];
};
inline constexpr Iq2xxsTables kIq2xxsTables;

// Two blocks are a vector of 64 entries, and the vector i of codes has value i
// of each: a 32-bit lane is a part throughout, and its sum is complete.
struct Iq2xxsShape : PlainParts {
  static constexpr size_t kGroup = 2 * kSuperBlock;
  static constexpr size_t kVectors = 8;
  static constexpr size_t kSpan = kGroup;
  static constexpr size_t kPiece = 4;
  static constexpr int kOffsetBits = 6;
  static constexpr size_t kAskedBytes = 2 * sizeof(Iq2xxsBlock);
  static constexpr size_t PartOf(size_t, size_t lane) { return lane; }
};

// The look-ups of two blocks, from which Codes<i>() takes what is value i of
// each entry.
struct Iq2xxsPair {
  HWY_INLINE void Open(const uint8_t* first, const uint8_t* second) {
    alignas(64) static constexpr int32_t kEven[16] = {
        0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
    const Iq2xxsTables* tables = &kIq2xxsTables;
    // Loaded here: kept in registers they would push out what is needed more.
    asm("" : "+r"(tables));
    VU8 a = Parts(first), b = Parts(second);
    KeepInRegister(a);
    KeepInRegister(b);
    const __m512i even = _mm512_load_si512(kEven);
    const __m512i entries = _mm512_permutex2var_epi32(a.raw, even, b.raw);
    const __m512i signs_scale = _mm512_permutex2var_epi32(
        a.raw, _mm512_or_si512(even, _mm512_set1_epi32(1)), b.raw);
    halves[0] = LookUp(tables->halves[0], entries);
    halves[1] = LookUp(tables->halves[1], entries);
    const __m512i indices = _mm512_multishift_epi64_epi8(
        _mm512_set1_epi64(0x352e2720150e0700), signs_scale);
    signs = _mm512_permutex2var_epi8(_mm512_load_si512(tables->signs), indices,
                                     _mm512_load_si512(tables->signs + 64));
    const VF fours{_mm512_cvtepi32_ps(_mm512_srli_epi32(signs_scale, 28))};
    const VF quarter = hn::Mul(BothF16(first, second), hn::Set(kF, 0.25f));
    scales = hn::Mul(hn::Add(fours, hn::Set(kF, 0.5f)), quarter);
  }
  template <size_t kValue>
  HWY_INLINE VU8 Codes() const {
    constexpr size_t j = kValue % 4;
    constexpr char kDigit = j == 1 ? 0x0c : j == 2 ? 0x03 : 0x30;
    __m512i digits = halves[kValue / 4], bits = signs;
    if constexpr (j == 3) digits = _mm512_srli_epi16(digits, 2);
    if constexpr (kValue >= 4) bits = _mm512_srli_epi16(bits, 4);
    // Digits where the mask says so, elsewhere signs.
    const __m512i index =
        _mm512_ternarylogic_epi64(_mm512_set1_epi8(kDigit), digits, bits, 0xca);
    return VU8{_mm512_permutexvar_epi8(
        index, _mm512_load_si512(kIq2xxsTables.values[j]))};
  }

  static HWY_INLINE VU8 Parts(const uint8_t* block) {
    return VU8{_mm512_loadu_si512(block + offsetof(Iq2xxsBlock, parts))};
  }
  static HWY_INLINE __m512i LookUp(const uint8_t* table, __m512i entries) {
    const auto half = [&](const uint8_t* from) HWY_ATTR {
      return _mm512_permutex2var_epi8(_mm512_load_si512(from), entries,
                                      _mm512_load_si512(from + 64));
    };
    return _mm512_mask_mov_epi8(half(table), _mm512_movepi8_mask(entries),
                                half(table + 128));
  }

  __m512i halves[2];
  __m512i signs;
  VF scales;  // of the parts
};

struct Iq2xxsCodes : Iq2xxsShape {
  using Shape = Iq2xxsShape;

  Iq2xxsCodes(const Matrix& weight, size_t row)
      : blocks(RowBytes(weight, row)) {}
  // In a row's last block, if it has none to go with, the block is both.
  HWY_INLINE void Begin(size_t c, size_t n) {
    group = blocks + c / kSuperBlock * sizeof(Iq2xxsBlock);
    pair.Open(group, n == kGroup ? group + sizeof(Iq2xxsBlock) : group);
  }
  HWY_INLINE VF Scales() const { return pair.scales; }
  template <size_t kVector>
  HWY_INLINE VU8 Vector() const {
    return pair.Codes<kVector>();
  }
  template <bool kWhole>
  HWY_INLINE void Step(size_t, size_t, VU8 (&out)[8]) const {
    out[0] = Vector<0>();
    out[1] = Vector<1>();
    out[2] = Vector<2>();
    out[3] = Vector<3>();
    out[4] = Vector<4>();
    out[5] = Vector<5>();
    out[6] = Vector<6>();
    out[7] = Vector<7>();
  }
  const uint8_t* blocks;
  const uint8_t* group = nullptr;
  Iq2xxsPair pair = {};
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
struct Iq2xxsShape : PlainParts {
  static constexpr size_t kGroup = kSuperBlock;
  static constexpr size_t kVectors = 2;
  static constexpr size_t kSpan = 2 * kStep;
  static constexpr int kOffsetBits = 6;
  static constexpr size_t kAskedBytes = sizeof(Iq2xxsBlock);
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
    const V8F halves = hn::Add(hn::LoadU(k8F, fours), hn::Set(k8F, 0.5f));
    return Widen(hn::Mul(halves, hn::Set(k8F, DecodeOneF16(group) * 0.25f)));
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
