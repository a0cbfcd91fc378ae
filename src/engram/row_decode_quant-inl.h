// Rows of bf16 and of ggml's blocks of 32; compiled once per Highway target
// that has vectors.
#if defined(ECPHORY_ENGRAM_ROW_DECODE_QUANT_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_ENGRAM_ROW_DECODE_QUANT_INL_H_
#undef ECPHORY_ENGRAM_ROW_DECODE_QUANT_INL_H_
#else
#define ECPHORY_ENGRAM_ROW_DECODE_QUANT_INL_H_
#endif

#include "base/little_endian.h"
#include "engram/row_decode_vector-inl.h"
#include "tensor/table_codec.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory::engram {
namespace HWY_NAMESPACE {

// The finite values of a block, rounded to bf16, nearest even.
HWY_INLINE void StoreRounded(const VF* values, float* out) {
#pragma GCC unroll 8
  for (size_t v = 0; v < kBlockVectors; ++v) {
    const auto bits = hn::BitCast(k32, values[v]);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), Kept(hn::Set(k32, 1u)));
    const auto sum = hn::Add(hn::Add(bits, Kept(hn::Set(k32, 0x7fffu))), odd);
    const auto rounded = hn::And(sum, Kept(hn::Set(k32, 0xffff0000u)));
    hn::StoreU(hn::BitCast(kF, rounded), kF, out + v * kLanes);
  }
}

// The upper halves, plus one where the lower half is more than 0x8000, or is
// that and the upper half is odd.
HWY_INLINE void StoreRounded(const VF* values, uint16_t* out) {
#pragma GCC unroll 4
  for (size_t v = 0; v < kBlockVectors; v += 2) {
    const V16 first = hn::BitCast(k16, values[v]);
    const V16 second = hn::BitCast(k16, values[v + 1]);
    const V16 upper = hn::ConcatOdd(k16, second, first);
    const V16 lower = hn::ConcatEven(k16, second, first);
    const V16 one = Kept(hn::Set(k16, uint16_t{1}));
    const V16 tie = hn::SaturatedAdd(lower, hn::And(upper, one));
    const auto up = hn::Gt(tie, Kept(hn::Set(k16, uint16_t{0x8000})));
    hn::StoreU(hn::Add(upper, hn::IfThenElseZero(up, one)), k16,
               out + v * kLanes);
  }
}

HWY_INLINE VF Scale(const uint8_t* p, bool* finite) {
  const uint16_t bits = LoadLE<uint16_t>(p);
  *finite &= (bits & 0x7c00) != 0x7c00;
  const hn::CappedTag<float, 1> d1;
  const hn::Rebind<hwy::float16_t, decltype(d1)> d16;
  const hn::Rebind<uint16_t, decltype(d1)> du;
  return hn::Set(
      kF, hn::GetLane(hn::PromoteTo(d1, hn::BitCast(d16, hn::Set(du, bits)))));
}

HWY_INLINE void Q8Block(const uint8_t* in, VF* values, bool* finite) {
  const hn::Rebind<int8_t, DF> d8;
  const hn::RebindToSigned<DF> d32;
  const VF d = Scale(in, finite);
  const int8_t* const codes = reinterpret_cast<const int8_t*>(in + 2);
#pragma GCC unroll 8
  for (size_t v = 0; v < kBlockVectors; ++v) {
    const auto code = hn::PromoteTo(d32, hn::LoadU(d8, codes + v * kLanes));
    values[v] = hn::Mul(d, hn::ConvertTo(kF, code));
  }
}

// The codes of 16 bytes as floats, `offset` subtracted.
HWY_INLINE void Nibbles(const uint8_t* in, int32_t offset, VF* values) {
  const hn::Rebind<uint8_t, DF> d8;
  const hn::RebindToSigned<DF> d32;
  const auto subtrahend = Kept(hn::Set(d32, offset));
#pragma GCC unroll 4
  for (size_t v = 0; v < kBlockVectors / 2; ++v) {
    const auto bytes = hn::PromoteTo(d32, hn::LoadU(d8, in + v * kLanes));
    const auto low = hn::And(bytes, Kept(hn::Set(d32, 15)));
    const auto high = hn::ShiftRight<4>(bytes);
    values[v] = hn::ConvertTo(kF, hn::Sub(low, subtrahend));
    values[v + kBlockVectors / 2] =
        hn::ConvertTo(kF, hn::Sub(high, subtrahend));
  }
}

HWY_INLINE void Q4Block(const uint8_t* in, VF* values, bool* finite) {
  const VF d = Scale(in, finite);
  Nibbles(in + 2, 8, values);
#pragma GCC unroll 8
  for (size_t v = 0; v < kBlockVectors; ++v) values[v] = hn::Mul(d, values[v]);
}

HWY_INLINE void Q41Block(const uint8_t* in, VF* values, bool* finite) {
  const VF d = Scale(in, finite);
  const VF m = Scale(in + 2, finite);
  Nibbles(in + 4, 0, values);
#pragma GCC unroll 8
  for (size_t v = 0; v < kBlockVectors; ++v) {
    values[v] = hn::MulAdd(d, values[v], m);  // the product is exact
  }
}

template <TableCodec kCodec, typename T>
HWY_INLINE bool DecodeQuant(const uint8_t* in, size_t width, T* out) {
  bool finite = true;
  for (size_t i = 0; i < width; i += kTableBlock) {
    VF values[kBlockVectors];
    if constexpr (kCodec == TableCodec::kQ8_0) {
      Q8Block(in, values, &finite);
      in += 34;
    } else if constexpr (kCodec == TableCodec::kQ4_0) {
      Q4Block(in, values, &finite);
      in += 18;
    } else {
      Q41Block(in, values, &finite);
      in += 20;
    }
    StoreRounded(values, out + i);
  }
  return finite;
}

// 2 * kLanes bf16 values.
HWY_INLINE void StorePair(V16 bits, uint16_t* out) {
  hn::StoreU(bits, k16, out);
}
HWY_INLINE void StorePair(V16 bits, float* out) {
  const hn::Half<D16> half;
  const auto first = hn::PromoteTo(k32, hn::LowerHalf(half, bits));
  const auto second = hn::PromoteTo(k32, hn::UpperHalf(half, bits));
  hn::StoreU(hn::BitCast(kF, hn::ShiftLeft<16>(first)), kF, out);
  hn::StoreU(hn::BitCast(kF, hn::ShiftLeft<16>(second)), kF, out + kLanes);
}

template <typename T>
HWY_INLINE bool DecodeBf16Row(const uint8_t* row, size_t width, T* out) {
  const V16 infinity = hn::Set(k16, uint16_t{0x7f80});
  const V16 signless = hn::Set(k16, uint16_t{0x7fff});
  V16 largest = hn::Zero(k16);
  for (size_t i = 0; i < width; i += 2 * kLanes) {
    const V16 bits = hn::BitCast(
        k16, hn::LoadU(hn::Repartition<uint8_t, D16>(), row + 2 * i));
    largest = hn::Max(largest, hn::And(bits, signless));
    StorePair(bits, out + i);
  }
  return hn::AllTrue(k16, hn::Lt(largest, infinity));
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory::engram
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
