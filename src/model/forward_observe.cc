// What an observer of the forward pass is shown. Nothing here changes a value.
#include <algorithm>

#include "model/forward.h"
#include "tensor/float_codec.h"

namespace ecphory {

bool Forward::Observed(uint32_t layer) const {
  return chunk_->observer != nullptr && chunk_->observer->Wants(layer);
}

// Values of the device where the host can see them. A device that fails is
// found out at the end of the pass.
template <typename T>
std::span<const T> Forward::Seen(const T* x, size_t count,
                                 std::vector<T>* copy) const {
  if (model_.device->is_host()) return {x, count};
  copy->resize(count);
  (void)queue_->Receive(copy->data(), x, count * sizeof(T));
  return *copy;
}

void Forward::Observe(uint32_t layer, const char* name, const float* x,
                      const std::vector<uint64_t>& shape) const {
  if (!Observed(layer)) return;
  size_t count = 1;
  for (uint64_t n : shape) count *= n;
  std::vector<float> copy;
  chunk_->observer->OnF32(layer, name, Seen(x, count, &copy), shape);
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
  const std::vector<uint64_t> shape = {tokens(), config_.hc_mult,
                                       config_.hidden_size};
  const Streams h = streams_.streams();
  if (!h.is_bf16()) {
    return Observe(layer, name, static_cast<const float*>(h.data), shape);
  }
  std::vector<uint16_t> copy;
  const auto bits = Seen(static_cast<const uint16_t*>(h.data),
                         tokens() * shape[1] * shape[2], &copy);
  std::vector<float> values(bits.size());
  std::transform(bits.begin(), bits.end(), values.begin(), BF16ToF32);
  chunk_->observer->OnF32(layer, name, values, shape);
}

// The last of the H + 1 vectors that a token's rows are projected to.
void Forward::ObserveEngramValue(uint32_t layer) const {
  if (!Observed(layer)) return;
  const size_t dim = config_.hidden_size, streams = config_.hc_mult;
  const size_t width = (streams + 1) * dim;
  std::vector<float> copy, values(tokens() * dim);
  const auto kv = Seen(engram_kv_.data(), tokens() * width, &copy);
  for (size_t t = 0; t < tokens(); ++t) {
    std::copy_n(kv.data() + t * width + streams * dim, dim,
                values.data() + t * dim);
  }
  chunk_->observer->OnF32(layer, "engram.value", values, {tokens(), dim});
}

void Forward::ObserveRows(uint32_t layer, const char* name,
                          const RowCache& cache, uint64_t first_row,
                          size_t rows) const {
  if (!Observed(layer)) return;
  std::vector<uint8_t> copy;
  const auto bytes = Seen(cache.bytes.data(), cache.bytes.size(), &copy);
  std::vector<float> values(rows * cache.dim);
  for (size_t r = 0; r < rows; ++r) {
    const uint64_t row = (first_row + r) % cache.capacity;
    DecodeRow(cache.format, bytes.data() + row * cache.row_bytes, cache.dim,
              values.data() + r * cache.dim);
  }
  chunk_->observer->OnF32(layer, name, values, {rows, cache.dim});
}

void Forward::ObserveCandidates(uint32_t layer, const uint8_t* mask,
                                size_t rows, uint64_t blocks) const {
  if (!Observed(layer)) return;
  std::vector<uint8_t> copy;
  chunk_->observer->OnU8(layer, "candidate_blocks",
                         Seen(mask, rows * blocks, &copy), {rows, blocks});
}

void Forward::ObserveSelected(uint32_t layer) const {
  if (!Observed(layer)) return;
  const uint64_t topk = config_.index_topk;
  std::vector<int32_t> copy;
  chunk_->observer->OnI32(layer, "index_selected",
                          Seen(selected_.data(), tokens() * topk, &copy),
                          {tokens(), topk});
}

void Forward::ObserveRouter(uint32_t layer) const {
  if (!Observed(layer)) return;
  const uint64_t topk = config_.n_experts_per_token;
  std::vector<int32_t> copy;
  chunk_->observer->OnI32(layer, "router.indices",
                          Seen(expert_ids_.data(), tokens() * topk, &copy),
                          {tokens(), topk});
  Observe(layer, "router.weights", expert_weights_.data(), {tokens(), topk});
}

}  // namespace ecphory
