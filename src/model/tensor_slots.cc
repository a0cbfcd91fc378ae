#include "model/tensor_slots.h"

#include <utility>

#include "model/names.h"

namespace ecphory {

namespace {

class SlotList {
 public:
  SlotList(const ModelConfig& config, Weights* weights)
      : c_(config), weights_(weights) {}

  std::vector<TensorSlot> Take() && { return std::move(slots_); }

  void AddModelTensors() {
    const uint64_t vocab = c_.vocab_size, dim = c_.hidden_size;
    AddMatrix("embed", TensorRole::kEmbedding, vocab, dim, &weights_->embed);
    AddVector("norm", {dim}, &weights_->norm);
    AddMatrix("head", TensorRole::kDense, vocab, dim, &weights_->head);
  }

  void AddLayer(uint32_t layer) {
    prefix_ = LayerTensor(layer, "");
    LayerWeights& w = weights_->layers[layer];
    AddHyperConnection("hc_attn", &w.hc_attn);
    AddVector("attn_norm", {c_.hidden_size}, &w.attn_norm);
    AddHyperConnection("hc_ffn", &w.hc_ffn);
    AddVector("ffn_norm", {c_.hidden_size}, &w.ffn_norm);
    AddAttention(&w.attn);
    if (c_.IsKvSource(layer)) {
      AddCompressor(c_.compress_ratios[layer], &w.attn.compressor);
    }
    if (c_.IsIndexSource(layer)) AddIndexer(&w.attn.indexer);
    AddMoe(&w.moe);
    if (c_.engram.IndexOfLayer(layer) >= 0) AddEngram(&w.engram);
  }

 private:
  TensorSlot& Add(const std::string& name, TensorRole role,
                  std::vector<uint64_t> shape) {
    TensorSlot& slot = slots_.emplace_back();
    slot.name = prefix_ + name;
    slot.role = role;
    slot.shape = std::move(shape);
    return slot;
  }

  void AddMatrix(const std::string& name, TensorRole role, uint64_t rows,
                 uint64_t cols, Matrix* place) {
    Add(name, role, {rows, cols}).matrix = place;
  }

  TensorSlot& AddVector(const std::string& name, std::vector<uint64_t> shape,
                        DeviceArray<float>* place) {
    TensorSlot& slot = Add(name, TensorRole::kVector, std::move(shape));
    slot.vector = place;
    return slot;
  }

  void AddHyperConnection(const std::string& site, HyperConnectionWeights* w) {
    const uint64_t outputs = uint64_t{2 + c_.hc_mult} * c_.hc_mult;
    const uint64_t inputs = uint64_t{c_.hc_mult} * c_.hidden_size;
    AddMatrix(site + "_fn", TensorRole::kSmall, outputs, inputs, &w->fn);
    AddVector(site + "_base", {outputs}, &w->base);
    AddVector(site + "_scale", {3}, &w->scale);
  }

  void AddAttention(AttentionWeights* w) {
    const uint64_t dim = c_.hidden_size, d = c_.head_dim, rank = c_.q_lora_rank;
    const uint64_t heads_dim = uint64_t{c_.n_heads} * d;
    const uint64_t groups_rank = uint64_t{c_.o_groups} * c_.o_lora_rank;
    const TensorRole dense = TensorRole::kDense;
    AddVector("attn.attn_sink", {c_.n_heads}, &w->sink);
    AddMatrix("attn.wq_a", dense, rank, dim, &w->wq_a);
    AddMatrix("attn.wq_b", dense, heads_dim, rank, &w->wq_b);
    AddVector("attn.q_norm", {rank}, &w->q_norm);
    AddMatrix("attn.wkv", dense, d, dim, &w->wkv);
    AddVector("attn.kv_norm", {d}, &w->kv_norm);
    AddMatrix("attn.wo_a", dense, groups_rank, heads_dim / c_.o_groups,
              &w->wo_a);
    AddMatrix("attn.wo_b", dense, dim, groups_rank, &w->wo_b);
  }

