#include "model/hyper_connections.h"

#include <type_traits>
#include <vector>

#include "base/anonymous_memory.h"

namespace ecphory {

Status HyperConnections::Allocate(size_t max_tokens, Device& device) {
  const size_t streams = shape_.streams;
  const auto allocate = [&](auto* array, size_t a_token) {
    using Array = std::remove_pointer_t<decltype(array)>;
    ECPHORY_ASSIGN_OR_RETURN(*array,
                             Array::Allocate(device, max_tokens * a_token));
    // Many tokens' streams are read in runs of a page, and looking up small
    // ones is a twentieth of a site's time.
    if (device.is_host()) {
      AdviseHugePages(array->data(), array->size() * sizeof(*array->data()));
    }
    return Status();
  };
  ECPHORY_RETURN_IF_ERROR(
      allocate(&h_, streams * shape_.dim * StreamBytes(shape_.format)));
  ECPHORY_RETURN_IF_ERROR(allocate(&pre_, streams));
  ECPHORY_RETURN_IF_ERROR(allocate(&post_, streams));
  ECPHORY_RETURN_IF_ERROR(allocate(&comb_, streams * streams));
  ECPHORY_RETURN_IF_ERROR(allocate(&x_, shape_.dim));
  ECPHORY_RETURN_IF_ERROR(allocate(&y_, shape_.dim));
  std::vector<float> first(max_tokens * streams);
  for (size_t t = 0; t < max_tokens; ++t) first[t * streams] = 1;
  ECPHORY_ASSIGN_OR_RETURN(first_, DeviceArray<float>::Of(device, first));
  return {};
}

void HyperConnections::Begin(size_t tokens) {
  tokens_ = tokens;
  first_site_ = true;
  expand_pending_ = false;
}

void HyperConnections::Site(const HyperConnectionWeights& weights,
                            const float* norm, const Sublayer& sublayer) {
  Split(weights, norm);
  sublayer(x_.data(), y_.data());
  expand_pending_ = true;
}

Streams HyperConnections::streams() {
  Expand(0);
  return h();
}

void HyperConnections::Expand(size_t first) {
  if (!expand_pending_) return;
  const size_t H = shape_.streams, D = shape_.dim;
  ops_.hc_expand({.y = y_.data() + first * D,
                  .post = post_.data() + first * H,
                  .comb = comb_.data() + first * H * H,
                  .tokens = tokens_ - first,
                  .streams = H,
                  .dim = D,
                  .h = h().From(first * H * D)},
                 pool_);
  expand_pending_ = false;
}

const float* HyperConnections::Read(const HyperConnectionWeights& weights,
                                    const float* norm) {
  Split(weights, norm);
  return x_.data();
}

const float* HyperConnections::Final(const Head& head, size_t first) {
  Expand(first);
  const size_t H = shape_.streams, D = shape_.dim, tokens = tokens_ - first;
  const Streams h = this->h().From(first * H * D);
  float* const pre = pre_.data() + first * H;
  if (shape_.mode == HyperConnectionMode::kPerSite) {
    ops_.hc_head({.h = h,
                  .fn = head.fn,
                  .scale = head.scale,
                  .base = head.base,
                  .tokens = tokens,
                  .streams = H,
                  .dim = D,
                  .norm_eps = shape_.norm_eps,
                  .hc_eps = shape_.hc_eps,
                  .sigmoid = shape_.sigmoid,
                  .pre = pre},
                 pool_);
  }
  ops_.hc_collapse({.h = h,
                    .pre = pre,
                    .tokens = tokens,
                    .streams = H,
                    .dim = D,
                    .x = x_.data() + first * D},
                   pool_);
  return x_.data();
}

void HyperConnections::Split(const HyperConnectionWeights& weights,
                             const float* norm) {
  const bool single_pass = shape_.mode == HyperConnectionMode::kSinglePass;
  const float* const last_pre = first_site_ ? first_.data() : pre_.data();
  ops_.hc_split({.y = expand_pending_ ? y_.data() : nullptr,
                 .last_post = post_.data(),
                 .last_comb = comb_.data(),
                 .h = h(),
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
                 .collapse_pre = single_pass ? last_pre : nullptr,
                 .norm_weight = norm,
                 .pre = pre_.data(),
                 .post = post_.data(),
                 .comb = comb_.data(),
                 .x = x_.data()},
                pool_);
  first_site_ = false;
  expand_pending_ = false;
}

}  // namespace ecphory
