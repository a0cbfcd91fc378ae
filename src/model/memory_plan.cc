#include "model/memory_plan.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "ecphory/session.h"
#include "engram/hasher.h"
#include "io/memory_facts.h"
#include "model/caches.h"
#include "model/engram_fetch.h"
#include "model/forward.h"
#include "model/forward_scratch.h"
#include "model/hyper_connections.h"
#include "model/matmul_inputs.h"
#include "model/prefill.h"
#include "ops/cpu/scratch_plan.h"
#include "tensor/row_codec.h"

namespace ecphory {

namespace {

// A session's context when none is asked for (SessionOptions::context).
constexpr uint32_t kDefaultContext = 4096;

// One compressed entry with its index key, as a KV source publishes it.
uint64_t EntryBytes(const ModelConfig& c, bool rounding = true) {
  const CacheFormats formats = CacheFormats::For(rounding);
  return RowBytes(formats.latent, c.head_dim) +
         RowBytes(formats.index_key, c.index_head_dim);
}

// With rows that take so many bytes, one of each layer.
uint64_t EngramBytes(const ModelConfig& c, const SessionOptions& options,
                     uint64_t row_bytes) {
  if (!c.engram.enabled() || !options.engram) return 0;
  return EngramFetch::BufferBytes(c.engram.layer_ids.size(), c.engram.columns(),
                                  row_bytes, options.chunk);
}

// Without rows.
uint64_t EngramNumberBytes(const ModelConfig& c,
                           const SessionOptions& options) {
  if (!c.engram.enabled() || !options.engram) return 0;
  return EngramFetch::NumberBytes(c.engram.layer_ids.size(), c.engram.columns(),
                                  options.chunk);
}

// As the processor keeps them: bf16.
uint64_t DecodedRowBytes(const ModelConfig& c) {
  return c.engram.layer_ids.size() *
         TableRowBytes(TableCodec::kBf16, c.engram.head_dim);
}

void AddProducts(const std::vector<ScratchProduct>& from, size_t tokens,
                 MatmulInput input, ScratchShape* shape) {
  for (ScratchProduct product : from) {
    product.tokens = tokens;
    product.input = input;
    shape->products.push_back(product);
  }
}

void AddIndexer(const ModelConfig& c, const SessionOptions& options,
                ScratchShape* shape) {
  shape->topk = c.index_topk;
  for (const uint32_t source : c.kv_source_layer_ids) {
    const size_t groups = options.context / c.compress_ratios[source];
    shape->groups = std::max(shape->groups, groups);
  }
  shape->index_tokens =
      ForwardScratch::ScoredTokens(shape->groups, options.chunk);
  shape->index_heads = c.index_n_heads;
  shape->index_dim = c.index_head_dim;
  shape->index_codes = options.state_rounding;
  if (c.candidate_source_layer_id >= 0) {
    shape->block_size = c.candidate_block_size;
  }
}

// Ids, image marks and the last logits of a sequence.
uint64_t SequenceBytes(const ModelConfig& c, uint32_t context) {
  return uint64_t{context} * (sizeof(int32_t) + sizeof(uint8_t)) +
         sizeof(float) * uint64_t{c.vocab_size};
}

// The way back from a prompt that skips layers (SequenceState::Checkpoint),
// which a session can have behind it at most when such a prompt begins.
uint64_t PrefillCopyBytes(const ModelConfig& c, const SessionOptions& options) {
  const uint64_t shortest = ShortestSkipping(c, options);
  if (shortest == 0 || shortest >= options.context) return 0;
  return SequenceState::CheckpointBytes(c, options, options.context - shortest);
}

}  // namespace

ScratchShape ScratchShapeOf(const ModelConfig& c, const SessionOptions& options,
                            const PlannedModel& model, uint32_t sequences) {
  const CacheFormats formats = CacheFormats::For(options.state_rounding);
  ScratchShape shape{.threads = model.threads,
                     .tokens = options.chunk,
                     .dim = c.hidden_size,
                     .streams = c.hc_mult,
                     .input = InputOf(options.activations),
                     .experts = model.experts,
                     .heads = c.n_heads,
                     .head_dim = c.head_dim,
                     .window = c.sliding_window,
                     .window_format = formats.window,
                     .latent_format = formats.latent,
                     .key_format = formats.index_key,
                     .streams_format = model.streams,
                     .vocab = c.vocab_size,
                     .drawn = sequences};
  AddProducts(model.products, options.chunk, shape.input, &shape);
  AddProducts(model.head, sequences, shape.input, &shape);
  if (options.engram) {
    AddProducts(model.engram,
                std::min<size_t>(options.chunk, EngramFetch::kMaxTaken),
                RowsInputOf(options.activations), &shape);
  }
  const auto& ratios = c.compress_ratios;
  shape.window_only = std::count(ratios.begin(), ratios.end(), 0u) > 0;
  if (!c.kv_source_layer_ids.empty()) AddIndexer(c, options, &shape);
  return shape;
}

double StateBytesPerToken(const ModelConfig& c) {
  double bytes = 0;
  for (const uint32_t source : c.kv_source_layer_ids) {
    bytes += static_cast<double>(EntryBytes(c)) / c.compress_ratios[source];
  }
  return bytes;
}

uint64_t FixedStateBytes(const ModelConfig& c, uint32_t chunk, bool rounding) {
  const CacheFormats formats = CacheFormats::For(rounding);
  uint64_t bytes = uint64_t{c.n_layers} *
                   SequenceState::WindowCapacity(c, chunk) *
                   RowBytes(formats.window, c.head_dim);
  const uint64_t open_row = 2 * RowBytes(RowFormat::kF32, c.head_dim);
  for (const uint32_t source : c.kv_source_layer_ids) {
    if (c.compress_ratios[source] == 1) continue;
    bytes += SequenceState::OpenRows(c, chunk) * open_row;
  }
  return bytes + (c.engram.enabled() ? sizeof(engram::History) : 0);
}

uint64_t StateBytes(const ModelConfig& c, uint32_t context, uint32_t chunk,
                    bool rounding) {
  uint64_t bytes = FixedStateBytes(c, chunk, rounding);
  for (const uint32_t source : c.kv_source_layer_ids) {
    bytes += context / c.compress_ratios[source] * EntryBytes(c, rounding);
  }
  return bytes;
}

uint64_t DeviceScratchBytes(const ModelConfig& c, const SessionOptions& options,
                            uint32_t sequences) {
  return ForwardScratch::Bytes(c, options, sequences) +
         options.chunk * HyperConnections::TokenBytes(
                             c.hc_mult, c.hidden_size,
                             HyperConnections::FormatFor(options.activations));
}

uint64_t ScratchBytes(const ModelConfig& c, const SessionOptions& options,
                      uint32_t sequences) {
  return DeviceScratchBytes(c, options, sequences) + sizeof(Forward) +
         EngramBytes(c, options, DecodedRowBytes(c)) +
         sequences * SequenceBytes(c, options.context);
}

MemoryPlan PlanMemory(const ModelConfig& c, const SessionOptions& asked,
                      const PlannedModel& model, uint32_t sequences) {
  SessionOptions options = asked;
  if (options.context == 0) {
    options.context = std::min(c.max_positions, kDefaultContext);
  }
  options.chunk = std::min(options.chunk, options.context);
  // A pass over a token of each.
  if (sequences > 1) options.chunk = std::max(options.chunk, sequences);
  MemoryPlan plan;
  plan.sequences = sequences;
  plan.context = options.context;
  plan.chunk = options.chunk;
  plan.threads = model.threads;
  plan.state_per_token_exact = StateBytesPerToken(c);
  for (const uint32_t source : c.kv_source_layer_ids) {
    const uint64_t ratio = c.compress_ratios[source];
    plan.state_per_token += (EntryBytes(c) + ratio - 1) / ratio;
  }
  const bool rounding = options.state_rounding;
  plan.state_fixed = FixedStateBytes(c, plan.chunk, rounding);
  plan.state_context = StateBytes(c, plan.context, plan.chunk, rounding);
  plan.scratch = ScratchBytes(c, options, sequences);
  if (model.engram_place == EngramPlace::kHost) {
    plan.engram_tables = model.engram_table_bytes;
  }
  plan.prefill_copy = PrefillCopyBytes(c, options);
  if (model.keeps_scratch) {
    plan.operators =
        CpuScratchBytes(ScratchShapeOf(c, options, model, sequences));
  }
  return plan;
}

void LeaveToDevice(const ModelConfig& c, SessionOptions options,
                   const PlannedModel& model, MemoryPlan* plan) {
  options.context = plan->context;
  options.chunk = plan->chunk;
  plan->mapped_weights = plan->copied_weights = 0;
  plan->resident_weights = uint64_t{c.n_layers} * c.n_experts * sizeof(Expert);
  plan->state_fixed = c.engram.enabled() ? sizeof(engram::History) : 0;
  plan->state_context = plan->state_fixed;
  plan->scratch -= DeviceScratchBytes(c, options, plan->sequences) +
                   EngramBytes(c, options, DecodedRowBytes(c));
  plan->scratch += model.engram_place == EngramPlace::kDisk
                       ? EngramBytes(c, options, model.engram_row_bytes)
                       : EngramNumberBytes(c, options);
  plan->operators = 0;
}

Status CheckFits(const std::string& what, uint64_t bytes,
                 const std::string& advice) {
  const std::optional<uint64_t> attainable = AttainableMemory();
  if (!attainable || bytes <= *attainable) return {};
  return ResourceExhausted(
      "%s need %llu bytes of memory, %llu are to be had; %s", what.c_str(),
      static_cast<unsigned long long>(bytes),
      static_cast<unsigned long long>(*attainable), advice.c_str());
}

Status CheckFits(const std::string& what, uint64_t bytes, const Device& device,
                 const std::string& advice) {
  ECPHORY_ASSIGN_OR_RETURN(const DeviceMemory memory, device.memory());
  if (bytes <= memory.free) return {};
  return ResourceExhausted(
      "%s need %llu bytes of the memory of %s, %llu are free; %s", what.c_str(),
      static_cast<unsigned long long>(bytes), device.name().c_str(),
      static_cast<unsigned long long>(memory.free), advice.c_str());
}

}  // namespace ecphory
