#include "model/names.h"

#include <optional>

namespace ecphory {

namespace {

struct NamePair {
  const char* released;
  const char* gguf;
};

constexpr NamePair kModelTensors[] = {
    {"embed", "token_embd.weight"},
    {"norm", "output_norm.weight"},
    {"head", "output.weight"},
};

// After "layers.N." and "blk.N.".
constexpr NamePair kLayerTensors[] = {
    {"hc_attn_fn", "hc_attn_fn.weight"},
    {"hc_attn_base", "hc_attn_base.weight"},
    {"hc_attn_scale", "hc_attn_scale.weight"},
    {"hc_ffn_fn", "hc_ffn_fn.weight"},
    {"hc_ffn_base", "hc_ffn_base.weight"},
    {"hc_ffn_scale", "hc_ffn_scale.weight"},
    {"attn_norm", "attn_norm.weight"},
    {"ffn_norm", "ffn_norm.weight"},
    {"attn.attn_sink", "attn_sinks.weight"},
    {"attn.wq_a", "attn_q_a.weight"},
    {"attn.wq_b", "attn_q_b.weight"},
    {"attn.q_norm", "attn_q_a_norm.weight"},
    {"attn.wkv", "attn_kv.weight"},
    {"attn.kv_norm", "attn_kv_a_norm.weight"},
    {"attn.wo_a", "attn_output_a.weight"},
    {"attn.wo_b", "attn_output_b.weight"},
    {"attn.compressor.wkv", "attn_compressor_kv.weight"},
    {"attn.compressor.norm", "attn_compressor_norm.weight"},
    {"attn.compressor.wgate", "attn_compressor_gate.weight"},
    {"attn.indexer.wk", "indexer.attn_k.weight"},
    {"attn.indexer.k_norm", "indexer.k_norm.weight"},
    {"attn.indexer.wq_b", "indexer.attn_q_b.weight"},
    {"attn.indexer.weights_proj", "indexer.proj.weight"},
    {"ffn.gate", "ffn_gate_inp.weight"},
    {"ffn.gate.bias", "exp_probs_b.bias"},
    {"ffn.gate.bias_vl", "exp_probs_b_vl.bias"},
    {"ffn.shared_experts.w1", "ffn_gate_shexp.weight"},
    {"ffn.shared_experts.w2", "ffn_down_shexp.weight"},
    {"ffn.shared_experts.w3", "ffn_up_shexp.weight"},
    {"ffn.experts.w1", "ffn_gate_exps.weight"},
    {"ffn.experts.w2", "ffn_down_exps.weight"},
    {"ffn.experts.w3", "ffn_up_exps.weight"},
    {"engram.q_weight", "engram_q_norm.weight"},
    {"engram.k_weight", "engram_k_norm.weight"},
    {"engram.wkv", "engram_kv.weight"},
    {"engram.embed", "engram_embd.weight"},
};

template <size_t N>
const char* FindGguf(const NamePair (&table)[N], const std::string& released) {
  for (const NamePair& pair : table) {
    if (released == pair.released) return pair.gguf;
  }
  return nullptr;
}

}  // namespace

std::string GgufTensorName(const std::string& released_name) {
  const std::optional<LayerName> layer = SplitLayerName(released_name);
  if (!layer) {
    const char* found = FindGguf(kModelTensors, released_name);
    return found ? found : "";
  }
  const char* found = FindGguf(kLayerTensors, layer->suffix);
  if (found == nullptr) return "";
  return "blk." + std::to_string(layer->layer) + "." + found;
}

}  // namespace ecphory
