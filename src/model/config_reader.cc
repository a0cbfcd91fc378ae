#include "model/config_reader.h"

#include <string>
#include <utility>

#include "base/quote.h"

namespace ecphory {

namespace {

void ReadAttention(FieldReader* f, ModelConfig* c) {
  f->Required("num_attention_heads", &c->n_heads);
  f->Required("head_dim", &c->head_dim);
  f->Required("qk_rope_head_dim", &c->rope_dim);
  f->Required("q_lora_rank", &c->q_lora_rank);
  f->Required("o_groups", &c->o_groups);
  f->Required("o_lora_rank", &c->o_lora_rank);
  f->Required("sliding_window", &c->sliding_window);
  f->Required("rope_theta", &c->rope_theta);
  f->Required("compress_rope_theta", &c->compress_rope_theta);
  uint32_t kv_heads = 1;
  f->Required("num_key_value_heads", &kv_heads);
  if (kv_heads != 1) {
    f->Keep(Unsupported("%s: found %u, expected 1 (one shared KV vector)",
                        f->source().Spelling("num_key_value_heads").c_str(),
                        kv_heads));
  }
}

// The released list may go on for the MTP stages behind the last layer.
void ReadCompressRatios(FieldReader* f, ModelConfig* c) {
  f->Required("compress_ratios", &c->compress_ratios);
  if (c->compress_ratios.size() > c->n_layers) {
    c->compress_ratios.resize(c->n_layers);
  }
}

void ReadCandidates(FieldReader* f, ModelConfig* c) {
  f->Optional("candidate_source_layer_id", &c->candidate_source_layer_id);
  if (c->candidate_source_layer_id == -1) return;
  f->Required("candidate_topk_blocks", &c->candidate_topk_blocks);
  f->Required("candidate_block_size", &c->candidate_block_size);
}

void ReadCompression(FieldReader* f, ModelConfig* c) {
  ReadCompressRatios(f, c);
  f->Required("kv_source_layer_ids", &c->kv_source_layer_ids);
  f->Required("index_source_layer_ids", &c->index_source_layer_ids);
  f->Required("index_n_heads", &c->index_n_heads);
  f->Required("index_head_dim", &c->index_head_dim);
  f->Required("index_topk", &c->index_topk);
  ReadCandidates(f, c);
}

void ReadScoreFunction(FieldReader* f, ModelConfig* c) {
  std::string name = "sqrtsoftplus";
  f->Required("scoring_func", &name);
  if (name == "sqrtsoftplus") {
    c->router_score = RouterScoreKind::kSqrtSoftplus;
  } else if (name == "sigmoid") {
    c->router_score = RouterScoreKind::kSigmoid;
  } else if (name == "softmax") {
    c->router_score = RouterScoreKind::kSoftmax;
  } else {
    f->Keep(Unsupported(
        "%s: found %s, expected sqrtsoftplus, sigmoid or softmax",
        f->source().Spelling("scoring_func").c_str(), Quoted(name).c_str()));
  }
}

void ReadExperts(FieldReader* f, ModelConfig* c) {
  f->Required("moe_intermediate_size", &c->expert_dim);
  f->Required("n_routed_experts", &c->n_experts);
  f->Required("n_shared_experts", &c->n_shared_experts);
  f->Required("num_experts_per_tok", &c->n_experts_per_token);
  f->Required("norm_topk_prob", &c->norm_topk_prob);
  f->Required("routed_scaling_factor", &c->routed_scaling_factor);
  f->Required("swiglu_limit", &c->swiglu_limit);
  f->Optional("gate_temp", &c->gate_temp);
  ReadScoreFunction(f, c);
  f->ExpectIfPresent("hidden_act", "silu");
  f->ExpectIfPresent("topk_method", "noaux_tc");
}

}  // namespace

void ReadBackbone(FieldReader* f, ModelConfig* c) {
  f->Required("vocab_size", &c->vocab_size);
  f->Required("hidden_size", &c->hidden_size);
  f->Required("num_hidden_layers", &c->n_layers);
  f->Required("max_position_embeddings", &c->max_positions);
  f->Required("rms_norm_eps", &c->rms_norm_eps);
  ReadAttention(f, c);
  ReadCompression(f, c);
  ReadExperts(f, c);
  f->Required("hc_mult", &c->hc_mult);
  f->Required("hc_sinkhorn_iters", &c->hc_sinkhorn_iters);
  f->Required("hc_eps", &c->hc_eps);
  f->Optional("image_token_id", &c->image_token_id);
}

void ReadSpecialTokens(FieldReader* f, ModelConfig* c) {
  for (const auto& [key, id] : {std::pair{"bos_token_id", &c->bos_token_id},
                                std::pair{"eos_token_id", &c->eos_token_id}}) {
    const std::string first = std::string(key) + ".0";
    f->Optional(f->source().Has(first) ? first : key, id);
  }
}

}  // namespace ecphory
