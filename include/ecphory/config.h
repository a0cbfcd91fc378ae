// Every size and constant of a model, read from its file and checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ecphory/export.h"
#include "ecphory/status.h"

namespace ecphory {

// Which site's `pre` collapses the streams (spec: mHC).
enum class HyperConnectionMode : uint8_t {
  kSinglePass,  // V4.1: the previous site's
  kPerSite,     // V4: the same site's, and a learned head mix at the end
};

// Router score function: sqrt(softplus(x)), sigmoid(x) or softmax over experts.
enum class RouterScoreKind : uint8_t { kSqrtSoftplus, kSigmoid, kSoftmax };

struct YarnConfig {
  bool enabled = false;
  float factor = 1;
  float beta_fast = 32;
  float beta_slow = 1;
  float original_max_positions = 0;
};

// Where each Engram layer's rows come from (engram/layout.h builds on it).
struct ECPHORY_EXPORT EngramConfig {
  std::vector<uint32_t> layer_ids;  // ascending; empty = no Engram
  std::vector<uint64_t> rows;       // per layer id
  uint32_t max_ngram = 0;           // 2..max_ngram
  uint32_t heads = 0;               // per n-gram size
  uint32_t head_dim = 0;            // values per row, multiple of 32
  uint64_t vocab_size = 0;          // primes start above this; 0 when the
                                    // file lists the primes instead
  uint32_t compressed_vocab_size = 0;
  uint32_t pad_token_id = 0;  // raw id (config.json)
  // GGUF stores the derived numbers; empty when they are to be computed.
  std::vector<uint64_t> primes;       // [layer][ngram - 2][head] flattened
  std::vector<uint64_t> multipliers;  // [layer][max_ngram] flattened
  int64_t pad_compressed_id = -1;     // from GGUF; -1 = token_map[pad_token_id]

  bool enabled() const { return !layer_ids.empty(); }
  uint32_t columns() const { return (max_ngram - 1) * heads; }
  // -1 when `layer` has no Engram, else its index into layer_ids.
  int IndexOfLayer(uint32_t layer) const;
};

struct ECPHORY_EXPORT ModelConfig {
  std::string architecture;  // "deepseek41"
  std::string name;          // free text, may be empty

  uint32_t vocab_size = 0;
  uint32_t hidden_size = 0;  // D
  uint32_t n_layers = 0;
  uint32_t n_heads = 0;
  uint32_t head_dim = 0;  // d
  uint32_t rope_dim = 0;  // r, even, <= head_dim
  uint32_t q_lora_rank = 0;
  uint32_t o_groups = 0;
  uint32_t o_lora_rank = 0;     // per group
  uint32_t sliding_window = 0;  // W
  uint32_t max_positions = 0;
  float rms_norm_eps = 0;
  float rope_theta = 0;
  float compress_rope_theta = 0;
  YarnConfig yarn;  // compressed rope only

  std::vector<uint32_t> compress_ratios;  // [n_layers]: 0, 1, 2, ...
  std::vector<uint32_t> kv_source_layer_ids;
  std::vector<uint32_t> index_source_layer_ids;
  uint32_t index_n_heads = 0;
  uint32_t index_head_dim = 0;
  uint32_t index_topk = 0;
  int32_t candidate_source_layer_id = -1;  // -1: no candidate stage
  uint32_t candidate_topk_blocks = 0;
  uint32_t candidate_block_size = 0;

  uint32_t n_experts = 0;
  uint32_t n_experts_per_token = 0;
  uint32_t n_shared_experts = 0;
  uint32_t expert_dim = 0;  // moe_intermediate_size
  RouterScoreKind router_score = RouterScoreKind::kSqrtSoftplus;
  float gate_temp = 1;
  bool norm_topk_prob = true;
  float routed_scaling_factor = 1;
  float swiglu_limit = 0;  // 0 = off

  uint32_t hc_mult = 0;  // H, 2..16
  uint32_t hc_sinkhorn_iters = 0;
  float hc_eps = 0;
  HyperConnectionMode hc_mode = HyperConnectionMode::kSinglePass;

  EngramConfig engram;

  int32_t bos_token_id = -1;
  int32_t eos_token_id = -1;
  int32_t image_token_id = -1;  // -1: no images

  // KV source that `layer` reads (the last source at or before it), -1 when
  // its ratio is 0. Likewise for the index source.
  int KvSourceOf(uint32_t layer) const;
  int IndexSourceOf(uint32_t layer) const;
  bool IsKvSource(uint32_t layer) const;
  bool IsIndexSource(uint32_t layer) const;

  // Refuses values that no code path below can hold (zero sizes, head_dim not
  // a multiple of 32, ratios without sources, sources of different ratio in
  // one group, ids out of range, H outside 2..16, ...), naming the key.
  Status Validate() const;
};

// Parses the text of a released config.json (composite with `text_config`, or
// flat). Every missing key is named. `where` names the file in errors.
ECPHORY_EXPORT Result<ModelConfig> ParseConfigJson(const std::string& text,
                                                   const std::string& where);

}  // namespace ecphory
