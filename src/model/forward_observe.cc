// What an observer of the forward pass is shown. Nothing here changes a value.
#include <algorithm>

#include "model/forward.h"

namespace ecphory {

bool Forward::Observed(uint32_t layer) const {
  return chunk_->observer != nullptr && chunk_->observer->Wants(layer);
}

void Forward::Observe(uint32_t layer, const char* name, const float* x,
                      const std::vector<uint64_t>& shape) const {
  if (!Observed(layer)) return;
  size_t count = 1;
  for (uint64_t n : shape) count *= n;
  chunk_->observer->OnF32(layer, name, {x, count}, shape);
}

// The coefficients of the site that just ran, and the streams it left.
void Forward::ObserveSite(uint32_t layer, const std::string& site) {
  if (!Observed(layer)) return;
  const uint64_t H = config_.hc_mult;
  Observe(layer, (site + ".hc_pre").c_str(), streams_.pre(), {tokens(), H});
  Observe(layer, (site + ".hc_post").c_str(), streams_.post(), {tokens(), H});
  Observe(layer, (site + ".hc_comb").c_str(), streams_.comb(),
          {tokens(), H, H});
  ObserveStreams(layer, site == "attn" ? "streams_after_attn" : "streams_out");
}

void Forward::ObserveStreams(uint32_t layer, const char* name) {
  if (!Observed(layer)) return;
  Observe(layer, name, streams_.streams(),
          {tokens(), config_.hc_mult, config_.hidden_size});
}

// The last of the H + 1 vectors that a token's rows are projected to.
void Forward::ObserveEngramValue(uint32_t layer) const {
  if (!Observed(layer)) return;
  const size_t dim = config_.hidden_size, streams = config_.hc_mult;
  std::vector<float> values(tokens() * dim);
  for (size_t t = 0; t < tokens(); ++t) {
    const float* value =
        engram_kv_.data() + (t * (streams + 1) + streams) * dim;
    std::copy_n(value, dim, values.data() + t * dim);
  }
  Observe(layer, "engram.value", values.data(), {tokens(), dim});
}

void Forward::ObserveRows(uint32_t layer, const char* name,
                          const RowCache& cache, uint64_t first_row,
                          size_t rows) const {
  if (!Observed(layer)) return;
  std::vector<float> values(rows * cache.dim);
  for (size_t r = 0; r < rows; ++r) {
    DecodeRow(cache.format, cache.row((first_row + r) % cache.capacity),
              cache.dim, values.data() + r * cache.dim);
  }
  Observe(layer, name, values.data(), {rows, cache.dim});
}

void Forward::ObserveCandidates(uint32_t layer, const uint8_t* mask,
                                size_t rows, uint64_t blocks) const {
  if (!Observed(layer)) return;
  chunk_->observer->OnU8(layer, "candidate_blocks", {mask, rows * blocks},
                         {rows, blocks});
}

void Forward::ObserveSelected(uint32_t layer) const {
  if (!Observed(layer)) return;
  const uint64_t topk = config_.index_topk;
  chunk_->observer->OnI32(layer, "index_selected",
                          {selected_.data(), tokens() * topk},
                          {tokens(), topk});
}

void Forward::ObserveRouter(uint32_t layer) const {
  if (!Observed(layer)) return;
  const uint64_t topk = config_.n_experts_per_token;
  chunk_->observer->OnI32(layer, "router.indices",
                          {expert_ids_.data(), tokens() * topk},
                          {tokens(), topk});
  Observe(layer, "router.weights", expert_weights_.data(), {tokens(), topk});
}

}  // namespace ecphory
