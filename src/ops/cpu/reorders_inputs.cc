#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/reorders_inputs.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/matmul_rows.h"
#include "ops/cpu/super_block_decoder-inl.h"
#include "ops/cpu/weight_decoder-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

template <WeightFormat kFormat>
constexpr bool kReorders =
    WeightDecoder<kFormat>::kOrder != LaneOrder::kNatural;

bool Reorders(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32: return kReorders<WeightFormat::kF32>;
    case WeightFormat::kF16: return kReorders<WeightFormat::kF16>;
    case WeightFormat::kBF16: return kReorders<WeightFormat::kBF16>;
    case WeightFormat::kQ8_0: return kReorders<WeightFormat::kQ8_0>;
    case WeightFormat::kMXFP4: return kReorders<WeightFormat::kMXFP4>;
    case WeightFormat::kQ4_K: return kReorders<WeightFormat::kQ4_K>;
    case WeightFormat::kQ2_K: return kReorders<WeightFormat::kQ2_K>;
    case WeightFormat::kIQ2_XXS: return kReorders<WeightFormat::kIQ2_XXS>;
    case WeightFormat::kFp8Tile32: return kReorders<WeightFormat::kFp8Tile32>;
    case WeightFormat::kFp4Row32: return kReorders<WeightFormat::kFp4Row32>;
  }
  return false;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(Reorders);
}  // namespace

bool ReordersInputs(WeightFormat format) {
  return HWY_DYNAMIC_DISPATCH(Reorders)(format);
}

}  // namespace ecphory
#endif
