// Vector types of the row decoder; compiled once per Highway target.
#if defined(ECPHORY_ENGRAM_ROW_DECODE_VECTOR_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_ENGRAM_ROW_DECODE_VECTOR_INL_H_
#undef ECPHORY_ENGRAM_ROW_DECODE_VECTOR_INL_H_
#else
#define ECPHORY_ENGRAM_ROW_DECODE_VECTOR_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "tensor/table_codec.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory::engram {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Floats, at most half a block in a vector, so that a block has vectors in
// pairs; 16-bit lanes hold a pair.
using DF = hn::CappedTag<float, kTableBlock / 2>;
using D32 = hn::RebindToUnsigned<DF>;
using D16 = hn::Repartition<uint16_t, DF>;
using VF = hn::Vec<DF>;
using V16 = hn::Vec<D16>;
constexpr DF kF;
constexpr D32 k32;
constexpr D16 k16;
constexpr size_t kLanes = hn::MaxLanes(DF());
constexpr size_t kBlockVectors = kTableBlock / kLanes;

// Keeps GCC from making a constant anew in every round of a loop.
template <class V>
HWY_INLINE V Kept(V v) {
#if HWY_ARCH_X86 && HWY_COMPILER_GCC_ACTUAL
  __asm__("" : "+x"(v.raw));
#endif
  return v;
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory::engram
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
