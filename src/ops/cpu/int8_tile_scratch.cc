// What int8_tiles-inl.h keeps in each thread, where the processor has them.
#define HWY_WANT_AVX3_DL 1
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/int8_tile_scratch.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/int8_kernel-inl.h"
#if ECPHORY_INT8_VECTORS
#include "ops/cpu/int8_iq2_xxs-inl.h"
#include "ops/cpu/int8_super_codes-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX3_DL

template <class Shape>
size_t BytesOf(size_t cols, size_t tokens) {
  return TileTokenBytes<Shape>(cols, tokens) + TileRowBytes<Shape>(cols);
}

size_t TileBytes(WeightFormat format, size_t cols, size_t tokens) {
  if (tokens <= kMaxFewTokens) return 0;
  switch (format) {
    case WeightFormat::kQ8_0: return BytesOf<Q8Shape>(cols, tokens);
    case WeightFormat::kMXFP4:
    case WeightFormat::kFp4Row32: return BytesOf<Fp4Shape>(cols, tokens);
    case WeightFormat::kQ4_K: return BytesOf<Q4KShape>(cols, tokens);
    case WeightFormat::kQ2_K: return BytesOf<Q2KShape>(cols, tokens);
    case WeightFormat::kIQ2_XXS: return BytesOf<Iq2xxsShape>(cols, tokens);
    default: return 0;
  }
}

#else

size_t TileBytes(WeightFormat, size_t, size_t) { return 0; }

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(TileBytes);
}  // namespace

size_t Int8TileBytes(WeightFormat format, size_t cols, size_t tokens) {
  return HWY_DYNAMIC_DISPATCH(TileBytes)(format, cols, tokens);
}

}  // namespace ecphory
#endif
