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
      post_(max_tokens * shape.streams),
      comb_(max_tokens * shape.streams * shape.streams),
      x_(max_tokens * shape.dim),
      y_(max_tokens * shape.dim) {}

void HyperConnections::Begin(size_t tokens) {
  tokens_ = tokens;
  expand_pending_ = false;
  std::fill_n(pre_.begin(), tokens * shape_.streams, 0.0f);
  for (size_t t = 0; t < tokens; ++t) pre_[t * shape_.streams] = 1.0f;
}

void HyperConnections::Site(const HyperConnectionWeights& weights,
                            const std::vector<float>& norm,
                            const Sublayer& sublayer) {
  Split(weights, norm);
  sublayer(x_.data(), y_.data());
  expand_pending_ = true;
}

float* HyperConnections::streams() {
  if (expand_pending_) {
    ops_.hc_expand({.y = y_.data(),
                    .post = post_.data(),
                    .comb = comb_.data(),
                    .tokens = tokens_,
                    .streams = shape_.streams,
                    .dim = shape_.dim,
                    .round_bf16 = shape_.round_bf16,
                    .h = h_.data()},
                   pool_);
    expand_pending_ = false;
  }
  return h_.data();
}

const float* HyperConnections::Read(const HyperConnectionWeights& weights,
                                    const std::vector<float>& norm) {
  Split(weights, norm);
  return x_.data();
}

const float* HyperConnections::Final(const Head& head) {
  const float* const h = streams();
  if (shape_.mode == HyperConnectionMode::kPerSite) {
    ops_.hc_head({.h = h,
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
  ops_.hc_collapse({.h = h,
                    .pre = pre_.data(),
                    .tokens = tokens_,
                    .streams = shape_.streams,
                    .dim = shape_.dim,
                    .round_bf16 = shape_.round_bf16,
                    .x = x_.data()},
                   pool_);
  return x_.data();
}

void HyperConnections::Split(const HyperConnectionWeights& weights,
                             const std::vector<float>& norm) {
  const bool single_pass = shape_.mode == HyperConnectionMode::kSinglePass;
  ops_.hc_split({.y = expand_pending_ ? y_.data() : nullptr,
                 .last_post = post_.data(),
                 .last_comb = comb_.data(),
                 .h = h_.data(),
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
                 .round_bf16 = shape_.round_bf16,
                 .collapse_pre = single_pass ? pre_.data() : nullptr,
                 .norm_weight = norm.data(),
                 .pre = pre_.data(),
                 .post = post_.data(),
                 .comb = comb_.data(),
                 .x = x_.data()},
                pool_);
  expand_pending_ = false;
}

}  // namespace ecphory
