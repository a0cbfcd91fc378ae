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

// An index of 6 bits has two values, each two bits of digit and one of sign, so
// that one instruction that puts an index together serves two values: of four
// values of an entry, which are a byte of digits,
// - the first two have their digits in bits 0 to 3, their signs in 4 and 5;
// - the others, after a shift by 2, digits in 2 to 5, signs in 0 and 1.
// Signs lie accordingly, those of the last four values after a shift by 2 too.
inline constexpr int kIq2xxsIndexDigits[4] = {0, 2, 2, 4};
inline constexpr int kIq2xxsIndexSigns[4] = {4, 5, 0, 1};

struct Iq2xxsTables {
  constexpr Iq2xxsTables() : halves(), signs(), values(), scales() {
    for (size_t e = 0; e < 256; ++e) {
      halves[0][e] = static_cast<uint8_t>(kIq2xxsCodes[e] & 255);
      halves[1][e] = static_cast<uint8_t>(kIq2xxsCodes[e] >> 8);
    }
    for (uint32_t i = 0; i < 128; ++i) {
      for (size_t v = 0; v < 8; ++v) {
        const int to = kIq2xxsIndexSigns[v % 4] + (v < 4 ? 0 : 2);
        signs[i] |= static_cast<uint8_t>((Iq2xxsSigns(i) >> v & 1) << to);
      }
    }
    for (size_t j = 0; j < 4; ++j) {
      for (size_t i = 0; i < 64; ++i) {
        const int size =
            kIq2xxsMagnitudes[(i >> kIq2xxsIndexDigits[j] & 3) % 3];
        const bool negative = (i >> kIq2xxsIndexSigns[j] & 1) != 0;
        values[j][i] = static_cast<uint8_t>(64 + (negative ? -size : size));
      }
    }
    for (size_t i = 0; i < 16; ++i) {
      scales[i] = (0.5f + static_cast<float>(i)) * 0.25f;
    }
  }
  alignas(64) uint8_t halves[2][256];  // by entry
  alignas(64) uint8_t signs[128];      // by sign index
  // The code by an index of 6 bits, for value j or 4 + j.
  alignas(64) uint8_t values[4][64];
  alignas(64) float scales[16];  // by 4-bit scale
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
  static constexpr Asks kAsks = Asks::kLate;
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
    const __m512i sign_indices = _mm512_multishift_epi64_epi8(
        _mm512_set1_epi64(0x352e2720150e0700), signs_scale);
    const __m512i signs =
        _mm512_permutex2var_epi8(_mm512_load_si512(tables->signs), sign_indices,
                                 _mm512_load_si512(tables->signs + 64));
    TakeHalf<0>(LookUp(tables->halves[0], entries), signs);
    TakeHalf<1>(LookUp(tables->halves[1], entries),
                _mm512_srli_epi16(signs, 2));
    const VF fours{_mm512_permutexvar_ps(_mm512_srli_epi32(signs_scale, 28),
                                         _mm512_load_ps(tables->scales))};
    scales = hn::Mul(fours, BothF16(first, second));
  }
  template <size_t kHalf>
  HWY_INLINE void TakeHalf(__m512i digits, __m512i signs) {
    // Digits where the mask says so, elsewhere signs.
    const auto index = [&](char mask, __m512i from) HWY_ATTR {
      return _mm512_ternarylogic_epi64(from, _mm512_set1_epi8(mask), signs,
                                       0xe2);
    };
    indices[2 * kHalf + 1] = index(0x3c, _mm512_srli_epi16(digits, 2));
    indices[2 * kHalf] = index(0x0f, digits);
  }
  template <size_t kValue>
  HWY_INLINE VU8 Codes() const {
    return VU8{_mm512_permutexvar_epi8(
        indices[kValue / 2],
        _mm512_load_si512(kIq2xxsTables.values[kValue % 4]))};
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

  __m512i indices[4];  // of two values each
  VF scales;           // of the parts
};

struct Iq2xxsCodes : Iq2xxsShape {
  using Shape = Iq2xxsShape;

