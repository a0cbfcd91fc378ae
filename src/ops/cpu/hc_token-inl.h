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

// What is to be read next of y and x: a chunk of each.
struct RowsAhead {
  const float* y = nullptr;
  const float* x = nullptr;
};

// Nothing: what is in the cache.
HWY_INLINE RowsAhead NoRowsAhead(const float* cached) {
  return {cached, cached};
}

// A vector of every stream, kHcChunk values apart.
template <class Math>
HWY_INLINE void StorePacked(const Math& math, const typename Math::Vectors& h,
                            float* packed) {
  for (size_t s = 0; s < math.streams(); ++s) {
    Store(h.v[s], packed + s * kHcChunk);
  }
}
template <class Math>
HWY_INLINE typename Math::Vectors LoadPacked(const Math& math,
                                             const float* packed) {
  typename Math::Vectors h;
  for (size_t s = 0; s < math.streams(); ++s) {
    h.v[s] = Load(packed + s * kHcChunk);
  }
  return h;
}

// What becomes of a vector of every stream of a token, once expanded: packed
// for the tiles, squared, and collapsed if the coefficients are known already.
template <class Math>
class EnteredVectors {
 public:
  EnteredVectors(const Math& math, const HcSplitArgs& args, size_t token)
      : math_(math) {
    for (size_t s = 0; s < math.streams(); ++s) squares_[s] = hn::Zero(kF);
    if (args.collapse_pre == nullptr) return;
    pre_ = args.collapse_pre + token * math.streams();
    x_ = args.x + token * args.dim;
  }
  // `h` at column i.
  template <class Vector>
  HWY_INLINE void Take(const Vector& vector, size_t i,
                       const typename Math::Vectors& h, float* packed) {
    StorePacked(math_, h, packed);
    for (size_t s = 0; s < math_.streams(); ++s) {
      squares_[s] = hn::MulAdd(h.v[s], h.v[s], squares_[s]);
    }
    if (pre_ != nullptr) vector.Store(math_.Collapse(h, pre_), x_ + i);
  }
  // Of all that was taken, lane by lane.
  HWY_INLINE VF Squares() const {
    VF sum = squares_[0];
    for (size_t s = 1; s < math_.streams(); ++s) {
      sum = hn::Add(sum, squares_[s]);
    }
    return sum;
  }

 private:
  const Math& math_;
  const float* pre_ = nullptr;
  float* x_ = nullptr;
  VF squares_[Math::kMax];
};

// A chunk of one token's streams, expanded if that is owed: packed, collapsed
// if the coefficients are known already; returns the squares.
template <class Math>
HWY_INLINE VF TakeChunk(const Math& math, const HcSplitArgs& args, size_t token,
                        const Chunk& chunk, float* HWY_RESTRICT packed,
                        const RowsAhead& ahead) {
  const size_t streams = math.streams(), dim = args.dim;
  auto* const h =
      static_cast<typename Math::Value*>(args.h.data) + token * streams * dim;
  EnteredVectors<Math> entered(math, args, token);
  if (args.y == nullptr) {
    ForVectors(chunk.begin, chunk.end, [&](auto vector, size_t i) HWY_ATTR {
      PrefetchL2(ahead.x + (i - chunk.begin));
      entered.Take(vector, i, math.Load(vector, h + i, dim),
                   packed + (i - chunk.begin));
    });
    return entered.Squares();
  }
  const float* const y = args.y + token * dim;
  const auto mix = math.Broadcast(args.last_post + token * streams,
                                  args.last_comb + token * streams * streams);
  const auto sums_at = [&](auto vector, size_t i) HWY_ATTR {
    PrefetchL2(ahead.y + (i - chunk.begin));
    PrefetchL2(ahead.x + (i - chunk.begin));
    return math.ExpandSums(math.Load(vector, h + i, dim), vector.Load(y + i),
                           mix);
  };
  const auto take = [&](auto vector, size_t i, const auto& sums) HWY_ATTR {
    const auto expanded = math.Rounded(sums);
    math.Store(vector, expanded, h + i, dim);
    entered.Take(vector, i, expanded, packed + (i - chunk.begin));
  };
  if constexpr (!Math::kRounds) {
    ForVectors(chunk.begin, chunk.end, [&](auto vector, size_t i) HWY_ATTR {
      take(vector, i, sums_at(vector, i));
    });
  } else {
    // In two loops: summing and rounding in one chain of instructions is too
    // long for a core to have several under way (6.1 instead of 4.3 us a token
    // of 4 x 5120, Zen 4).
    ForVectors(chunk.begin, chunk.end, [&](auto vector, size_t i) HWY_ATTR {
      StorePacked(math, sums_at(vector, i), packed + (i - chunk.begin));
    });
    ForVectors(chunk.begin, chunk.end, [&](auto vector, size_t i) HWY_ATTR {
      take(vector, i, LoadPacked(math, packed + (i - chunk.begin)));
    });
  }
  return entered.Squares();
}

// Takes a chunk of a token and sets its squares in `sums`, or adds to them.
template <class Math>
HWY_INLINE void EnterToken(const Math& math, const HcSplitArgs& args,
                           size_t token, const Chunk& chunk, bool add,
                           float* packed, float* sums, const RowsAhead& ahead) {
  const VF squares = TakeChunk(math, args, token, chunk, packed, ahead);
  float* const p = sums + HcSquaresAt(args.fn.rows) * kHcSumLanes;
  Store(add ? hn::Add(Load(p), squares) : squares, p);
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
