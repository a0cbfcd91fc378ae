// The buffers of one chunk of tokens, and how large each is.
//
// Said once: a session allocates them by the same list as the memory plan adds
// them up by.
#pragma once

#include <cstdint>
#include <vector>

#include "ecphory/config.h"
#include "ecphory/session.h"
#include "model/caches.h"

namespace ecphory {

class ForwardScratch {
 public:
  // Tokens whose logits are computed together when all are wanted: a batch of a
  // 129,280-token vocabulary is 16 MiB.
  static constexpr size_t kLogitBatch = 32;

  // Tokens whose index scores are computed together, of passes of `chunk`
  // tokens over `groups` entries.
  static size_t ScoredTokens(uint64_t groups, uint64_t chunk);
  // Bytes of all buffers of such a session, the logits of one token included.
  static uint64_t Bytes(const ModelConfig& config,
                        const SessionOptions& options);

 protected:
  ForwardScratch(const ModelConfig& config, const SessionOptions& options);

  // T tokens, d head_dim, D hidden size, H streams.
  std::vector<int64_t> positions_;        // [T]
  std::vector<int64_t> group_positions_;  // [T] first token of each new group
  std::vector<float> qr_;                 // [T, q_lora_rank]
  std::vector<float> q_;                  // [T, n_heads, d]
  std::vector<float> heads_;              // [T, n_heads, d]
  std::vector<float> kv_;                 // [T, d]
  std::vector<float> gate_;               // [T, d] compressor gates
  std::vector<float> latent_;             // [T, d] at most one group a token
  std::vector<float> index_key_;          // [T, index_head_dim]
  std::vector<float> index_q_;            // [T, index_n_heads, index_head_dim]
  std::vector<float> index_w_;            // [T, index_n_heads]
  std::vector<float> scores_;             // [tile, groups]
  LazyBytes candidates_;                  // [T, blocks] candidate mask
  std::vector<int32_t> selected_;         // [T, index_topk]
  std::vector<float> lora_;               // [T, o_groups, o_lora_rank]
  std::vector<float> router_logits_;      // [T, n_experts]
  std::vector<int32_t> expert_ids_;       // [T, n_experts_per_token]
  std::vector<float> expert_weights_;     // [T, n_experts_per_token]
  std::vector<int32_t> shared_ids_;       // [T] zeros
  std::vector<float> shared_weights_;     // [T] ones
  std::vector<float> hidden_;             // [T, D]
  std::vector<float> engram_kv_;          // [T, (H + 1) * D]
  std::vector<float> engram_gate_;        // [T, H]
  // [1 or kLogitBatch, vocab]: the larger one where all are wanted.
  std::vector<float> logits_;

 private:
  ForwardScratch() = default;
  // size(buffer, count) for every buffer.
  template <typename Size>
  void ForEach(const ModelConfig& c, const SessionOptions& options,
               const Size& size);
  template <typename Size>
  void ForEachCompressed(const ModelConfig& c, const SessionOptions& options,
                         const Size& size);
};

}  // namespace ecphory
