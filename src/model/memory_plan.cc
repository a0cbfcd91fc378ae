#include "model/memory_plan.h"

#include <algorithm>
#include <cmath>

#include "ecphory/session.h"
#include "engram/hasher.h"
#include "model/caches.h"
#include "model/engram_fetch.h"
#include "tensor/row_codec.h"

namespace ecphory {

namespace {

// A session's context when none is asked for (SessionOptions::context).
constexpr uint32_t kDefaultContext = 4096;

// One compressed entry with its index key, as a KV source publishes it.
uint64_t EntryBytes(const ModelConfig& c) {
  const CacheFormats formats;
  return RowBytes(formats.latent, c.head_dim) +
         RowBytes(formats.index_key, c.index_head_dim);
}

// Rows of a source's ring of open groups; none at ratio 1.
uint64_t OpenRows(const ModelConfig& c, uint32_t source, uint32_t chunk) {
  if (c.compress_ratios[source] == 1) return 0;
  const uint32_t largest =
      *std::max_element(c.compress_ratios.begin(), c.compress_ratios.end());
  return uint64_t{chunk} + largest;
}

// fp32 values of one token's activations (the scratch of forward.h), the
// values of Engram rows apart.
uint64_t TokenValues(const ModelConfig& c) {
  const uint64_t dim = c.hidden_size, d = c.head_dim, streams = c.hc_mult;
  uint64_t values = 2 * streams * dim + 4 * dim;  // streams, x, y, hidden
  values += c.q_lora_rank + 2 * uint64_t{c.n_heads} * d + 3 * d;  // attention
  values += uint64_t{c.o_groups} * c.o_lora_rank;
  values += uint64_t{c.index_n_heads} * (c.index_head_dim + 1) + c.index_topk;
  values += c.n_experts + 2 * uint64_t{c.n_experts_per_token};
  values += uint64_t{c.n_experts_per_token} * c.expert_dim * 2;
  if (!c.engram.enabled()) return values;
  values += (streams + 1) * dim;
  return values + c.engram.layer_ids.size() * 2 * uint64_t{c.engram.columns()};
}

uint64_t EngramBytes(const ModelConfig& c, uint32_t chunk) {
  if (!c.engram.enabled()) return 0;
  return EngramFetch::BufferBytes(
      c.engram.layer_ids.size(),
      uint64_t{c.engram.columns()} * c.engram.head_dim, chunk);
}

}  // namespace

double StateBytesPerToken(const ModelConfig& c) {
  double bytes = 0;
  for (const uint32_t source : c.kv_source_layer_ids) {
    bytes += static_cast<double>(EntryBytes(c)) / c.compress_ratios[source];
  }
  return bytes;
}

uint64_t FixedStateBytes(const ModelConfig& c, uint32_t chunk) {
  const CacheFormats formats;
  uint64_t bytes = uint64_t{c.n_layers} *
                   SequenceState::WindowCapacity(c, chunk) *
                   RowBytes(formats.window, c.head_dim);
  const uint64_t open_row = 2 * RowBytes(RowFormat::kF32, c.head_dim);
  for (const uint32_t source : c.kv_source_layer_ids) {
    bytes += OpenRows(c, source, chunk) * open_row;
  }
  return bytes + (c.engram.enabled() ? sizeof(engram::History) : 0);
}

uint64_t StateBytes(const ModelConfig& c, uint32_t context, uint32_t chunk) {
  uint64_t bytes = FixedStateBytes(c, chunk);
  for (const uint32_t source : c.kv_source_layer_ids) {
    bytes += context / c.compress_ratios[source] * EntryBytes(c);
  }
  return bytes;
}

uint64_t ScratchBytes(const ModelConfig& c, uint32_t context, uint32_t chunk) {
  const uint64_t scores = c.kv_source_layer_ids.empty() ? 0 : uint64_t{context};
  return sizeof(float) *
             (TokenValues(c) * chunk + scores + uint64_t{c.vocab_size}) +
         EngramBytes(c, chunk);
}

MemoryPlan PlanMemory(const ModelConfig& c, uint32_t context, uint32_t chunk) {
  MemoryPlan plan;
  plan.context =
      context != 0 ? context : std::min(c.max_positions, kDefaultContext);
  plan.chunk = chunk != 0 ? chunk : SessionOptions().chunk;
  plan.state_per_token_exact = StateBytesPerToken(c);
  for (const uint32_t source : c.kv_source_layer_ids) {
    const uint64_t ratio = c.compress_ratios[source];
    plan.state_per_token += (EntryBytes(c) + ratio - 1) / ratio;
  }
  plan.state_fixed = FixedStateBytes(c, plan.chunk);
  plan.state_context = StateBytes(c, plan.context, plan.chunk);
  plan.scratch = ScratchBytes(c, plan.context, plan.chunk);
  return plan;
}

}  // namespace ecphory
