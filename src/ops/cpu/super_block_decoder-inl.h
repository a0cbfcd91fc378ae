// WeightDecoder of ggml's blocks of 256 values (tensor/super_blocks.h).
#if defined(ECPHORY_OPS_CPU_SUPER_BLOCK_DECODER_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_SUPER_BLOCK_DECODER_INL_H_
#undef ECPHORY_OPS_CPU_SUPER_BLOCK_DECODER_INL_H_
#else
#define ECPHORY_OPS_CPU_SUPER_BLOCK_DECODER_INL_H_
#endif

#include <array>
#include <cstddef>

#include "ops/cpu/iq2_tables.h"
#include "ops/cpu/weight_decoder-inl.h"
#include "tensor/super_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

using DU = hn::RebindToUnsigned<DF>;
using VU = hn::Vec<DU>;
constexpr DU kU;

// Bytes to lanes.
HWY_INLINE VU LoadBytes(const uint8_t* p) {
  return hn::PromoteTo(kU, hn::LoadU(hn::Rebind<uint8_t, DF>(), p));
}

HWY_INLINE VF UnsignedToFloat(VU v) {  // below 2^31
  return hn::ConvertTo(kF, hn::BitCast(hn::RebindToSigned<DF>(), v));
}

// Makes the compiler load `values` where they are used. It would rather keep
// them in a vector and permute each into all lanes, and permutations are what
// these decoders have too many of.
HWY_INLINE void KeepInMemory(const float* values) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  asm volatile("" : : "r"(values) : "memory");
#endif
}

// scale * code - min for codes of kBits bits: the low ones of each lane,
// whatever lies above. The product is exact, so that fused or not the value is
// the codec's. Where a vector holds a value for every code, decoding is a
// permutation.
template <size_t kBits>
class AffineCodes {
 public:
  HWY_INLINE AffineCodes(float scale, float min)
      : scale_(hn::Set(kF, scale)), min_(hn::Set(kF, min)) {
    if constexpr (kInTable) {
      scale_ = hn::MulSub(Load(kCodes.data()), scale_, min_);
    }
  }
  HWY_INLINE VF operator()(VU codes) const {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    return VF{_mm512_permutexvar_ps(codes.raw, scale_.raw)};
#else
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
    if constexpr (kInTable) {
      return VF{_mm256_permutevar8x32_ps(scale_.raw, codes.raw)};
    }
#endif
    const VU code = hn::And(codes, hn::Set(kU, (1u << kBits) - 1));
    return hn::MulSub(UnsignedToFloat(code), scale_, min_);
#endif
  }

 private:
  // One permutation ignores the bits above log2(kLanes).
  static constexpr bool kInTable =
      HWY_ARCH_X86 && (kLanes == 16 || (kLanes == 8 && kBits == 2));
  static constexpr std::array<float, 16> kCodes = [] {
    std::array<float, 16> codes{};
    for (size_t i = 0; i < 16; ++i) codes[i] = i % (1u << kBits);
    return codes;
  }();
  VF scale_;  // kInTable: the values of the codes
  VF min_;
};

template <>
class WeightDecoder<WeightFormat::kQ4_K> {
 public:
  static constexpr size_t kBlock = kSuperBlock;
  static constexpr size_t kBlockBytes = sizeof(Q4KBlock);
  static constexpr size_t kSteps = 4;  // of 32 bytes, two parts
  static constexpr LaneOrder kOrder = LaneOrder::kNatural;
  WeightDecoder(const Matrix& weight, size_t row) : rows_(weight, row) {}
  template <size_t kRow = 0>
  HWY_INLINE void Open(size_t block) {
    const uint8_t* const p = rows_.At<kRow>(block * kBlockBytes);
    UnpackScales(p, scale_[kRow], min_[kRow]);
    KeepInMemory(scale_[kRow]);
    KeepInMemory(min_[kRow]);
  }
  template <size_t kRow = 0, class Sink>
  HWY_INLINE void Step(size_t block, size_t step, const Sink& sink) const {
    const uint8_t* const codes = rows_.At<kRow>(
        block * kBlockBytes + offsetof(Q4KBlock, codes) + 32 * step);
    const float* const scale = scale_[kRow] + 2 * step;
    const float* const min = min_[kRow] + 2 * step;
    const AffineCodes<4> low(scale[0], min[0]);
    const AffineCodes<4> high(scale[1], min[1]);
#pragma GCC unroll 32
    for (size_t i = 0; i < 32; i += kLanes) {
      sink(i, low(LoadBytes(codes + i)));
    }
#pragma GCC unroll 32
    for (size_t i = 0; i < 32; i += kLanes) {
      sink(32 + i, high(hn::ShiftRight<4>(LoadBytes(codes + i))));
    }
  }
  bool exact() const { return true; }

