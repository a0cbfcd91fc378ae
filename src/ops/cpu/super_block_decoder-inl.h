// WeightDecoder of ggml's blocks of 256 values (tensor/super_blocks.h).
#if defined(ECPHORY_OPS_CPU_SUPER_BLOCK_DECODER_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_SUPER_BLOCK_DECODER_INL_H_
#undef ECPHORY_OPS_CPU_SUPER_BLOCK_DECODER_INL_H_
#else
#define ECPHORY_OPS_CPU_SUPER_BLOCK_DECODER_INL_H_
#endif

#include <array>
#include <bit>
#include <cstddef>

#include "ops/cpu/iq2_tables.h"
#include "ops/cpu/q4_k_scales-inl.h"
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
template <size_t kCount>
HWY_INLINE void KeepInMemory([[maybe_unused]] float (&values)[kCount]) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  asm volatile("" : "+m"(values));
#endif
}

// scale * code - min of 32 bytes, the low nibbles with the first scale and min,
// the high ones with the second, in their natural order. The product is exact,
// so that fused or not the value is the codec's.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
// A vector holds what each of the 16 codes stands for: decoding is one
// permutation, which ignores the bits above a code.
class Q4Decoder {
 public:
  HWY_INLINE Q4Decoder() {
    alignas(64) static constexpr float kValues[16] = {
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    values_ = hn::Load(kF, kValues);
    // Where the compiler sees that it is a constant it loads it each time.
    asm("" : "+v"(values_.raw));
  }
  template <class Sink>
  HWY_INLINE void operator()(const uint8_t* p, const float* scale,
                             const float* min, const Sink& sink) const {
    const VU first = LoadBytes(p);
    const VU second = LoadBytes(p + 16);
    const VF low = Table(scale[0], min[0]);
    sink(0, LookUp(low, first));
    sink(16, LookUp(low, second));
    const VF high = Table(scale[1], min[1]);
    sink(32, LookUp(high, hn::ShiftRight<4>(first)));
    sink(48, LookUp(high, hn::ShiftRight<4>(second)));
  }

 private:
  static HWY_INLINE VF LookUp(VF table, VU codes) {
    return VF{_mm512_permutexvar_ps(codes.raw, table.raw)};
  }
  HWY_INLINE VF Table(const float& scale, const float& min) const {
    return hn::MulSub(values_, InAllLanes(scale), InAllLanes(min));
  }
  // Loaded as an integer, which takes no permutation on Zen 4.
  static HWY_INLINE VF InAllLanes(const float& value) {
    __m512 lanes;
    asm("vpbroadcastd %1, %0" : "=v"(lanes) : "m"(value));
    return VF{lanes};
  }
  VF values_;
};
#else
class Q4Decoder {
 public:
  template <class Sink>
  HWY_INLINE void operator()(const uint8_t* p, const float* scale,
                             const float* min, const Sink& sink) const {
#pragma GCC unroll 2
    for (size_t part = 0; part < 2; ++part) {
      const VF scale_v = hn::Set(kF, scale[part]);
      const VF min_v = hn::Set(kF, min[part]);
#pragma GCC unroll 32
      for (size_t i = 0; i < 32; i += kLanes) {
        const VU bytes = LoadBytes(p + i);
        const VU code = part == 0 ? hn::And(bytes, hn::Set(kU, 15u))
                                  : hn::ShiftRight<4>(bytes);
        sink(32 * part + i, hn::MulSub(UnsignedToFloat(code), scale_v, min_v));
      }
    }
  }
};
#endif

template <>
class WeightDecoder<WeightFormat::kQ4_K> {
 public:
  using Lanes = DF;
  static constexpr size_t kBlock = kSuperBlock;
  static constexpr size_t kBlockBytes = sizeof(Q4KBlock);
  static constexpr size_t kSteps = 4;  // of 32 bytes, two parts
  static constexpr LaneOrder kOrder = LaneOrder::kNatural;
  WeightDecoder(const Matrix& weight, size_t row, size_t step = 1)
      : rows_(weight, row, step) {}
  template <size_t kRow = 0>
  HWY_INLINE void Open(size_t block) {
    StoreQ4KScalesAndMins(rows_.At<kRow>(block * kBlockBytes), parts_[kRow]);
    KeepInMemory(parts_[kRow]);
  }
  template <size_t kStep, size_t kRow = 0, class Sink>
  HWY_INLINE void Step(size_t block, const Sink& sink) const {
    const float* const scales = parts_[kRow] + 2 * kStep;
    decode_(rows_.At<kRow>(block * kBlockBytes + offsetof(Q4KBlock, codes) +
                           32 * kStep),
            scales, scales + 8, sink);
  }
  bool exact() const { return true; }