  explicit Iq2xxsCodes(const uint8_t* row) : blocks(row) {}
  Iq2xxsCodes(const Matrix& weight, size_t row)
      : blocks(RowBytes(weight, row)) {}
  // In a row's last block, if it has none to go with, the block is both.
  HWY_INLINE void Begin(size_t c, size_t n) {
    group = Block(c);
    BeginBlocks(group, n == kGroup ? group + sizeof(Iq2xxsBlock) : group);
  }
  // The two blocks of a group, or blocks of two rows.
  HWY_INLINE void BeginBlocks(const uint8_t* first, const uint8_t* second) {
    pair.Open(first, second);
  }
  HWY_INLINE const uint8_t* Block(size_t c) const {
    return blocks + c / kSuperBlock * sizeof(Iq2xxsBlock);
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

// The grid's entries, eight bytes each.
struct GridTable {
  constexpr GridTable() : entries() {
    for (size_t e = 0; e < 256; ++e) {
      for (size_t i = 0; i < 8; ++i) {
        entries[e] |= uint64_t{kIq2xxsGrid[e][i]} << (8 * i);
      }
    }
  }
  uint64_t entries[256];
};
inline constexpr GridTable kGrid;

// The first vector of a step has entries 0 and 1 of each part, the second 2 and
// 3.
struct Iq2xxsShape : PlainParts {
  static constexpr size_t kGroup = kSuperBlock;
  static constexpr size_t kVectors = 2;
  static constexpr size_t kSpan = 2 * kStep;
  static constexpr int kOffsetBits = 6;
  static constexpr Asks kAsks = Asks::kLate;
  static constexpr size_t kAskedBytes = sizeof(Iq2xxsBlock);
  static constexpr size_t PartOf(size_t i, size_t lane) {
    return i * (kSpan / 32) + lane / 4;
  }
};

// For each byte of the vectors of a step, a block of 128 bits a part: which
// byte of the parts' signs has its sign, and in which bit.
struct Iq2xxsSignPlaces {
  constexpr Iq2xxsSignPlaces() : bytes(), bits() {
    for (size_t i = 0; i < kStep; ++i) {
      for (size_t v = 0; v < 2; ++v) {
        bytes[v][i] = static_cast<uint8_t>(i / 16 * 4 + 2 * v + i % 16 / 8);
      }
      bits[i] = static_cast<uint8_t>(1 << (i % 8));
    }
  }
  alignas(64) uint8_t bytes[2][kStep];
  alignas(64) uint8_t bits[kStep];
};
inline constexpr Iq2xxsSignPlaces kIq2xxsSignPlaces;

struct Iq2xxsCodes : Iq2xxsShape {
  using Shape = Iq2xxsShape;

  static constexpr size_t kParts = kSpan / 32;  // of a step

  Iq2xxsCodes(const Matrix& weight, size_t row)
      : blocks(RowBytes(weight, row)) {}
  HWY_INLINE void Begin(size_t c, size_t) {
    group = blocks + c / kSuperBlock * sizeof(Iq2xxsBlock);
    const hn::Full256<uint32_t> d;
    const hn::Repartition<uint8_t, decltype(d)> d8;
    const auto half = [&](size_t part) HWY_ATTR {
      return hn::LoadU(d, reinterpret_cast<const uint32_t*>(Part(part)));
    };
    const auto words = hn::ConcatOdd(d, half(4), half(0));
    const auto field = [&](auto shifted, uint32_t mask) HWY_ATTR {
      return hn::And(shifted, hn::Set(d, mask));
    };
    const auto indices = hn::BitCast(
        d8, hn::Or(hn::Or(field(words, 0x7f),
                          field(hn::ShiftLeft<1>(words), 0x7f00)),
                   hn::Or(field(hn::ShiftLeft<2>(words), 0x7f0000),
                          field(hn::ShiftLeft<3>(words), 0x7f000000))));
    // The eighth sign: whether the number of the others is odd.
    alignas(16) static constexpr uint8_t kOdd[16] = {
        0, 128, 128, 0, 128, 0, 0, 128, 128, 0, 0, 128, 0, 128, 128, 0};
    const auto folded = hn::And(hn::Xor(indices, hn::ShiftRight<4>(indices)),
                                hn::Set(d8, uint8_t{15}));
    hn::Store(
        hn::Or(indices, hn::TableLookupBytes(hn::LoadDup128(d8, kOdd), folded)),
        d8, signs);
    fours = hn::ConvertTo(k8F, hn::BitCast(hn::RebindToSigned<decltype(d)>(),
                                           hn::ShiftRight<28>(words)));
  }
  HWY_INLINE VF Scales() const {
    const V8F halves = hn::Add(fours, hn::Set(k8F, 0.5f));
    return Widen(hn::Mul(halves, hn::Set(k8F, DecodeOneF16(group) * 0.25f)));
  }
  template <bool kWhole>
  HWY_INLINE void Step(size_t i, size_t, VU8 (&out)[2]) const {
    const VU8 signs_here = StepSigns(i);
#pragma GCC unroll 2
    for (size_t v = 0; v < 2; ++v) {
      const VU8 codes =
          hn::Add(Entries(i * kParts, 2 * v), hn::Set(kU8, uint8_t{64}));
      const VU8 mirrored = hn::Sub(hn::Set(kU8, uint8_t{128}), codes);
      out[v] = hn::IfThenElse(Negative(signs_here, v), mirrored, codes);
    }
  }
#if HWY_TARGET == HWY_AVX2
  // The products of a step, with the signs on x: two pairs of 2 * 43 * 127 fit
  // into 16 bits.
  HWY_INLINE VI32 Sums(size_t i, const VU8 (&x)[2]) const {
    const VU8 signs_here = StepSigns(i);
    const auto pairs = [&](size_t v) HWY_ATTR {
      const VU8 sign = hn::Or(hn::VecFromMask(kU8, Negative(signs_here, v)),
                              hn::Set(kU8, uint8_t{1}));
      return _mm256_maddubs_epi16(Entries(i * kParts, 2 * v).raw,
                                  _mm256_sign_epi8(x[v].raw, sign.raw));
    };
    return VI32{_mm256_madd_epi16(_mm256_add_epi16(pairs(0), pairs(1)),
                                  _mm256_set1_epi16(1))};
  }
#endif
  HWY_INLINE VU8 StepSigns(size_t i) const {
    // No more than was stored at once: what lies across stores waits for them.
    const uint8_t* const p = signs + 4 * kParts * i;
#if HWY_TARGET == HWY_AVX2
    return VU8{_mm256_set1_epi64x(LoadWord(p))};
#else
    return hn::LoadDup128(kU8, p);
#endif
  }
  static HWY_INLINE int64_t LoadWord(const uint8_t* p) {
    int64_t word;
    std::memcpy(&word, p, sizeof(word));
    return word;
  }
  static HWY_INLINE hn::Mask<DU8> Negative(VU8 step_signs, size_t v) {
    return hn::TestBit(
        hn::TableLookupBytes(step_signs,
                             hn::Load(kU8, kIq2xxsSignPlaces.bytes[v])),
        hn::Load(kU8, kIq2xxsSignPlaces.bits));
  }
  // Two entries of each part of a step.
  HWY_INLINE VU8 Entries(size_t part, size_t entry) const {
    const auto two = [&](size_t j) HWY_ATTR {
      const auto at = [&](size_t k) {
        return reinterpret_cast<const double*>(kGrid.entries +
                                               Part(part + j)[entry + k]);
      };
      return _mm_castpd_si128(_mm_loadh_pd(_mm_load_sd(at(0)), at(1)));
    };
    const __m256i four =
        _mm256_inserti128_si256(_mm256_castsi128_si256(two(0)), two(1), 1);
#if HWY_TARGET == HWY_AVX2
    return VU8{four};
#else
    const __m256i others =
        _mm256_inserti128_si256(_mm256_castsi128_si256(two(2)), two(3), 1);
    return VU8{_mm512_inserti64x4(_mm512_castsi256_si512(four), others, 1)};
#endif
  }
  HWY_INLINE const uint8_t* Part(size_t j) const {
    return group + offsetof(Iq2xxsBlock, parts) + 8 * j;
  }
  const uint8_t* blocks;
  const uint8_t* group = nullptr;
  V8F fours;  // 4-bit scales of the parts
  alignas(
      32) uint8_t signs[kSuperBlock / 8] = {};  // of each entry, a bit a value
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
