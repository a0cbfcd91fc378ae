// Blocks of 32 floats to the codes of tensor/row_codec.h, in lanes and to the
// same bits; compiled once per Highway target.
#if defined(ECPHORY_OPS_CPU_ROW_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_ROW_ENCODE_INL_H_
#undef ECPHORY_OPS_CPU_ROW_ENCODE_INL_H_
#else
#define ECPHORY_OPS_CPU_ROW_ENCODE_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "ops/cpu/vector-inl.h"
#include "tensor/float_codec.h"
#include "tensor/row_codec.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

constexpr size_t kCodeBlock = 32;  // values under one power of two

using D32 = hn::RebindToSigned<DF>;
using V32 = hn::Vec<D32>;
constexpr D32 kD32;

// The largest magnitude of a block; not finite when a value is not.
HWY_INLINE float BlockMax(const float* x) {
  V32 top = hn::Zero(kD32);
  for (size_t i = 0; i < kCodeBlock; i += kLanes) {
    // Magnitudes are ordered as their bits are, NaN above all.
    top = hn::Max(top, hn::BitCast(kD32, hn::Abs(Load(x + i))));
  }
  return F32FromBits(
      static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(kD32, top))));
}

// The e8m0 codes of blocks whose largest magnitude is `top`, finite.
HWY_INLINE uint8_t Fp4ScaleCode(float top) {
  return CeilPow2Code(std::max(top, 6 * 0x1p-126f) * (1.0f / 6));
}
HWY_INLINE uint8_t Fp8ScaleCode(float top) {
  return CeilPow2Code(std::max(top, 1e-4f) * (1.0f / 448));
}

// Nearest integer, ties to even, for 0 <= x < 2^22.
HWY_INLINE VF RoundHalfEven(VF x) {
  const VF shift = hn::Set(kF, 0x1p23f);
  return hn::Sub(hn::Add(x, shift), shift);
}

// The e2m1 value nearest to x, ties to the even code; x has no NaN.
HWY_INLINE VF RoundE2M1(VF x) {
  const VF half = hn::Set(kF, 0.5f), two = hn::Set(kF, 2.0f);
  const VF magnitude = hn::Min(hn::Abs(x), hn::Set(kF, 6.0f));
  // Values are 1/2 apart up to 2, 1 up to 4, then 2.
  const VF low = hn::Mul(RoundHalfEven(hn::Mul(magnitude, two)), half);
  const VF middle = RoundHalfEven(magnitude);
  const VF high = hn::Mul(RoundHalfEven(hn::Mul(magnitude, half)), two);
  const VF above =
      hn::IfThenElse(hn::Lt(magnitude, hn::Set(kF, 4.0f)), middle, high);
  return hn::CopySign(hn::IfThenElse(hn::Lt(magnitude, two), low, above), x);
}

// x[32] = decode(encode(x)) of kFp4Block32.
HWY_INLINE void RoundFp4Block(float* x) {
  const float top = BlockMax(x);
  if (!std::isfinite(top)) {
    uint8_t codes[kCodeBlock / 2 + 1];
    EncodeRow(RowFormat::kFp4Block32, x, kCodeBlock, codes);
    return DecodeRow(RowFormat::kFp4Block32, codes, kCodeBlock, x);
  }
  const VF scale = hn::Set(kF, E8M0ToF32(Fp4ScaleCode(top)));
  for (size_t i = 0; i < kCodeBlock; i += kLanes) {
    Store(hn::Mul(RoundE2M1(hn::Div(Load(x + i), scale)), scale), x + i);
  }
}

// The e4m3 codes nearest to x, ties to even; |x| <= 448.
HWY_INLINE V32 EncodeE4M3(VF x) {
  const auto bits = hn::BitCast(kD32, x);
  const auto magnitude = hn::And(bits, hn::Set(kD32, 0x7fffffff));
  const auto sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(kD32, 0x80));
  // Normal codes are fp32's bits without the last 20 and with another bias.
  const auto odd = hn::And(hn::ShiftRight<20>(magnitude), hn::Set(kD32, 1));
  const auto normal =
      hn::Sub(hn::ShiftRight<20>(
                  hn::Add(hn::Add(magnitude, hn::Set(kD32, 0x7ffff)), odd)),
              hn::Set(kD32, 120 << 3));
  // Below 2^-6 they are evenly spaced.
  const VF steps = hn::Mul(hn::Abs(x), hn::Set(kF, 512.0f));
  const auto subnormal =
      hn::ConvertTo(kD32, RoundHalfEven(hn::Min(steps, hn::Set(kF, 8.0f))));
  const auto is_normal =
      hn::RebindMask(kD32, hn::Ge(hn::Abs(x), hn::Set(kF, 0x1p-6f)));
  return hn::Or(hn::IfThenElse(is_normal, normal, subnormal), sign);
}

// codes[32] and their scale of kFp8Block32.
HWY_INLINE void EncodeFp8Block(const float* x, uint8_t* codes,
                               uint8_t* scale_code) {
  const float top = BlockMax(x);
  if (!std::isfinite(top)) {
    uint8_t row[kCodeBlock + 1];
    EncodeRow(RowFormat::kFp8Block32, x, kCodeBlock, row);
    std::memcpy(codes, row, kCodeBlock);
    *scale_code = row[kCodeBlock];
    return;
  }
  *scale_code = Fp8ScaleCode(top);
  const VF scale = hn::Set(kF, E8M0ToF32(*scale_code));
  const VF limit = hn::Set(kF, 448.0f);
  const hn::Rebind<uint8_t, DF> d8;
  for (size_t i = 0; i < kCodeBlock; i += kLanes) {
    const VF value =
        hn::Clamp(hn::Div(Load(x + i), scale), hn::Neg(limit), limit);
    hn::StoreU(hn::DemoteTo(d8, EncodeE4M3(value)), d8, codes + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
