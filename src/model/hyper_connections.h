// The residual streams: how a sublayer reads them and writes back (mHC).
#pragma once

#include <cstddef>
#include <functional>

#include "ecphory/config.h"
#include "ecphory/session.h"
#include "model/weights.h"
#include "ops/device_array.h"
#include "ops/ops.h"

namespace ecphory {

// Streams h[T, H, D] of one chunk. A site mixes them, hands the collapsed and
// normed vector to its sublayer and expands the sublayer's output back:
//
//   (pre, post, comb) = mix(h)            from the streams BEFORE the site
//   x = collapse(h, previous site's pre)  single pass (V4.1)
//   x = collapse(h, pre)                  per site (V4)
//   h = expand(sublayer(rms_norm(x)), h, post, comb)
//
// The expand waits for the next site, which does it in the same pass over the
// streams as its own mix, collapse and norm (ops/hyper_connection.h, split).
// Whoever wants the streams in between has it done by streams().
class HyperConnections {
 public:
  struct Shape {
    size_t streams = 0;  // H
    size_t dim = 0;      // D
    float norm_eps = 0;  // of the mix and of the sublayers' norms
    float hc_eps = 0;
    uint32_t sinkhorn_iters = 0;
    HyperConnectionMode mode = HyperConnectionMode::kSinglePass;
    SigmoidForm sigmoid = SigmoidForm::kTanh;
    StreamFormat format = StreamFormat::kF32;  // kBF16 rounds x as well
  };
  // The per-site family's final mix; unused in single-pass models.
  struct Head {
    Matrix fn;                     // [H, H * D]
    const float* scale = nullptr;  // [1]
    const float* base = nullptr;   // [H]
  };

  HyperConnections(const Shape& shape, const Ops& ops, ThreadPool& pool)
      : shape_(shape), ops_(ops), pool_(pool) {}
  // Once, before all else. kResourceExhausted when there is not so much memory.
  Status Allocate(size_t max_tokens, Device& device);
  // How a session with such activations keeps its streams: all values that it
  // writes to them are rounded to bf16 or none.
  static constexpr StreamFormat FormatFor(Activations activations) {
    return activations == Activations::kBF16 ? StreamFormat::kBF16
                                             : StreamFormat::kF32;
  }
  // Of the buffers for one token: H streams, their coefficients, x and y.
  static constexpr uint64_t TokenBytes(uint64_t streams, uint64_t dim,
                                       StreamFormat format) {
    return StreamBytes(format) * streams * dim +
           sizeof(float) * (2 * dim + (3 + streams) * streams);
  }

  // [T, H, D] after all sites that have run; writable until the next Site().
  Streams streams();
  // Of the last site.
  const float* pre() const { return pre_.data(); }
  const float* post() const { return post_.data(); }
  const float* comb() const { return comb_.data(); }

  // Starts a chunk: the first site reads stream 0 only.
  void Begin(size_t tokens);

  // Runs one site. `sublayer` fills y[T, D] from x[T, D], which is normed with
  // `norm` [D]; bf16 streams take y rounded.
  using Sublayer = std::function<void(const float* x, float* y)>;
  void Site(const HyperConnectionWeights& weights, const float* norm,
            const Sublayer& sublayer);

  // What the site's sublayer would read, x[T, D]. Nothing is written back: the
  // chunk ends with it.
  const float* Read(const HyperConnectionWeights& weights, const float* norm);

  // The vector the output norm reads, [T, D]: collapsed with the last site's
  // pre (single pass) or with the head's own mix (per site). Of tokens from
  // `first` on; the chunk ends with it.
  const float* Final(const Head& head, size_t first);

 private:
  // Does what the last site owes to the streams of tokens from `first` on.
  void Expand(size_t first);
  void Split(const HyperConnectionWeights& weights, const float* norm);
  Streams h() { return {h_.data(), shape_.format}; }

  Shape shape_;
  const Ops& ops_;
  ThreadPool& pool_;
  size_t tokens_ = 0;
  bool first_site_ = true;       // has not run
  bool expand_pending_ = false;  // of y_, with post_ and comb_
  DeviceArray<uint8_t> h_;       // [T, H, D] in shape_.format
  DeviceArray<float> first_;     // [T, H] what the first site reads by
  DeviceArray<float> pre_;       // [T, H] of the last site, like the next two
  DeviceArray<float> post_;      // [T, H]
  DeviceArray<float> comb_;      // [T, H, H]
  DeviceArray<float> x_;         // [T, D]
  DeviceArray<float> y_;         // [T, D]
};

}  // namespace ecphory