 private:
  RowBytes rows_;
  Q4Decoder decode_;
  float parts_[kRowsAtOnce][16];  // scales and mins of the open block
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
// The lookup of one of four floats within each 128 bits is an instruction that
// takes the low 2 bits of a lane for the index. So a table vector holds, in
// each 128 bits, what the codes of one part stand for, and 4 bytes of codes in
// a lane are 16 indices, shift by shift: nothing has to be widened.
template <>
class WeightDecoder<WeightFormat::kQ2_K> {
 public:
  using Lanes = DF;
  static constexpr size_t kBlock = kSuperBlock;
  static constexpr size_t kBlockBytes = sizeof(Q2KBlock);
  // Of four vectors: the codes of one shift in as many bytes as a vector has.
  static constexpr size_t kSteps = kBlock / (4 * kLanes);
  static constexpr LaneOrder kOrder = LaneOrder::kPartBlocks;
  WeightDecoder(const Matrix& weight, size_t row, size_t step = 1)
      : rows_(weight, row, step) {
    for (size_t l = 0; l < kLanes; ++l) {
      place_[l] = static_cast<int32_t>(l / 8 * 8 + l % 4 * 2 + l / 4 % 2);
    }
  }
  template <size_t kRow = 0>
  HWY_INLINE void Open(size_t block) {
    const uint8_t* const p = rows_.At<kRow>(block * kBlockBytes);
    const VF d = hn::Set(kF, DecodeOneF16(p + offsetof(Q2KBlock, d)));
    const VF dmin = hn::Set(kF, DecodeOneF16(p + offsetof(Q2KBlock, dmin)));
    OpenParts<kRow, 0>(p, d, dmin);
    if constexpr (kLanes == 8) OpenParts<kRow, 1>(p, d, dmin);
  }
  template <size_t kStep, size_t kRow = 0, class Sink>
  HWY_INLINE void Step(size_t block, const Sink& sink) const {
    constexpr int kShift = kStep % 4;
    const uint8_t* const codes =
        rows_.At<kRow>(block * kBlockBytes + offsetof(Q2KBlock, codes) +
                       kStep / 4 * 4 * kLanes);
    const VF values = hn::MulSub(Load(kCodes.data()),
                                 hn::Broadcast<kShift>(scale_[kRow][kStep / 4]),
                                 hn::Broadcast<kShift>(min_[kRow][kStep / 4]));
    // One byte on is a shift by 8. The last reads past the codes, into d.
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      const VU bits =
          hn::LoadU(kU, reinterpret_cast<const uint32_t*>(codes + i));
      sink(i * kLanes, LookUp(values, hn::ShiftRight<2 * kShift>(bits)));
    }
  }
  bool exact() const { return true; }

 private:
  static constexpr size_t kGroups = 16 / kLanes;  // vectors of 16 parts
  static constexpr std::array<float, kLanes> kCodes = [] {
    std::array<float, kLanes> codes{};
    for (size_t i = 0; i < kLanes; ++i) codes[i] = i % 4;
    return codes;
  }();
  static HWY_INLINE VF LookUp(VF values, VU bits) {
#if HWY_TARGET <= HWY_AVX3
    return VF{_mm512_permutevar_ps(values.raw, bits.raw)};
#else
    return VF{_mm256_permutevar_ps(values.raw, bits.raw)};
#endif
  }
  // Scales and mins of as many parts as a vector has lanes: those of one shift
  // at the same place of each 128 bits.
  template <size_t kRow, size_t kGroup>
  HWY_INLINE void OpenParts(const uint8_t* p, VF d, VF dmin) {
    const VU stored =
        LoadBytes(p + offsetof(Q2KBlock, scales) + kGroup * kLanes);
    const VU packed =
        hn::TableLookupLanes(stored, hn::SetTableIndices(kU, place_));
    const VU low = hn::And(packed, hn::Set(kU, 15u));
    scale_[kRow][kGroup] = hn::Mul(UnsignedToFloat(low), d);
    min_[kRow][kGroup] =
        hn::Mul(UnsignedToFloat(hn::ShiftRight<4>(packed)), dmin);
  }

