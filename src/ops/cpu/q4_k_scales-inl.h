// The scales and mins of a Q4_K block (tensor/super_blocks.h); compiled once
// per Highway target.
#if defined(ECPHORY_OPS_CPU_Q4_K_SCALES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_Q4_K_SCALES_INL_H_
#undef ECPHORY_OPS_CPU_Q4_K_SCALES_INL_H_
#else
#define ECPHORY_OPS_CPU_Q4_K_SCALES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/cpu/decode-inl.h"
#include "tensor/super_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

// The arithmetic of Q4KScale and Q4KMin, a byte for each part: of the first
// four parts scales and then mins, of the last four likewise.
struct Q4KParts {
  HWY_INLINE explicit Q4KParts(const uint8_t* block) {
    const uint8_t* const packed = block + offsetof(Q4KBlock, scales);
    uint64_t six;   // six bits of the first four, and two bits of the others
    uint32_t four;  // the other four bits, a nibble of scale and one of min
    std::memcpy(&six, packed, sizeof(six));
    std::memcpy(&four, packed + sizeof(six), sizeof(four));
    // The mins' nibbles move to the upper half, each to the low bits of a byte.
    const uint64_t nibbles = four | uint64_t{four} << 28;
    first = six & 0x3f3f3f3f3f3f3f3f;
    last = (nibbles & 0x0f0f0f0f0f0f0f0f) | (six >> 2 & 0x3030303030303030);
  }
  uint64_t first, last;
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
// d * scale of the eight parts, then dmin * min.
HWY_INLINE VF Q4KScalesAndMins(const uint8_t* block) {
  alignas(32) static constexpr uint8_t kFactorOf[32] = {
      0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1,
      2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3};
  static_assert(offsetof(Q4KBlock, d) == 0 && offsetof(Q4KBlock, dmin) == 2);
  const Q4KParts parts(block);
  const __m128i bytes =
      _mm_unpacklo_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(parts.first)),
                         _mm_cvtsi64_si128(static_cast<int64_t>(parts.last)));
  const __m512 integers = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
  int32_t factors;
  std::memcpy(&factors, block, sizeof(factors));
  const __m256i halves = _mm256_shuffle_epi8(
      _mm256_set1_epi32(factors),
      _mm256_load_si256(reinterpret_cast<const __m256i*>(kFactorOf)));
  return VF{_mm512_mul_ps(integers, _mm512_cvtph_ps(halves))};
}

HWY_INLINE void StoreQ4KScalesAndMins(const uint8_t* block, float* out) {
  Store(Q4KScalesAndMins(block), out);
}
#else
HWY_INLINE void StoreQ4KScalesAndMins(const uint8_t* block, float* out) {
  const Q4KParts parts(block);
  const uint64_t bytes[2] = {
      (parts.first & 0xffffffff) | parts.last << 32,  // scales
      parts.first >> 32 | (parts.last & 0xffffffff00000000)};
  const float factors[2] = {DecodeOneF16(block + offsetof(Q4KBlock, d)),
                            DecodeOneF16(block + offsetof(Q4KBlock, dmin))};
  const hn::CappedTag<float, 8> d;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const hn::Rebind<int32_t, decltype(d)> d32;
  for (size_t k = 0; k < 2; ++k) {
    const uint8_t* const p = reinterpret_cast<const uint8_t*>(&bytes[k]);
    for (size_t i = 0; i < 8; i += hn::MaxLanes(d)) {
      const auto values =
          hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, p + i)));
      hn::StoreU(hn::Mul(values, hn::Set(d, factors[k])), d, out + 8 * k + i);
    }
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