  void AddCompressor(uint32_t ratio, CompressorWeights* w) {
    const uint64_t dim = c_.hidden_size, d = c_.head_dim;
    const uint64_t key_dim = c_.index_head_dim;
    const TensorRole small = TensorRole::kSmall;
    AddMatrix("attn.compressor.wkv", small, d, dim, &w->wkv);
    AddVector("attn.compressor.norm", {d}, &w->norm);
    AddMatrix("attn.indexer.wk", small, key_dim, d, &w->index_wk);
    AddVector("attn.indexer.k_norm", {key_dim}, &w->index_k_norm);
    if (ratio == 1) return;
    AddMatrix("attn.compressor.wgate", small, d, dim, &w->wgate);
  }

  void AddIndexer(IndexerWeights* w) {
    const uint64_t heads_dim = uint64_t{c_.index_n_heads} * c_.index_head_dim;
    AddMatrix("attn.indexer.wq_b", TensorRole::kSmall, heads_dim,
              c_.q_lora_rank, &w->wq_b);
    AddMatrix("attn.indexer.weights_proj", TensorRole::kSmall, c_.index_n_heads,
              c_.hidden_size, &w->weights_proj);
  }

  void AddMoe(MoeWeights* w) {
    AddMatrix("ffn.gate", TensorRole::kRouter, c_.n_experts, c_.hidden_size,
              &w->gate);
    AddVector("ffn.gate.bias", {c_.n_experts}, &w->bias);
    AddVector("ffn.gate.bias_vl", {c_.n_experts}, &w->bias_image).optional =
        true;
    AddProjection("w1", false, &Expert::w1, w);
    AddProjection("w3", false, &Expert::w3, w);
    AddProjection("w2", true, &Expert::w2, w);
  }

  // One projection of the shared expert, then of all routed experts.
  void AddProjection(const std::string& name, bool down, Matrix Expert::*part,
                     MoeWeights* w) {
    const uint64_t dim = c_.hidden_size, inner = c_.expert_dim;
    const uint64_t shared = uint64_t{c_.n_shared_experts} * inner;
    AddMatrix("ffn.shared_experts." + name, TensorRole::kDense,
              down ? dim : shared, down ? shared : dim, &(w->shared.*part));
    TensorSlot& slot =
        Add("ffn.experts." + name, TensorRole::kExperts,
            {c_.n_experts, down ? dim : inner, down ? inner : dim});
    slot.experts = &w->experts;
    slot.expert_part = part;
  }

  void AddEngram(EngramWeights* w) {
    const uint64_t streams = c_.hc_mult, dim = c_.hidden_size;
    const uint64_t row_values =
        uint64_t{c_.engram.columns()} * c_.engram.head_dim;
    AddVector("engram.q_weight", {streams, dim}, &w->q_weight);
    AddVector("engram.k_weight", {streams, dim}, &w->k_weight);
    AddMatrix("engram.wkv", TensorRole::kSmall, (streams + 1) * dim, row_values,
              &w->wkv);
  }

  const ModelConfig& c_;
  Weights* weights_;
  std::string prefix_;  // "" or "layers.N."
  std::vector<TensorSlot> slots_;
};

}  // namespace

uint64_t TensorSlot::ValueCount() const {
  uint64_t count = 1;
  for (const uint64_t extent : shape) count *= extent;
  return count;
}

std::string TensorSlot::ExpertName(size_t expert) const {
  const size_t dot = name.rfind('.');
  return name.substr(0, dot + 1) + std::to_string(expert) + name.substr(dot);
}

std::vector<TensorSlot> MakeTensorSlots(const ModelConfig& config,
                                        Weights* weights) {
  weights->layers.resize(config.n_layers);
  SlotList list(config, weights);
  list.AddModelTensors();
  for (uint32_t layer = 0; layer < config.n_layers; ++layer) {
    list.AddLayer(layer);
  }
  return std::move(list).Take();
}

}  // namespace ecphory