  RowBytes rows_;
  int32_t place_[kLanes];           // of a part's lane
  VF scale_[kRowsAtOnce][kGroups];  // of the open block
  VF min_[kRowsAtOnce][kGroups];
};
#else
template <>
class WeightDecoder<WeightFormat::kQ2_K> {
 public:
  using Lanes = DF;
  static constexpr size_t kBlock = kSuperBlock;
  static constexpr size_t kBlockBytes = sizeof(Q2KBlock);
  static constexpr size_t kSteps = 8;  // of two parts
  static constexpr LaneOrder kOrder = LaneOrder::kNatural;
  WeightDecoder(const Matrix& weight, size_t row, size_t step = 1)
      : rows_(weight, row, step) {}
  template <size_t kRow = 0>
  HWY_INLINE void Open(size_t) {}
  template <size_t kStep, size_t kRow = 0, class Sink>
  HWY_INLINE void Step(size_t block, const Sink& sink) const {
    const uint8_t* const p = rows_.At<kRow>(block * kBlockBytes);
    const float d = DecodeOneF16(p + offsetof(Q2KBlock, d));
    const float dmin = DecodeOneF16(p + offsetof(Q2KBlock, dmin));
    const uint8_t* const codes = p + offsetof(Q2KBlock, codes) + kStep / 4 * 32;
    for (size_t i = 0; i < 32; i += kLanes) {
      const uint8_t packed = p[offsetof(Q2KBlock, scales) + 2 * kStep + i / 16];
      const VF scale = hn::Set(kF, d * static_cast<float>(packed & 15));
      const VF min = hn::Set(kF, dmin * static_cast<float>(packed >> 4));
      const VU code = hn::And(
          hn::ShiftRight<kStep % 4 * 2>(LoadBytes(codes + i)), hn::Set(kU, 3u));
      sink(i, hn::MulSub(UnsignedToFloat(code), scale, min));
    }
  }
  bool exact() const { return true; }

 private:
  RowBytes rows_;
};
#endif

// A value is a magnitude of the grid, times the scale, with its sign changed.
// Eight at a time on every target: of 16 half would have to be inserted, and
// these 8 cost three instructions beside the two indices.
template <>
class WeightDecoder<WeightFormat::kIQ2_XXS> {
 public:
  using Lanes = hn::CappedTag<float, 8>;
  static constexpr size_t kBlock = kSuperBlock;
  static constexpr size_t kBlockBytes = sizeof(Iq2xxsBlock);
  static constexpr size_t kSteps = 8;  // parts
  static constexpr LaneOrder kOrder = LaneOrder::kNatural;
  WeightDecoder(const Matrix& weight, size_t row, size_t step = 1)
      : rows_(weight, row, step) {}
  template <size_t kRow = 0>
  HWY_INLINE void Open(size_t block) {
    d_[kRow] = DecodeOneF16(rows_.At<kRow>(block * kBlockBytes));
  }
  template <size_t kStep, size_t kRow = 0, class Sink>
  HWY_INLINE void Step(size_t block, const Sink& sink) const {
    uint64_t part;  // four entries, four sign indices, the scale
    std::memcpy(&part,
                rows_.At<kRow>(block * kBlockBytes +
                               offsetof(Iq2xxsBlock, parts) + 8 * kStep),
                sizeof(part));
    const Lanes d;
    const auto scale = hn::Set(d, d_[kRow] * kIq2xxsScales[part >> 60]);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const float* const magnitudes =
          Row(kIq2xxsFloatGrid, std::rotr(part, 8 * k - 5) & 0x1fe0);
      const float* const signs =
          Row(kIq2xxsSignBits, std::rotr(part, 32 + 7 * k - 5) & 0xfe0);
#pragma GCC unroll 8
      for (size_t i = 0; i < 8; i += hn::MaxLanes(d)) {
        const auto w = hn::Mul(hn::LoadU(d, magnitudes + i), scale);
        sink(8 * k + i, hn::Xor(w, hn::LoadU(d, signs + i)));
      }
    }
  }
  bool exact() const { return true; }

 private:
  // The row at a byte offset: a row's number times 32.
  template <class Table>
  static HWY_INLINE const float* Row(const Table& table, uint64_t offset) {
    static_assert(sizeof(table[0]) == 32);
    return reinterpret_cast<const float*>(
        reinterpret_cast<const uint8_t*>(table.data()) + offset);
  }

  RowBytes rows_;
  float d_[kRowsAtOnce];  // of the open block
};

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
