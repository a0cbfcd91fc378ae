#include "model/hyper_connections.h"

#include <algorithm>

namespace ecphory {

HyperConnections::HyperConnections(const Shape& shape, size_t max_tokens,
                                   const Ops& ops, ThreadPool& pool)
    : shape_(shape),
      ops_(ops),
      pool_(pool),
      h_(max_tokens * shape.streams * shape.dim),
      pre_(max_tokens * shape.streams),
      next_pre_(max_tokens * shape.streams),
      post_(max_tokens * shape.streams),
      comb_(max_tokens * shape.streams * shape.streams),
      x_(max_tokens * shape.dim),
      y_(max_tokens * shape.dim) {}

void HyperConnections::Begin(size_t tokens) {
  tokens_ = tokens;
  std::fill_n(pre_.begin(), tokens * shape_.streams, 0.0f);
  for (size_t t = 0; t < tokens; ++t) pre_[t * shape_.streams] = 1.0f;
}

void HyperConnections::Site(const HyperConnectionWeights& weights,
                            const Sublayer& sublayer) {
  Mix(weights, next_pre_.data());
  const bool single_pass = shape_.mode == HyperConnectionMode::kSinglePass;
  Collapse(single_pass ? pre_.data() : next_pre_.data());
  sublayer(x_.data(), y_.data());
  Expand();
  std::swap(pre_, next_pre_);
}

const float* HyperConnections::Final(const Head& head) {
  if (shape_.mode == HyperConnectionMode::kPerSite) {
    ops_.hc_head({.h = h_.data(),
                  .fn = head.fn,
                  .scale = head.scale,
                  .base = head.base,
                  .tokens = tokens_,
                  .streams = shape_.streams,
                  .dim = shape_.dim,
                  .norm_eps = shape_.norm_eps,
                  .hc_eps = shape_.hc_eps,
                  .sigmoid = shape_.sigmoid,
                  .pre = pre_.data()},
                 pool_);
  }
  Collapse(pre_.data());
  return x_.data();
}

void HyperConnections::Mix(const HyperConnectionWeights& weights, float* pre) {
  ops_.hc_mix({.h = h_.data(),
               .fn = weights.fn,
               .scale = weights.scale.data(),
               .base = weights.base.data(),
               .tokens = tokens_,
               .streams = shape_.streams,
               .dim = shape_.dim,
               .norm_eps = shape_.norm_eps,
               .hc_eps = shape_.hc_eps,
               .sinkhorn_iters = shape_.sinkhorn_iters,
               .sigmoid = shape_.sigmoid,
               .pre = pre,
               .post = post_.data(),
               .comb = comb_.data()},
              pool_);
}

void HyperConnections::Collapse(const float* pre) {
  ops_.hc_collapse({.h = h_.data(),
                    .pre = pre,
                    .tokens = tokens_,
                    .streams = shape_.streams,
                    .dim = shape_.dim,
                    .x = x_.data()},
                   pool_);
  Round(x_.data(), tokens_ * shape_.dim);
}

void HyperConnections::Expand() {
  ops_.hc_expand({.y = y_.data(),
                  .post = post_.data(),
                  .comb = comb_.data(),
                  .tokens = tokens_,
                  .streams = shape_.streams,
                  .dim = shape_.dim,
                  .h = h_.data()},
                 pool_);
  Round(h_.data(), tokens_ * shape_.streams * shape_.dim);
}

void HyperConnections::Round(float* x, size_t count) {
  if (shape_.round_bf16) ops_.round_bf16({.x = x, .count = count}, pool_);
}

}  // namespace ecphory
