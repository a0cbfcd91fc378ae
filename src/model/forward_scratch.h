// The buffers of one chunk of tokens, and how large each is.
//
// Said once: a session allocates them by the same list as the memory plan adds
// them up by.
#pragma once

#include <cstdint>

#include "ecphory/config.h"
#include "ecphory/session.h"
#include "ops/device_array.h"
#include "ops/sample.h"

namespace ecphory {

class ForwardScratch {
 public:
  // Tokens whose logits are computed together when all are wanted: a batch of a
  // 129,280-token vocabulary is 16 MiB.
  static constexpr size_t kLogitBatch = 32;

  // Tokens whose index scores are computed together, of passes of `chunk`
  // tokens over `groups` entries.
  static size_t ScoredTokens(uint64_t groups, uint64_t chunk);
  // Bytes of all buffers for passes of so many tokens and sequences, the logits
  // of one token of each included.
  static uint64_t Bytes(const ModelConfig& config,
                        const SessionOptions& options, size_t sequences = 1);

 protected:
  ForwardScratch() = default;
  // kResourceExhausted when there is not so much memory.
  Status Allocate(const ModelConfig& config, const SessionOptions& options,
                  size_t sequences, Device& device);

  // T tokens, d head_dim, D hidden size, H streams.
  MirroredArray<int32_t> ids_;        // [T]
  MirroredArray<uint8_t> image_;      // [T] 1 = image position
  MirroredArray<int64_t> positions_;  // [T]
  // [KV sources, T] first token of each group that the chunk completes; T is
  // the chunk's own here
  MirroredArray<int64_t> group_positions_;
  DeviceArray<float> qr_;              // [T, q_lora_rank]
  DeviceArray<float> q_;               // [T, n_heads, d]
  DeviceArray<float> heads_;           // [T, n_heads, d]
  DeviceArray<float> kv_;              // [T, d]
  DeviceArray<float> gate_;            // [T, d] compressor gates
  DeviceArray<float> latent_;          // [T, d] at most one group a token
  DeviceArray<float> index_key_;       // [T, index_head_dim]
  DeviceArray<float> index_q_;         // [T, index_n_heads, index_head_dim]
  DeviceArray<float> index_w_;         // [T, index_n_heads]
  DeviceArray<float> scores_;          // [tile, groups]
  DeviceArray<uint8_t> candidates_;    // [T, blocks] candidate mask
  DeviceArray<int32_t> selected_;      // [T, index_topk]
  DeviceArray<float> lora_;            // [T, o_groups, o_lora_rank]
  DeviceArray<float> router_logits_;   // [T, n_experts]
  DeviceArray<int32_t> expert_ids_;    // [T, n_experts_per_token]
  DeviceArray<float> expert_weights_;  // [T, n_experts_per_token]
  DeviceArray<int32_t> shared_ids_;    // [T] zeros
  DeviceArray<float> shared_weights_;  // [T] ones
  DeviceArray<float> hidden_;          // [T, D]
  DeviceArray<float> engram_rows_;     // [kMaxTaken, columns * row values]
  DeviceArray<float> engram_kv_;       // [T, (H + 1) * D]
  DeviceArray<float> engram_gate_;     // [T, H]
  // [sequences or kLogitBatch, vocab]: the latter where all are wanted.
  MirroredArray<float> logits_;
  DeviceArray<Sampled> sampled_;    // shared, [sequences]
  DeviceArray<int32_t> penalized_;  // shared; as many as there were at most

 private:
  // size(buffer, count) for every buffer.
  template <typename Size>
  void ForEach(const ModelConfig& c, const SessionOptions& options,
               size_t sequences, const Size& size);
  template <typename Size>
  void ForEachCompressed(const ModelConfig& c, const SessionOptions& options,
                         const Size& size);
};

}  // namespace ecphory
