// The arithmetic of collapse and expand on one vector of every stream; compiled
// once per Highway target. Everything that collapses or expands does it through
// these, so that fused and separate operators agree in every bit.
#if defined(ECPHORY_OPS_CPU_HC_STREAMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_HC_STREAMS_INL_H_
#undef ECPHORY_OPS_CPU_HC_STREAMS_INL_H_
#else
#define ECPHORY_OPS_CPU_HC_STREAMS_INL_H_
#endif

#include "ops/cpu/vector-inl.h"
#include "ops/hyper_connection.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

// kStreams > 0 is a stream count known to the compiler, so that a vector of
// each stream stays in registers; 0 takes `streams`.
template <size_t kStreams, bool kRound>
class StreamMath {
  static constexpr size_t kMax = kStreams != 0 ? kStreams : kMaxStreams;

 public:
  static constexpr bool kRounds = kRound;

  explicit StreamMath(size_t streams) : streams_(streams) {}
  size_t streams() const { return kStreams != 0 ? kStreams : streams_; }

  // A token's coefficients of expand, in every lane: of 32 registers 4 streams
  // take 20.
  struct Mix {
    VF post[kMax];
    VF comb[kMax * kMax];
  };
  HWY_INLINE Mix Broadcast(const float* post, const float* comb) const {
    const size_t n = streams();
    Mix mix;
    for (size_t k = 0; k < n; ++k) mix.post[k] = hn::Set(kF, post[k]);
    for (size_t i = 0; i < n * n; ++i) mix.comb[i] = hn::Set(kF, comb[i]);
    return mix;
  }

  // A vector of every stream at `h`, `stride` values apart, expanded with one
  // of y. store(k, v) takes those of the new streams.
  template <class Vector, class Sink>
  HWY_INLINE void Expand(const Vector& vector, const float* h, size_t stride,
                         VF y, const Mix& mix, const Sink& store) const {
    const size_t n = streams();
    VF in[kMax];
    for (size_t j = 0; j < n; ++j) in[j] = vector.Load(h + j * stride);
    for (size_t k = 0; k < n; ++k) {
      VF sum = hn::Mul(mix.post[k], y);
      for (size_t j = 0; j < n; ++j) {
        sum = hn::MulAdd(mix.comb[j * n + k], in[j], sum);
      }
      store(k, Round(sum));
    }
  }

  template <class Vector>
  HWY_INLINE VF Collapse(const Vector& vector, const float* h, size_t stride,
                         const float* pre) const {
    VF sum = hn::Mul(hn::Set(kF, pre[0]), vector.Load(h));
    for (size_t s = 1; s < streams(); ++s) {
      sum = hn::MulAdd(hn::Set(kF, pre[s]), vector.Load(h + s * stride), sum);
    }
    return Round(sum);
  }

 private:
  static HWY_INLINE VF Round(VF x) { return kRound ? RoundBf16(x) : x; }

  const size_t streams_;
};

// x = collapse(h, pre) for columns [begin, end) of one token of `dim` columns.
template <class Math>
HWY_INLINE void CollapseColumns(const Math& math, const float* h,
                                const float* pre, size_t dim, size_t begin,
                                size_t end, float* x) {
  ForVectors(begin, end, [&](auto vector, size_t i) HWY_ATTR {
    vector.Store(math.Collapse(vector, h + i, dim, pre), x + i);
  });
}

// Calls body(StreamMath) with the shipped stream count as a constant.
template <class Body>
HWY_INLINE void WithStreamMath(size_t streams, bool round, const Body& body) {
  if (streams == 4) {
    return round ? body(StreamMath<4, true>(4)) : body(StreamMath<4, false>(4));
  }
  return round ? body(StreamMath<0, true>(streams))
               : body(StreamMath<0, false>(streams));
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
