// What hc_split does with a chunk of one token's streams before it is
// multiplied; compiled once per Highway target.
#if defined(ECPHORY_OPS_CPU_HC_TOKEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_HC_TOKEN_INL_H_
#undef ECPHORY_OPS_CPU_HC_TOKEN_INL_H_
#else
#define ECPHORY_OPS_CPU_HC_TOKEN_INL_H_
#endif

#include "ops/cpu/hc_rows-inl.h"
#include "ops/cpu/hc_streams-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

// A chunk of one token's streams, expanded if that is owed, laid out for the
// tiles.
template <class Math>
HWY_INLINE void PackToken(const Math& math, const HcSplitArgs& args,
                          size_t token, const Chunk& chunk,
                          float* HWY_RESTRICT packed) {
  const size_t streams = math.streams(), dim = args.dim;
  auto* const h =
      static_cast<typename Math::Value*>(args.h.data) + token * streams * dim;
  if (args.y == nullptr) {
    for (size_t s = 0; s < streams; ++s) {
      ForVectors(chunk.begin, chunk.end, [&](auto vector, size_t i) HWY_ATTR {
        Store(vector.Load(h + s * dim + i),
              packed + s * kHcChunk + (i - chunk.begin));
      });
    }
    return;
  }
  const float* const y = args.y + token * dim;
  const auto mix = math.Broadcast(args.last_post + token * streams,
                                  args.last_comb + token * streams * streams);
  ForVectors(chunk.begin, chunk.end, [&](auto vector, size_t i) HWY_ATTR {
    float* const out = packed + (i - chunk.begin);
    math.Expand(vector, h + i, dim, vector.Load(y + i), mix,
                [&](size_t k, VF v) HWY_ATTR {
                  vector.Store(v, h + k * dim + i);
                  Store(v, out + k * kHcChunk);
                });
  });
}

// Collapses a packed chunk when the coefficients are known already, and returns
// the sum of its squares, lane by lane.
template <class Math>
HWY_INLINE VF CollapsePacked(const Math& math, const HcSplitArgs& args,
                             size_t token, const Chunk& chunk,
                             const float* HWY_RESTRICT packed) {
  VF squares = hn::Zero(kF);
  for (size_t s = 0; s < math.streams(); ++s) {
    squares = hn::Add(squares, SumSquaresLanes(packed + s * kHcChunk,
                                               chunk.vectors * kLanes));
  }
  if (args.collapse_pre == nullptr) return squares;
  const float* const pre = args.collapse_pre + token * math.streams();
  float* const x = args.x + token * args.dim;
  ForVectors(chunk.begin, chunk.end, [&](auto vector, size_t i) HWY_ATTR {
    const VF sum =
        math.Collapse(WholeVector(), packed + (i - chunk.begin), kHcChunk, pre);
    vector.Store(sum, x + i);
  });
  return squares;
}

// Packs a chunk of a token and sets its squares in `sums`, or adds to them.
template <class Math>
HWY_INLINE void EnterToken(const Math& math, const HcSplitArgs& args,
                           size_t token, const Chunk& chunk, bool add,
                           float* packed, float* sums) {
  PackToken(math, args, token, chunk, packed);
  const VF squares = CollapsePacked(math, args, token, chunk, packed);
  float* const p = sums + HcSquaresAt(args.fn.rows) * kHcSumLanes;
  Store(add ? hn::Add(Load(p), squares) : squares, p);
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
