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
struct StreamMath {
  explicit StreamMath(size_t n) : streams(kStreams != 0 ? kStreams : n) {}

  // A vector of every stream.
  struct Vectors {
    VF v[kStreams != 0 ? kStreams : kMaxStreams];
  };

  static HWY_INLINE VF Round(VF x) { return kRound ? RoundBf16(x) : x; }

  // Vectors of streams `stride` values apart.
  template <class Vector>
  HWY_INLINE void Load(const Vector& vector, const float* h, size_t stride,
                       Vectors& out) const {
    for (size_t s = 0; s < streams; ++s) out.v[s] = vector.Load(h + s * stride);
  }
  template <class Vector>
  HWY_INLINE void Store(const Vector& vector, const Vectors& in, size_t stride,
                        float* h) const {
    for (size_t s = 0; s < streams; ++s) vector.Store(in.v[s], h + s * stride);
  }

  HWY_INLINE VF Collapse(const Vectors& h, const float* pre) const {
    VF sum = hn::Mul(hn::Set(kF, pre[0]), h.v[0]);
    for (size_t s = 1; s < streams; ++s) {
      sum = hn::MulAdd(hn::Set(kF, pre[s]), h.v[s], sum);
    }
    return Round(sum);
  }

  HWY_INLINE void Expand(const Vectors& h, VF y, const float* post,
                         const float* comb, Vectors& out) const {
    for (size_t k = 0; k < streams; ++k) {
      VF sum = hn::Mul(hn::Set(kF, post[k]), y);
      for (size_t j = 0; j < streams; ++j) {
        sum = hn::MulAdd(hn::Set(kF, comb[j * streams + k]), h.v[j], sum);
      }
      out.v[k] = Round(sum);
    }
  }

  const size_t streams;
};

// Calls body(StreamMath) with the shipped stream count as a constant.
template <class Body>
HWY_INLINE void WithStreamMath(size_t streams, bool round, const Body& body) {
  if (streams == 4) {
    return round ? body(StreamMath<4, true>(4)) : body(StreamMath<4, false>(4));
  }
  return round ? body(StreamMath<0, true>(streams))
               : body(StreamMath<0, false>(streams));
}

// Calls body(vector, i) for the vectors of values [begin, end), whole ones
// first.
template <class Body>
HWY_INLINE void ForVectors(size_t begin, size_t end, const Body& body) {
  size_t i = begin;
  for (; i + kLanes <= end; i += kLanes) body(WholeVector(), i);
  if (i < end) body(PartialVector{end - i}, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
