#include "ops/cpu/expert_math.h"

#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/expert_math.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE VF MaybeRound(VF x, bool round_bf16) {
  return round_bf16 ? RoundBf16(x) : x;
}

HWY_INLINE VF SwigluVector(const SwigluArgs& args, VF gate, VF up) {
  gate = MaybeRound(gate, args.round_bf16);
  up = MaybeRound(up, args.round_bf16);
  if (args.limit > 0) {
    const VF limit = hn::Set(kF, args.limit);
    // Comparisons, because vector minima may turn a NaN into the limit and so
    // hide damaged weights.
    gate = hn::IfThenElse(hn::Gt(gate, limit), limit, gate);
    up =
        hn::IfThenElse(hn::Gt(hn::Abs(up), limit), hn::CopySign(limit, up), up);
  }
  const VF silu = hn::Div(gate, hn::Add(hn::Set(kF, 1.0f), Exp(hn::Neg(gate))));
  const VF weighted = hn::Mul(hn::Mul(silu, up), hn::Set(kF, args.weight));
  return MaybeRound(weighted, args.round_bf16);
}

void SwigluHwy(const SwigluArgs& args) {
  size_t i = 0;
  for (; i + kLanes <= args.n; i += kLanes) {
    Store(SwigluVector(args, Load(args.gate + i), Load(args.up + i)),
          args.gate + i);
  }
  if (i < args.n) {
    const size_t rest = args.n - i;
    StorePartial(SwigluVector(args, LoadPartial(args.gate + i, rest),
                              LoadPartial(args.up + i, rest)),
                 args.gate + i, rest);
  }
}

void AddOutputHwy(const float* x, size_t n, bool round_bf16, float* y) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Store(hn::Add(Load(y + i), MaybeRound(Load(x + i), round_bf16)), y + i);
  }
  if (i < n) {
    const size_t rest = n - i;
    const VF value = MaybeRound(LoadPartial(x + i, rest), round_bf16);
    StorePartial(hn::Add(LoadPartial(y + i, rest), value), y + i, rest);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(SwigluHwy);
HWY_EXPORT(AddOutputHwy);
}  // namespace

void Swiglu(const SwigluArgs& args) { HWY_DYNAMIC_DISPATCH(SwigluHwy)(args); }

void AddOutput(const float* x, size_t n, bool round_bf16, float* y) {
  HWY_DYNAMIC_DISPATCH(AddOutputHwy)(x, n, round_bf16, y);
}

}  // namespace ecphory
#endif
