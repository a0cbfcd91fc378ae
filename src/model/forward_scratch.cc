#include "model/forward_scratch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/ceil_div.h"
#include "model/engram_fetch.h"

namespace ecphory {

namespace {

// Index scores are computed for a tile of tokens at a time, so that a long
// context bounds scratch: 2^22 scores are 16 MiB.
constexpr uint64_t kMaxScores = uint64_t{1} << 22;

uint64_t MaxGroups(const ModelConfig& config, uint64_t context) {
  uint64_t groups = 0;
  for (const uint32_t layer : config.kv_source_layer_ids) {
    groups = std::max(groups, context / config.compress_ratios[layer]);
  }
  return groups;
}

// Until the first that does not fit.
struct Allocator {
  Device* device;
  Status* status;
  template <template <typename> typename Array, typename T>
  void operator()(Array<T>& buffer, uint64_t count) const {
    if (!status->ok()) return;
    Result<Array<T>> made = Array<T>::Allocate(*device, count);
    if (made.ok()) {
      buffer = std::move(made).value();
    } else {
      *status = made.status();
    }
  }
};

struct AddUp {
  uint64_t* bytes;
  template <template <typename> typename Array, typename T>
  void operator()(const Array<T>&, uint64_t count) const {
    *bytes += count * sizeof(T);
  }
};

}  // namespace

template <typename Size>
void ForwardScratch::ForEach(const ModelConfig& c,
                             const SessionOptions& options, size_t sequences,
                             const Size& size) {
  const uint64_t T = options.chunk, d = c.head_dim, D = c.hidden_size;
  size(ids_, T);
  size(image_, T);
  size(positions_, T);
  size(qr_, T * c.q_lora_rank);
  size(q_, T * c.n_heads * d);
  size(heads_, T * c.n_heads * d);
  size(kv_, T * d);
  size(lora_, T * c.o_groups * c.o_lora_rank);
  size(router_logits_, T * c.n_experts);
  size(expert_ids_, T * c.n_experts_per_token);
  size(expert_weights_, T * c.n_experts_per_token);
  size(shared_ids_, T);
  size(shared_weights_, T);
  size(hidden_, T * D);
  size(logits_, uint64_t{sequences} * c.vocab_size);
  if (!c.kv_source_layer_ids.empty()) ForEachCompressed(c, options, size);
  if (!c.engram.enabled() || !options.engram) return;
  size(engram_rows_, std::min<uint64_t>(T, EngramFetch::kMaxTaken) *
                         c.engram.columns() * c.engram.head_dim);
  size(engram_kv_, T * (c.hc_mult + 1) * D);
  size(engram_gate_, T * c.hc_mult);
}

template <typename Size>
void ForwardScratch::ForEachCompressed(const ModelConfig& c,
                                       const SessionOptions& options,
                                       const Size& size) {
  // None in a context shorter than every ratio; a group is opened all the same.
  const uint64_t groups = MaxGroups(c, options.context);
  const uint64_t T = options.chunk;
  size(group_positions_, c.kv_source_layer_ids.size() * T);
  size(gate_, T * c.head_dim);
  size(latent_, T * c.head_dim);
  size(index_key_, T * c.index_head_dim);
  size(index_q_, T * c.index_n_heads * c.index_head_dim);
  size(index_w_, T * c.index_n_heads);
  size(scores_, std::max(groups, std::min(T * groups, kMaxScores)));
  size(selected_, T * c.index_topk);
  if (c.candidate_source_layer_id >= 0) {
    size(candidates_, T * CeilDiv(groups, c.candidate_block_size));
  }
}

Status ForwardScratch::Allocate(const ModelConfig& config,
                                const SessionOptions& options, size_t sequences,
                                Device& device) {
  Status status;
  ForEach(config, options, sequences, Allocator{&device, &status});
  ECPHORY_RETURN_IF_ERROR(status);
  return shared_weights_.Write(
      0, std::vector<float>(shared_weights_.size(), 1.0f));
}

size_t ForwardScratch::ScoredTokens(uint64_t groups, uint64_t chunk) {
  if (groups == 0) return 0;
  return static_cast<size_t>(
      std::clamp<uint64_t>(kMaxScores / groups, 1, chunk));
}

uint64_t ForwardScratch::Bytes(const ModelConfig& config,
                               const SessionOptions& options,
                               size_t sequences) {
  uint64_t bytes = 0;
  ForwardScratch().ForEach(config, options, sequences, AddUp{&bytes});
  return bytes;
}

}  // namespace ecphory
