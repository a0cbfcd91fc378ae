// The arithmetic of collapse and expand on one vector of every stream; compiled
// once per Highway target. Everything that collapses or expands does it through
// these, so that fused and separate operators agree in every bit.
#if defined(ECPHORY_OPS_CPU_HC_STREAMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_HC_STREAMS_INL_H_
#undef ECPHORY_OPS_CPU_HC_STREAMS_INL_H_
#else
#define ECPHORY_OPS_CPU_HC_STREAMS_INL_H_
#endif

#include <type_traits>

#include "ops/cpu/vector-inl.h"
#include "ops/hyper_connection.h"
#include "tensor/float_codec.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

// Of streams whose values are float or bf16 (T is uint16_t). kStreams > 0 is a
// stream count known to the compiler, so that a vector of each stream stays in
// registers; 0 takes `streams`.
template <size_t kStreams, typename T>
class StreamMath {
 public:
  static constexpr size_t kMax = kStreams != 0 ? kStreams : kMaxStreams;
  using Value = T;
  static constexpr bool kRounds = std::is_same_v<T, uint16_t>;

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
    for (size_t k = 0; k < n; ++k) {
      mix.post[k] = hn::Set(kF, Coefficient(post[k]));
    }
    for (size_t i = 0; i < n * n; ++i) {
      mix.comb[i] = hn::Set(kF, Coefficient(comb[i]));
    }
    return mix;
  }

  // One vector of every stream.
  struct Vectors {
    VF v[kMax];
  };
  // Those at `h`, `stride` values apart.
  template <class Vector>
  HWY_INLINE Vectors Load(const Vector& vector, const T* h,
                          size_t stride) const {
    Vectors in;
    for (size_t j = 0; j < streams(); ++j)
      in.v[j] = vector.Load(h + j * stride);
    return in;
  }
  template <class Vector>
  HWY_INLINE void Store(const Vector& vector, const Vectors& out, T* h,
                        size_t stride) const {
    for (size_t k = 0; k < streams(); ++k) {
      vector.Store(out.v[k], h + k * stride);
    }
  }

  HWY_INLINE Vectors Expand(const Vectors& in, VF y, const Mix& mix) const {
    return Rounded(ExpandSums(in, y, mix));
  }
  // Expand() in two steps.
  HWY_INLINE Vectors ExpandSums(const Vectors& in, VF y, const Mix& mix) const {
    const size_t n = streams();
    y = Round(y);
    Vectors out;
    for (size_t k = 0; k < n; ++k) {
      VF sum = hn::Mul(mix.post[k], y);
      for (size_t j = 0; j < n; ++j) {
        sum = hn::MulAdd(mix.comb[j * n + k], in.v[j], sum);
      }
      out.v[k] = sum;
    }
    return out;
  }
  HWY_INLINE Vectors Rounded(Vectors sums) const {
    if constexpr (kRounds) {
      for (size_t k = 0; k < streams(); ++k) {
        sums.v[k] = RoundNumberBf16(sums.v[k]);
      }
    }
    return sums;
  }

  HWY_INLINE VF Collapse(const Vectors& in, const float* pre) const {
    VF sum = hn::Mul(hn::Set(kF, pre[0]), in.v[0]);
    for (size_t s = 1; s < streams(); ++s) {
      sum = hn::MulAdd(hn::Set(kF, pre[s]), in.v[s], sum);
    }
    return Round(sum);
  }

 private:
  static HWY_INLINE VF Round(VF x) { return kRounds ? RoundBf16(x) : x; }
  // A NaN loses its lower bits, so that no sum has any (RoundNumberBf16).
  static HWY_INLINE float Coefficient(float c) {
    return kRounds && c != c ? RoundToBF16(c) : c;
  }

  const size_t streams_;
};

// x = collapse(h, pre) for columns [begin, end) of one token of `dim` columns.
template <class Math>
HWY_INLINE void CollapseColumns(const Math& math, const typename Math::Value* h,
                                const float* pre, size_t dim, size_t begin,
                                size_t end, float* x) {
  ForVectors(begin, end, [&](auto vector, size_t i) HWY_ATTR {
    vector.Store(math.Collapse(math.Load(vector, h + i, dim), pre), x + i);
  });
}

template <typename T, class Body>
HWY_INLINE void WithStreamMathOf(size_t streams, const Body& body) {
  if (streams == 4) return body(StreamMath<4, T>(4));
  body(StreamMath<0, T>(streams));
}

// Calls body(StreamMath) with the shipped stream count as a constant.
template <class Body>
HWY_INLINE void WithStreamMath(size_t streams, StreamFormat format,
                               const Body& body) {
  if (format == StreamFormat::kBF16) {
    return WithStreamMathOf<uint16_t>(streams, body);
  }
  WithStreamMathOf<float>(streams, body);
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