 private:
  // The arithmetic of Q4KScale and Q4KMin on four bytes at a time.
  static HWY_INLINE void UnpackScales(const uint8_t* p, float* scale,
                                      float* min) {
    uint32_t packed[3];
    std::memcpy(packed, p + offsetof(Q4KBlock, scales), sizeof(packed));
    const auto low = [](uint32_t v) { return v & 0x3f3f3f3fu; };
    const auto top = [](uint32_t v) { return v >> 2 & 0x30303030u; };
    const uint32_t scales[2] = {low(packed[0]),
                                (packed[2] & 0x0f0f0f0fu) | top(packed[0])};
    const uint32_t mins[2] = {low(packed[1]),
                              (packed[2] >> 4 & 0x0f0f0f0fu) | top(packed[1])};
    StoreScaled(scales, DecodeOneF16(p + offsetof(Q4KBlock, d)), scale);
    StoreScaled(mins, DecodeOneF16(p + offsetof(Q4KBlock, dmin)), min);
  }
  static HWY_INLINE void StoreScaled(const uint32_t (&bytes)[2], float factor,
                                     float* out) {
    const uint64_t eight = bytes[0] | uint64_t{bytes[1]} << 32;
    const hn::CappedTag<float, 8> d;
    const hn::Rebind<uint8_t, decltype(d)> d8;
    const hn::Rebind<int32_t, decltype(d)> d32;
    const uint8_t* const p = reinterpret_cast<const uint8_t*>(&eight);
    for (size_t i = 0; i < 8; i += hn::MaxLanes(d)) {
      const auto values =
          hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, p + i)));
      hn::StoreU(hn::Mul(values, hn::Set(d, factor)), d, out + i);
    }
  }

  RowBytes rows_;
  float scale_[kRowsAtOnce][8];  // of the open block
  float min_[kRowsAtOnce][8];
};

template <>
class WeightDecoder<WeightFormat::kQ2_K> {
 public:
  static constexpr size_t kBlock = kSuperBlock;
  static constexpr size_t kBlockBytes = sizeof(Q2KBlock);
  static constexpr size_t kSteps = 4;  // of 16 bytes, four parts
  static constexpr LaneOrder kOrder = LaneOrder::kQuarters;
  WeightDecoder(const Matrix& weight, size_t row) : rows_(weight, row) {}
  template <size_t kRow = 0>
  HWY_INLINE void Open(size_t block) {
    const uint8_t* const p = rows_.At<kRow>(block * kBlockBytes);
    UnpackScales(p, scale_[kRow], min_[kRow]);
    KeepInMemory(scale_[kRow]);
    KeepInMemory(min_[kRow]);
  }
  // Bytes 16 step ..: of half step / 2 of the block, in each group of 32 values
  // part step % 2.
  template <size_t kRow = 0, class Sink>
  HWY_INLINE void Step(size_t block, size_t step, const Sink& sink) const {
    const uint8_t* const codes = rows_.At<kRow>(
        block * kBlockBytes + offsetof(Q2KBlock, codes) + 16 * step);
    const size_t part = step / 2 * 8 + step % 2;
    const float* const scale = scale_[kRow] + part;
    const float* const min = min_[kRow] + part;
    const AffineCodes<2> part0(scale[0], min[0]);
    const AffineCodes<2> part1(scale[2], min[2]);
    const AffineCodes<2> part2(scale[4], min[4]);
    const AffineCodes<2> part3(scale[6], min[6]);
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i += kLanes) {
      const VU bytes = LoadBytes(codes + i);
      sink(4 * i, part0(bytes));
      sink(4 * i + kLanes, part1(hn::ShiftRight<2>(bytes)));
      sink(4 * i + 2 * kLanes, part2(hn::ShiftRight<4>(bytes)));
      sink(4 * i + 3 * kLanes, part3(hn::ShiftRight<6>(bytes)));
    }
  }
  bool exact() const { return true; }

 private:
  static HWY_INLINE void UnpackScales(const uint8_t* p, float* scale,
                                      float* min) {
    const VF d = hn::Set(kF, DecodeOneF16(p + offsetof(Q2KBlock, d)));
    const VF dmin = hn::Set(kF, DecodeOneF16(p + offsetof(Q2KBlock, dmin)));
    for (size_t i = 0; i < 16; i += kLanes) {
      const VU packed = LoadBytes(p + offsetof(Q2KBlock, scales) + i);
      const VU low = hn::And(packed, hn::Set(kU, 15u));
      Store(hn::Mul(UnsignedToFloat(low), d), scale + i);
      Store(hn::Mul(UnsignedToFloat(hn::ShiftRight<4>(packed)), dmin), min + i);
    }
  }

  RowBytes rows_;
  float scale_[kRowsAtOnce][16];  // of the open block
  float min_[kRowsAtOnce][16];
};

