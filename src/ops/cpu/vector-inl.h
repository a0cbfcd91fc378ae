// Vector helpers shared by the kernels; compiled once per Highway target.
#if defined(ECPHORY_OPS_CPU_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_VECTOR_INL_H_
#undef ECPHORY_OPS_CPU_VECTOR_INL_H_
#else
#define ECPHORY_OPS_CPU_VECTOR_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "ops/hyper_connection.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The widest float vector, and small aliases: F for float lanes.
using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
constexpr DF kF;
constexpr size_t kLanes = hn::MaxLanes(DF());

// Whether there are 32 registers, not 16. On x86 a better target has a smaller
// number: AVX3 and all above.
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64;

HWY_INLINE VF Load(const float* p) { return hn::LoadU(kF, p); }
HWY_INLINE void Store(VF v, float* p) { hn::StoreU(v, kF, p); }

// Loads v once. GCC would otherwise load it again for each instruction that
// uses it, which with four uses makes loads the bound of a block of products:
// 53 instead of 100 GFLOP/s (Zen 4, one core). On a sum of integers: keeps GCC
// from regrouping its terms, which takes more registers than there are.
template <class V>
HWY_INLINE void KeepInRegister([[maybe_unused]] V& v) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  asm("" : "+v"(v.raw));
#endif
}

// The first n < kLanes values, zero behind them; touches nothing past p + n.
HWY_INLINE VF LoadPartial(const float* p, size_t n) {
#if HWY_ARCH_X86
  return hn::MaskedLoad(hn::FirstN(kF, n), kF, p);
#else
  float copy[kLanes] = {};
  std::memcpy(copy, p, n * sizeof(float));
  return Load(copy);
#endif
}

HWY_INLINE void StorePartial(VF v, float* p, size_t n) {
#if HWY_ARCH_X86
  hn::BlendedStore(v, hn::FirstN(kF, n), kF, p);
#else
  float copy[kLanes];
  Store(v, copy);
  std::memcpy(p, copy, n * sizeof(float));
#endif
}

// The same of bf16. What is stored holds bf16 values (RoundBf16).
HWY_INLINE VF Load(const uint16_t* p) {
  const hn::Rebind<uint16_t, DF> d16;
  const hn::RebindToUnsigned<DF> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, p));
  return hn::BitCast(kF, hn::ShiftLeft<16>(bits));
}
HWY_INLINE void Store(VF v, uint16_t* p) {
  const hn::Rebind<uint16_t, DF> d16;
  const hn::RebindToUnsigned<DF> d32;
  const auto bits = hn::ShiftRight<16>(hn::BitCast(d32, v));
  hn::StoreU(hn::TruncateTo(d16, bits), d16, p);
}
HWY_INLINE VF LoadPartial(const uint16_t* p, size_t n) {
  uint16_t copy[kLanes] = {};
  std::memcpy(copy, p, n * sizeof(uint16_t));
  return Load(copy);
}
HWY_INLINE void StorePartial(VF v, uint16_t* p, size_t n) {
  uint16_t copy[kLanes];
  Store(v, copy);
  std::memcpy(p, copy, n * sizeof(uint16_t));
}

// One vector of an array: a whole one, or the n < kLanes values at its end.
struct WholeVector {
  template <typename T>
  HWY_INLINE VF Load(const T* p) const {
    return HWY_NAMESPACE::Load(p);
  }
  template <typename T>
  HWY_INLINE void Store(VF v, T* p) const {
    HWY_NAMESPACE::Store(v, p);
  }
};
struct PartialVector {
  template <typename T>
  HWY_INLINE VF Load(const T* p) const {
    return LoadPartial(p, n);
  }
  template <typename T>
  HWY_INLINE void Store(VF v, T* p) const {
    StorePartial(v, p, n);
  }
  size_t n;
};

// Calls body(vector, i) for the vectors of values [begin, end), whole ones
// first.
template <class Body>
HWY_INLINE void ForVectors(size_t begin, size_t end, const Body& body) {
  size_t i = begin;
  for (; i + kLanes <= end; i += kLanes) body(WholeVector(), i);
  if (i < end) body(PartialVector{end - i}, i);
}

