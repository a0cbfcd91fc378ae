// Codes of Q2_K times their 4-bit scales, for digits-inl.h; compiled once per
// Highway target, of x86 with VNNI.
#if defined(ECPHORY_OPS_CPU_DIGITS_Q2_K_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_DIGITS_Q2_K_INL_H_
#undef ECPHORY_OPS_CPU_DIGITS_Q2_K_INL_H_
#else
#define ECPHORY_OPS_CPU_DIGITS_Q2_K_INL_H_
#endif

#include <cstddef>

#include "ops/cpu/int8_codes-inl.h"
#include "tensor/super_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

// A code times its scale is at most 45, a byte again: so lanes add up a whole
// block, and the first eight of them have one block, the others the next. A
// vector has the codes of one shift in half of each block.
struct Q2KDigitShape {
  static constexpr size_t kGroup = 2 * kSuperBlock;
  static constexpr size_t kVectors = 8;
  static constexpr size_t kMinVectors = 2;  // of 16 parts
  static constexpr int kOffsetBits = 0;
  static constexpr size_t kAskedBytes = 2 * sizeof(Q2KBlock);
};

// Bits 0 to 3 of an index are a scale, 4 and 5 a code.
struct Q2KProducts {
  constexpr Q2KProducts() : bytes() {
    for (size_t i = 0; i < 64; ++i) {
      bytes[i] = static_cast<uint8_t>((i & 15) * (i >> 4));
    }
  }
  alignas(64) uint8_t bytes[64];
};
inline constexpr Q2KProducts kQ2KProducts;

// Of 16 parts of the one block and 16 of the other that of each byte of the
// first vector; those of the next are 2 further on.
struct Q2KPartOfByte {
  constexpr Q2KPartOfByte() : bytes() {
    for (size_t i = 0; i < 64; ++i) {
      bytes[i] = static_cast<uint8_t>(i / 32 * 16 + i % 32 / 16);
    }
  }
  alignas(64) uint8_t bytes[64];
};
inline constexpr Q2KPartOfByte kQ2KPartOfByte;

struct Q2KDigitCodes : Q2KDigitShape {
  using Shape = Q2KDigitShape;

  explicit Q2KDigitCodes(const uint8_t* row) : blocks(row) {}
  Q2KDigitCodes(const Matrix& weight, size_t row)
      : blocks(RowBytes(weight, row)) {}
  // In a row's last block, if it has none to go with, the block is both.
  HWY_INLINE void Begin(size_t c, size_t n) {
    const uint8_t* const block = Block(c);
    BeginBlocks(block, n == kGroup ? block + sizeof(Q2KBlock) : block);
  }
  // The two blocks of a group, or blocks of two rows.
  HWY_INLINE void BeginBlocks(const uint8_t* one, const uint8_t* other) {
    group = one;
    second = other;
    codes[0] = BothBlocks(offsetof(Q2KBlock, codes));
    codes[1] = BothBlocks(offsetof(Q2KBlock, codes) + 32);
    parts = _mm256_inserti128_si256(_mm256_castsi128_si256(Parts(group)),
                                    Parts(second), 1);
  }
  HWY_INLINE const uint8_t* Block(size_t c) const {
    return blocks + c / kSuperBlock * sizeof(Q2KBlock);
  }
  HWY_INLINE VF Scales() const {
    return BothF16(group + offsetof(Q2KBlock, d),
                   second + offsetof(Q2KBlock, d));
  }
  template <size_t kBlock>
  HWY_INLINE VF Mins() const {
    const float dmin =
        DecodeOneF16((kBlock == 0 ? group : second) + offsetof(Q2KBlock, dmin));
    const __m512i packed =
        _mm512_cvtepu8_epi32(_mm256_extracti128_si256(parts, kBlock));
    const VF mins{_mm512_cvtepi32_ps(_mm512_srli_epi32(packed, 4))};
    return hn::Mul(mins, hn::Set(kF, dmin));
  }
  // Four shifts of the first halves, then of the second.
  template <size_t kVector>
  HWY_INLINE VU8 Vector() const {
    constexpr size_t kHalf = kVector / 4, kShift = kVector % 4;
    const __m512i at =
        _mm512_add_epi8(_mm512_load_si512(kQ2KPartOfByte.bytes),
                        _mm512_set1_epi8(static_cast<char>(2 * kVector)));
    const __m512i scales =
        _mm512_permutexvar_epi8(at, _mm512_castsi256_si512(parts));
    // The codes to bits 4 and 5.
    __m512i moved = codes[kHalf];
    if constexpr (kShift < 2) moved = _mm512_slli_epi16(moved, 4 - 2 * kShift);
    if constexpr (kShift == 3) moved = _mm512_srli_epi16(moved, 2);
    const __m512i index =
        _mm512_ternarylogic_epi64(_mm512_set1_epi8(0x30), moved, scales, 0xca);
    return VU8{
        _mm512_permutexvar_epi8(index, _mm512_load_si512(kQ2KProducts.bytes))};
  }

  HWY_INLINE __m512i BothBlocks(size_t offset) const {
    const auto half = [&](const uint8_t* block) HWY_ATTR {
      return _mm256_loadu_si256(
          reinterpret_cast<const __m256i*>(block + offset));
    };
    return _mm512_inserti64x4(_mm512_castsi256_si512(half(group)), half(second),
                              1);
  }
  static HWY_INLINE __m128i Parts(const uint8_t* block) {
    return _mm_loadu_si128(
        reinterpret_cast<const __m128i*>(block + offsetof(Q2KBlock, scales)));
  }
  const uint8_t* blocks;
  const uint8_t* group = nullptr;
  const uint8_t* second = nullptr;
  __m512i codes[2] = {};  // of the first halves, of the second
  __m256i parts = {};     // scale and min of each
};

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