// A value is a magnitude of the grid, times the scale, with its sign changed.
template <>
class WeightDecoder<WeightFormat::kIQ2_XXS> {
 public:
  static constexpr size_t kBlock = kSuperBlock;
  static constexpr size_t kBlockBytes = sizeof(Iq2xxsBlock);
  static constexpr size_t kSteps = 4;  // of two parts
  static constexpr LaneOrder kOrder = LaneOrder::kNatural;
  WeightDecoder(const Matrix& weight, size_t row) : rows_(weight, row) {}
  template <size_t kRow = 0>
  HWY_INLINE void Open(size_t block) {
    d_[kRow] = DecodeOneF16(rows_.At<kRow>(block * kBlockBytes));
  }
  template <size_t kRow = 0, class Sink>
  HWY_INLINE void Step(size_t block, size_t step, const Sink& sink) const {
    TwoParts(rows_.At<kRow>(block * kBlockBytes + offsetof(Iq2xxsBlock, parts) +
                            16 * step),
             d_[kRow], sink);
  }
  bool exact() const { return true; }

 private:
  static HWY_INLINE uint32_t SignsAndScale(const uint8_t* part) {
    uint32_t word;
    std::memcpy(&word, part + 4, sizeof(word));
    return word;
  }
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  // 64 sign bits at once, and 16 at a time in a mask.
  template <class Sink>
  static HWY_INLINE void TwoParts(const uint8_t* part, float d,
                                  const Sink& sink) {
    const uint32_t words[2] = {SignsAndScale(part), SignsAndScale(part + 8)};
    const uint64_t signs =
        AllSigns(_pdep_u64(words[0], 0x7f7f7f7fu) |
                 _pdep_u64(words[1], uint64_t{0x7f7f7f7fu} << 32));
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      const VF scale = hn::Set(kF, d * kIq2xxsScales[words[i / 2] >> 28]);
      const uint8_t* const entries = part + i / 2 * 8 + i % 2 * 2;
      const hn::Half<DF> half;
      const VF magnitudes =
          hn::Combine(kF, hn::LoadU(half, kIq2xxsFloatGrid[entries[1]].data()),
                      hn::LoadU(half, kIq2xxsFloatGrid[entries[0]].data()));
      const VF w = hn::Mul(magnitudes, scale);
      const __mmask16 negative = static_cast<__mmask16>(signs >> (16 * i));
      sink(16 * i, VF{_mm512_mask_xor_ps(w.raw, negative, w.raw,
                                         _mm512_set1_ps(-0.0f))});
    }
  }
  // Eight times Iq2xxsSigns: from indices of 7 bits, one a byte.
  static HWY_INLINE uint64_t AllSigns(uint64_t indices) {
    uint64_t parity = indices ^ indices >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return indices | (parity & 0x0101010101010101u) << 7;
  }
#else
  template <class Sink>
  static HWY_INLINE void TwoParts(const uint8_t* part, float d,
                                  const Sink& sink) {
    for (size_t i = 0; i < 8; ++i) {
      const uint8_t* const p = part + i / 4 * 8;
      const uint32_t word = SignsAndScale(p);
      const VF scale = hn::Set(kF, d * kIq2xxsScales[word >> 28]);
      const float* const signs =
          kIq2xxsSignBits[word >> (7 * (i % 4)) & 127].data();
      const float* const magnitudes = kIq2xxsFloatGrid[p[i % 4]].data();
#pragma GCC unroll 8
      for (size_t k = 0; k < 8; k += kLanes) {
        sink(8 * i + k,
             hn::Xor(hn::Mul(Load(magnitudes + k), scale), Load(signs + k)));
      }
    }
  }
#endif

  RowBytes rows_;
  float d_[kRowsAtOnce];  // of the open block
};

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