// Adds the 128-bit blocks of v: lane i of the result is the sum of lanes i,
// i + 4, ...
#if HWY_TARGET != HWY_SCALAR
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::Full128<float>> SumBlocks(HWY_MAYBE_UNUSED D d, V v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return SumBlocks(half,
                     hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
#endif

// out[i] = the sum of the lanes of the i-th vector. Each of the four sums is
// added up in the same order, so that a result does not depend on its place.
HWY_INLINE void StoreSums4(VF a, VF b, VF c, VF d, float* out) {
#if HWY_TARGET == HWY_SCALAR
  out[0] = hn::GetLane(a);
  out[1] = hn::GetLane(b);
  out[2] = hn::GetLane(c);
  out[3] = hn::GetLane(d);
#else
  const hn::Repartition<double, DF> d64;
  // Per block: a0+a2 b0+b2 a1+a3 b1+b3, and the same of c and d.
  const VF ab =
      hn::Add(hn::InterleaveLower(kF, a, b), hn::InterleaveUpper(kF, a, b));
  const VF cd =
      hn::Add(hn::InterleaveLower(kF, c, d), hn::InterleaveUpper(kF, c, d));
  const auto ab64 = hn::BitCast(d64, ab);
  const auto cd64 = hn::BitCast(d64, cd);
  const VF low = hn::BitCast(kF, hn::InterleaveLower(d64, ab64, cd64));
  const VF high = hn::BitCast(kF, hn::InterleaveUpper(d64, ab64, cd64));
  hn::StoreU(SumBlocks(kF, hn::Add(low, high)), hn::Full128<float>(), out);
#endif
}

HWY_INLINE float Sum(VF v) { return hn::GetLane(hn::SumOfLanes(kF, v)); }

// e^x for every x: infinity above 88.7, 0 below -104.
HWY_INLINE VF Exp(VF x) {
  // hn::Exp is defined up to 104 only.
  return hn::Exp(kF, hn::Min(x, hn::Set(kF, 104.0f)));
}

HWY_INLINE VF Sigmoid(VF x, SigmoidForm form) {
  const VF one = hn::Set(kF, 1.0f);
  const VF half = hn::Set(kF, 0.5f);
  if (form == SigmoidForm::kExp) {
    return hn::Div(one, hn::Add(one, Exp(hn::Neg(x))));
  }
  return hn::Mul(half, hn::Add(one, hn::Tanh(kF, hn::Mul(half, x))));
}

// RoundBf16() of numbers, and of NaNs that have no bits below bf16's, as those
// have that come of bf16 values: half the work.
HWY_INLINE VF RoundNumberBf16(VF x) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
  return hn::BitCast(kF, hn::And(rounded, hn::Set(du, 0xffff0000u)));
}

// float_codec.h's RoundToBF16 in lanes.
HWY_INLINE VF RoundBf16(VF x) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x00400000u));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(x));
  const auto chosen = hn::IfThenElse(is_nan, quiet, rounded);
  return hn::BitCast(kF, hn::And(chosen, hn::Set(du, 0xffff0000u)));
}

// sum x[i]^2 lane by lane, in an order that depends on n only.
HWY_INLINE VF SumSquaresLanes(const float* HWY_RESTRICT x, size_t n) {
  VF sums[4] = {hn::Zero(kF), hn::Zero(kF), hn::Zero(kF), hn::Zero(kF)};
  size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (size_t k = 0; k < 4; ++k) {
      const VF v = Load(x + i + k * kLanes);
      sums[k] = hn::MulAdd(v, v, sums[k]);
    }
  }
  for (; i + kLanes <= n; i += kLanes) {
    const VF v = Load(x + i);
    sums[0] = hn::MulAdd(v, v, sums[0]);
  }
  if (i < n) {
    const VF v = LoadPartial(x + i, n - i);
    sums[0] = hn::MulAdd(v, v, sums[0]);
  }
  return hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
}
HWY_INLINE float SumSquares(const float* x, size_t n) {
  return Sum(SumSquaresLanes(x, n));
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
