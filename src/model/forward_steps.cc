// The steps that forward.cc names: planning, Engram rows, experts, output.
#include <algorithm>
#include <cmath>

#include "base/ceil_div.h"
#include "model/forward.h"
#include "model/prefill.h"

namespace ecphory {

namespace {

// Index scores are computed for a tile of tokens at a time, so that a long
// context bounds scratch: 2^22 scores are 16 MiB.
constexpr uint64_t kMaxScores = uint64_t{1} << 22;

// Tokens whose logits are computed together when all are wanted: a batch of a
// 129,280-token vocabulary is 16 MiB.
constexpr size_t kLogitBatch = 32;

HyperConnections::Shape StreamShape(const ModelConfig& config,
                                    const SessionOptions& options) {
  return {.streams = config.hc_mult,
          .dim = config.hidden_size,
          .norm_eps = config.rms_norm_eps,
          .hc_eps = config.hc_eps,
          .sinkhorn_iters = config.hc_sinkhorn_iters,
          .mode = config.hc_mode,
          .sigmoid = SigmoidForm::kTanh,
          .round_bf16 = options.activations == Activations::kBF16};
}

MatmulInput InputOf(Activations activations) {
  switch (activations) {
    case Activations::kF32: return MatmulInput::kF32;
    case Activations::kBF16: return MatmulInput::kBF16;
    case Activations::kInt8: return MatmulInput::kInt8;
  }
  return MatmulInput::kF32;
}

uint64_t MaxGroups(const ModelConfig& config, uint64_t context) {
  uint64_t groups = 0;
  for (uint32_t layer : config.kv_source_layer_ids) {
    groups = std::max(groups, context / config.compress_ratios[layer]);
  }
  return groups;
}

}  // namespace

Forward::Forward(const ForwardModel& model, const SessionOptions& options)
    : model_(model),
      config_(*model.config),
      ops_(*model.ops),
      pool_(*model.pool),
      options_(options),
      projected_(InputOf(options.activations)),
      streams_(StreamShape(config_, options), options.chunk, ops_, pool_) {
  const size_t T = options.chunk, d = config_.head_dim;
  positions_.resize(T);
  qr_.resize(T * config_.q_lora_rank);
  q_.resize(T * config_.n_heads * d);
  heads_.resize(q_.size());
  kv_.resize(T * d);
  lora_.resize(T * config_.o_groups * config_.o_lora_rank);
  router_logits_.resize(T * config_.n_experts);
  expert_ids_.resize(T * config_.n_experts_per_token);
  expert_weights_.resize(expert_ids_.size());
  shared_ids_.assign(T, 0);
  shared_weights_.assign(T, 1.0f);
  hidden_.resize(T * config_.hidden_size);
  PlanCompressed();
  PlanEngram();
}

Forward::~Forward() = default;

void Forward::PlanCompressed() {
  if (config_.kv_source_layer_ids.empty()) return;
  // None in a context shorter than every ratio; a group is opened all the same.
  const uint64_t groups = MaxGroups(config_, options_.context);
  const size_t T = options_.chunk;
  group_positions_.resize(T);
  gate_.resize(T * config_.head_dim);
  latent_.resize(T * config_.head_dim);
  index_key_.resize(T * config_.index_head_dim);
  index_q_.resize(T * config_.index_n_heads * config_.index_head_dim);
  index_w_.resize(T * config_.index_n_heads);
  scores_.resize(std::max(groups, std::min(T * groups, kMaxScores)));
  selected_.resize(T * config_.index_topk);
  if (config_.candidate_source_layer_id >= 0) {
    candidates_ = LazyBytes(T * CeilDiv(groups, config_.candidate_block_size));
  }
}

void Forward::PlanEngram() {
  if (!config_.engram.enabled() || !options_.engram) return;
  const size_t T = options_.chunk;
  engram_.emplace(*model_.hasher, *model_.store, T);
  engram_kv_.resize(T * (config_.hc_mult + 1) * config_.hidden_size);
  engram_gate_.resize(T * config_.hc_mult);
}

// --- Engram -----------------------------------------------------------------

// This chunk's rows, then those of the next: they are served in this order.
Status Forward::BeginEngram() {
  if (!engram_) return Status::Ok();
  ECPHORY_RETURN_IF_ERROR(engram_->Begin(chunk_->tokens, chunk_->image,
                                         state_->history,
                                         EngramLayers(chunk_->encoder_only)));
  if (chunk_->next_tokens.empty()) return Status::Ok();
  return engram_->Ahead(chunk_->next_tokens, chunk_->next_image,
                        engram_->after(),
                        EngramLayers(chunk_->next_encoder_only));
}

// Engram layers that such a chunk passes: the first ones of the list.
size_t Forward::EngramLayers(bool encoder_only) const {
  const auto& ids = config_.engram.layer_ids;  // ascending
  if (!encoder_only) return ids.size();
  const uint32_t last = static_cast<uint32_t>(LastKvSource(config_));
  return static_cast<size_t>(std::upper_bound(ids.begin(), ids.end(), last) -
                             ids.begin());
}

void Forward::Prefetch(std::span<const int32_t> tokens,
                       std::span<const uint8_t> image,
                       const SequenceState& state) {
  // A token that does not exist is reported when its chunk is run.
  if (!engram_) return;
  (void)engram_->Ahead(tokens, image, state.history, EngramLayers(false));
}

void Forward::CancelPrefetch() {
  if (engram_) engram_->Cancel();
}

SessionStats Forward::engram_stats() const {
  return engram_ ? engram_->stats() : SessionStats();
}

// --- Mixture of experts -----------------------------------------------------

void Forward::Route(const MoeWeights& w, const float* x) {
  ops_.matmul({.weight = w.gate,
               .x = x,
               .y = router_logits_.data(),
               .tokens = tokens(),
               .input = projected_},
              pool_);
  ops_.router({.logits = router_logits_.data(),
               .bias = w.bias.data(),
               .bias_image = w.bias_image.data(),
               .image_mask = chunk_->image.data(),
               .tokens = tokens(),
               .experts = config_.n_experts,
               .topk = config_.n_experts_per_token,
               .score = config_.router_score,
               .gate_temp = config_.gate_temp,
               .normalize = config_.norm_topk_prob,
               .scale = config_.routed_scaling_factor,
               .ids = expert_ids_.data(),
               .weights = expert_weights_.data()},
              pool_);
}

void Forward::RunExperts(std::span<const Expert> experts, const int32_t* ids,
                         const float* weights, size_t topk, const float* x,
                         bool accumulate, float* y) {
  ops_.experts({.x = x,
                .tokens = tokens(),
                .dim = config_.hidden_size,
                .experts = experts.data(),
                .n_experts = experts.size(),
                .inner = experts[0].w1.rows,
                .ids = ids,
                .weights = weights,
                .topk = topk,
                .swiglu_limit = config_.swiglu_limit,
                .round_bf16 = options_.activations == Activations::kBF16,
                .accumulate = accumulate,
                .input = projected_,
                .y = y},
               pool_);
}

// --- Output -----------------------------------------------------------------

Status Forward::EmitLogits() {
  if (chunk_->logits == LogitsWanted::kNone) return Status::Ok();
  const bool all = chunk_->logits == LogitsWanted::kAll;
  const size_t vocab = config_.vocab_size, dim = config_.hidden_size;
  const size_t batch = all ? std::min(tokens(), kLogitBatch) : 1;
  if (logits_.size() < batch * vocab) logits_.resize(batch * vocab);
  size_t count = 0;
  for (size_t first = all ? 0 : tokens() - 1; first < tokens();
       first += count) {
    count = std::min(batch, tokens() - first);
    ops_.matmul({.weight = model_.weights->head,
                 .x = hidden_.data() + first * dim,
                 .y = logits_.data(),
                 .tokens = count,
                 .input = projected_},
                pool_);
    if (all && chunk_->on_logits) {
      ECPHORY_RETURN_IF_ERROR(
          chunk_->on_logits(first, count, {logits_.data(), count * vocab}));
    }
  }
  last_logits_ = logits_.data() + (count - 1) * vocab;
  return Status::Ok();
}

void Forward::Commit() {
  SequenceState& state = *state_;
  state.tokens.insert(state.tokens.end(), chunk_->tokens.begin(),
                      chunk_->tokens.end());
  state.image.insert(state.image.end(), chunk_->image.begin(),
                     chunk_->image.end());
  state.position += tokens();
  if (engram_) {
    engram_->End();
    state.history = engram_->after();
  }
  state.logits.clear();
  if (chunk_->logits != LogitsWanted::kNone) {
    state.logits.assign(last_logits_, last_logits_ + config_.vocab_size);
  }
}

// --- Shared steps -----------------------------------------------------------

void Forward::Project(const Matrix& weight, const float* x, size_t rows,
                      float* y, MatmulInput input) {
  ops_.matmul(
      {.weight = weight, .x = x, .y = y, .tokens = rows, .input = input},
      pool_);
  Round(y, rows * weight.rows);
}

void Forward::Norm(const std::vector<float>& weight, float* x, size_t rows) {
  ops_.rms_norm({.x = x,
                 .weight = weight.data(),
                 .y = x,
                 .rows = rows,
                 .dim = weight.size(),
                 .eps = config_.rms_norm_eps},
                pool_);
  Round(x, rows * weight.size());
}

// Layers with a compressed branch rotate everything with the compressed rope.
void Forward::Rope(uint32_t layer, float* x, size_t rows, size_t heads,
                   size_t dim, const int64_t* positions, bool inverse) {
  const bool compressed = config_.compress_ratios[layer] > 0;
  ops_.rope({.x = x,
             .positions = positions,
             .inv_freq = compressed ? model_.inv_freq_compress.data()
                                    : model_.inv_freq.data(),
             .tokens = rows,
             .heads = heads,
             .dim = dim,
             .rope_dim = config_.rope_dim,
             .inverse = inverse},
            pool_);
  Round(x, rows * heads * dim);
}

void Forward::Round(float* x, size_t count) {
  if (options_.activations == Activations::kBF16) {
    ops_.round_bf16({.x = x, .count = count}, pool_);
  }
}

}  // namespace ecphory
