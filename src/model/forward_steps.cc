// The steps that forward.cc names: caches, tickets, observers, fixed glue.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "model/forward.h"

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

uint64_t MaxGroups(const ModelConfig& config, uint64_t context) {
  uint64_t groups = 0;
  for (uint32_t layer : config.kv_source_layer_ids) {
    groups = std::max(groups, context / config.compress_ratios[layer]);
  }
  return groups;
}

uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

}  // namespace

Forward::Forward(const ForwardModel& model, const SessionOptions& options)
    : model_(model),
      config_(*model.config),
      ops_(*model.ops),
      pool_(*model.pool),
      options_(options),
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

Forward::~Forward() { CancelEngramRows(); }

void Forward::PlanCompressed() {
  const uint64_t groups = MaxGroups(config_, options_.context);
  if (groups == 0) return;
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
  const size_t T = options_.chunk, columns = config_.engram.columns();
  engram_.resize(config_.engram.layer_ids.size());
  for (EngramLayer& layer : engram_) {
    layer.rows.resize(T * columns);
    layer.values.resize(T * columns * config_.engram.head_dim);
  }
  compressed_ids_.resize(T);
  engram_kv_.resize(T * (config_.hc_mult + 1) * config_.hidden_size);
  engram_gate_.resize(T * config_.hc_mult);
}

// --- Engram -----------------------------------------------------------------

Status Forward::SubmitEngramRows() {
  if (model_.hasher == nullptr) return Status::Ok();
  next_history_ = state_->history;
  if (engram_.empty()) return Status::Ok();  // gates shut: no row is read
  const std::span<int32_t> ids(compressed_ids_.data(), tokens());
  ECPHORY_RETURN_IF_ERROR(
      model_.hasher->Compress(chunk_->tokens, chunk_->image, ids));
  const size_t count = tokens() * config_.engram.columns();
  engram_rows_of_.clear();
  for (EngramLayer& layer : engram_) {
    engram_rows_of_.emplace_back(layer.rows.data(), count);
  }
  model_.hasher->Hash(ids, &next_history_, engram_rows_of_);
  for (size_t i = 0; i < engram_.size(); ++i) {
    engram_[i].ticket =
        model_.store->Submit(i, engram_rows_of_[i], engram_[i].values.data());
  }
  engram_stats_.engram_rows += count * engram_.size();
  return Status::Ok();
}

Status Forward::WaitEngramRows(size_t index) {
  const auto start = std::chrono::steady_clock::now();
  engram::LookupStats lookup;
  const Status status =
      model_.store->Wait(std::exchange(engram_[index].ticket, 0), &lookup);
  engram_stats_.engram_wait_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  engram_stats_.engram_rows_read += lookup.rows_read;
  engram_stats_.engram_bytes_read += lookup.bytes_read;
  return status;
}

void Forward::CancelEngramRows() {
  for (EngramLayer& layer : engram_) {
    if (layer.ticket != 0) model_.store->Cancel(layer.ticket);
    layer.ticket = 0;
  }
}

// --- Attention --------------------------------------------------------------

void Forward::StoreWindow(uint32_t layer, const float* kv) {
  RowCache& window = state_->windows[layer];
  ops_.store_rows({.x = kv,
                   .rows = tokens(),
                   .dim = window.dim,
                   .format = window.format,
                   .cache = window.bytes.data(),
                   .first_row = state_->position,
                   .capacity = window.capacity},
                  pool_);
  ObserveRows(layer, "window_kv", window, state_->position, tokens());
}

// Fills latent_ with the groups that this chunk completes; returns how many.
size_t Forward::PoolTokens(const CompressorWeights& w, const float* x,
                           SourceCache* source, uint64_t* first_group) {
  const uint64_t ratio = source->ratio;
  *first_group = state_->position / ratio;
  const size_t groups =
      static_cast<size_t>((state_->position + tokens()) / ratio - *first_group);
  if (ratio == 1) {
    Project(w.wkv, x, tokens(), latent_.data());
    return groups;
  }
  // fp32 in both activation modes, as the release computes it.
  ops_.matmul({.weight = w.wkv, .x = x, .y = kv_.data(), .tokens = tokens()},
              pool_);
  ops_.matmul(
      {.weight = w.wgate, .x = x, .y = gate_.data(), .tokens = tokens()},
      pool_);
  StoreOpen(kv_.data(), &source->open_kv);
  StoreOpen(gate_.data(), &source->open_gate);
  ops_.pool_groups(
      {.kv = reinterpret_cast<const float*>(source->open_kv.bytes.data()),
       .gate = reinterpret_cast<const float*>(source->open_gate.bytes.data()),
       .capacity = static_cast<size_t>(source->open_kv.capacity),
       .dim = source->open_kv.dim,
       .ratio = static_cast<size_t>(ratio),
       .first_group = *first_group,
       .groups = groups,
       .latent = latent_.data()},
      pool_);
  return groups;
}

void Forward::StoreOpen(const float* x, RowCache* ring) {
  ops_.store_rows({.x = x,
                   .rows = tokens(),
                   .dim = ring->dim,
                   .format = ring->format,
                   .cache = ring->bytes.data(),
                   .first_row = state_->position,
                   .capacity = ring->capacity},
                  pool_);
}

// Rotates latent_ and index_key_ to their groups' first positions and stores
// them, which rounds them.
void Forward::StoreCompressed(uint32_t layer, SourceCache* source,
                              uint64_t first_group, size_t groups) {
  for (size_t g = 0; g < groups; ++g) {
    group_positions_[g] =
        static_cast<int64_t>((first_group + g) * source->ratio);
  }
  const auto store = [&](std::vector<float>& x, RowCache& cache,
                         const char* name) {
    Rope(layer, x.data(), groups, 1, cache.dim, group_positions_.data());
    ops_.store_rows({.x = x.data(),
                     .rows = groups,
                     .dim = cache.dim,
                     .format = cache.format,
                     .cache = cache.bytes.data(),
                     .first_row = first_group,
                     .capacity = cache.capacity},
                    pool_);
    ObserveRows(layer, name, cache, first_group, groups);
  };
  store(latent_, source->latents, "compress_kv");
  store(index_key_, source->index_keys, "index_k");
  state_->published_keys =
      static_cast<int32_t>(source - state_->sources.data());
}

// The index keys `layer` scores against, and how many of them exist.
const RowCache& Forward::KeysFor(uint32_t layer, uint64_t* groups) {
  const SourceCache& own = state_->SourceOf(config_, layer);
  const uint64_t end = state_->position + tokens();
  *groups = end / own.ratio;
  if (options_.index_keys == IndexKeys::kOwn || state_->published_keys < 0) {
    return own.index_keys;
  }
  const SourceCache& slot =
      state_->sources[static_cast<size_t>(state_->published_keys)];
  // A later layer's keys end with the previous chunk: it has not run yet.
  const uint64_t known = slot.layer <= layer ? end : state_->position;
  *groups = std::min(*groups, known / slot.ratio);
  return slot.index_keys;
}

void Forward::SelectFrom(uint32_t layer, const RowCache& keys,
                         uint64_t groups) {
  if (groups == 0) {
    std::fill_n(selected_.begin(), tokens() * config_.index_topk, -1);
    return;
  }
  const size_t tile = static_cast<size_t>(
      std::clamp<uint64_t>(scores_.size() / groups, 1, tokens()));
  for (size_t begin = 0; begin < tokens(); begin += tile) {
    SelectTile(layer, keys, begin, std::min(begin + tile, tokens()), groups);
  }
  if (static_cast<int32_t>(layer) == config_.candidate_source_layer_id) {
    candidate_groups_ = groups;
  }
}

void Forward::SelectTile(uint32_t layer, const RowCache& keys, size_t begin,
                         size_t end, uint64_t groups) {
  const size_t heads = config_.index_n_heads, dim = config_.index_head_dim;
  const size_t rows = end - begin;
  ops_.index_scores({.q = index_q_.data() + begin * heads * dim,
                     .weights = index_w_.data() + begin * heads,
                     .tokens = rows,
                     .heads = heads,
                     .dim = dim,
                     .first_position = state_->position + begin,
                     .ratio = state_->SourceOf(config_, layer).ratio,
                     .key_format = keys.format,
                     .key_rows = keys.bytes.data(),
                     .groups = static_cast<size_t>(groups),
                     .key_scale = 1.0f / std::sqrt(static_cast<float>(dim)),
                     .head_scale = 1.0f / std::sqrt(static_cast<float>(heads)),
                     .scores = scores_.data()},
                    pool_);
  Observe(layer, "index_scores", scores_.data(), {rows, groups});

  const size_t block = config_.candidate_block_size;
  const bool is_source =
      static_cast<int32_t>(layer) == config_.candidate_source_layer_id;
  uint8_t* mask = nullptr;
  if (is_source || candidate_groups_ == groups) {
    mask = candidates_.data() + begin * CeilDiv(groups, block);
  }
  if (is_source) {
    ops_.candidate_blocks({.scores = scores_.data(),
                           .tokens = rows,
                           .groups = static_cast<size_t>(groups),
                           .block_size = block,
                           .top_blocks = config_.candidate_topk_blocks,
                           .mask = mask},
                          pool_);
    ObserveCandidates(layer, mask, rows, CeilDiv(groups, block));
  }
  ops_.select_topk({.scores = scores_.data(),
                    .mask = is_source ? nullptr : mask,
                    .tokens = rows,
                    .groups = static_cast<size_t>(groups),
                    .block_size = block,
                    .topk = config_.index_topk,
                    .selected = selected_.data() + begin * config_.index_topk},
                   pool_);
}

void Forward::Attend(uint32_t layer) {
  const RowCache& window = state_->windows[layer];
  AttentionArgs args = {
      .q = q_.data(),
      .tokens = tokens(),
      .heads = config_.n_heads,
      .dim = config_.head_dim,
      .first_position = state_->position,
      .window_format = window.format,
      .window_rows = window.bytes.data(),
      .window_capacity = static_cast<size_t>(window.capacity),
      .window = config_.sliding_window,
      .sink = model_.weights->layers[layer].attn.sink.data(),
      .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
      .out = heads_.data()};
  if (config_.KvSourceOf(layer) >= 0) {
    const RowCache& latents = state_->SourceOf(config_, layer).latents;
    args.latent_format = latents.format;
    args.latent_rows = latents.bytes.data();
    args.selected = selected_.data();
    args.topk = config_.index_topk;
  }
  ops_.attention(args, pool_);
  Round(heads_.data(), tokens() * config_.n_heads * config_.head_dim);
}

// Each group of heads is projected by its own block of wo_a's rows.
void Forward::GroupedOutput(const AttentionWeights& w, float* y) {
  const size_t groups = config_.o_groups, rank = config_.o_lora_rank;
  const size_t width = config_.n_heads * config_.head_dim;
  for (size_t g = 0; g < groups; ++g) {
    ops_.matmul({.weight = w.wo_a.RowBlock(g * rank, rank),
                 .x = heads_.data() + g * (width / groups),
                 .y = lora_.data() + g * rank,
                 .tokens = tokens(),
                 .x_stride = width,
                 .y_stride = groups * rank},
                pool_);
  }
  Round(lora_.data(), tokens() * groups * rank);
  Project(w.wo_b, lora_.data(), tokens(), y);
}

// --- Mixture of experts -----------------------------------------------------

void Forward::Route(const MoeWeights& w, const float* x) {
  ops_.matmul({.weight = w.gate,
               .x = x,
               .y = router_logits_.data(),
               .tokens = tokens()},
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
                .ids = ids,
                .weights = weights,
                .topk = topk,
                .swiglu_limit = config_.swiglu_limit,
                .round_bf16 = options_.activations == Activations::kBF16,
                .accumulate = accumulate,
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
                 .tokens = count},
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
  state.history = next_history_;
  state.logits.clear();
  if (chunk_->logits != LogitsWanted::kNone) {
    state.logits.assign(last_logits_, last_logits_ + config_.vocab_size);
  }
}

// --- Shared steps -----------------------------------------------------------

void Forward::Project(const Matrix& weight, const float* x, size_t rows,
                      float* y) {
  ops_.matmul({.weight = weight, .x = x, .y = y, .tokens = rows}, pool_);
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

// --- Observers --------------------------------------------------------------

bool Forward::Observed(uint32_t layer) const {
  return chunk_->observer != nullptr && chunk_->observer->Wants(layer);
}

void Forward::Observe(uint32_t layer, const char* name, const float* x,
                      const std::vector<uint64_t>& shape) const {
  if (!Observed(layer)) return;
  size_t count = 1;
  for (uint64_t n : shape) count *= n;
  chunk_->observer->OnF32(layer, name, {x, count}, shape);
}

// The coefficients of the site that just ran, and the streams it left.
void Forward::ObserveSite(uint32_t layer, const std::string& site) {
  if (!Observed(layer)) return;
  const uint64_t H = config_.hc_mult;
  Observe(layer, (site + ".hc_pre").c_str(), streams_.pre(), {tokens(), H});
  Observe(layer, (site + ".hc_post").c_str(), streams_.post(), {tokens(), H});
  Observe(layer, (site + ".hc_comb").c_str(), streams_.comb(),
          {tokens(), H, H});
  ObserveStreams(layer, site == "attn" ? "streams_after_attn" : "streams_out");
}

void Forward::ObserveStreams(uint32_t layer, const char* name) {
  Observe(layer, name, streams_.streams(),
          {tokens(), config_.hc_mult, config_.hidden_size});
}

void Forward::ObserveRows(uint32_t layer, const char* name,
                          const RowCache& cache, uint64_t first_row,
                          size_t rows) const {
  if (!Observed(layer)) return;
  std::vector<float> values(rows * cache.dim);
  for (size_t r = 0; r < rows; ++r) {
    DecodeRow(cache.format, cache.row((first_row + r) % cache.capacity),
              cache.dim, values.data() + r * cache.dim);
  }
  Observe(layer, name, values.data(), {rows, cache.dim});
}

void Forward::ObserveCandidates(uint32_t layer, const uint8_t* mask,
                                size_t rows, uint64_t blocks) const {
  if (!Observed(layer)) return;
  chunk_->observer->OnU8(layer, "candidate_blocks", {mask, rows * blocks},
                         {rows, blocks});
}

void Forward::ObserveSelected(uint32_t layer) const {
  if (!Observed(layer)) return;
  const uint64_t topk = config_.index_topk;
  chunk_->observer->OnI32(layer, "index_selected",
                          {selected_.data(), tokens() * topk},
                          {tokens(), topk});
}

void Forward::ObserveRouter(uint32_t layer) const {
  if (!Observed(layer)) return;
  const uint64_t topk = config_.n_experts_per_token;
  chunk_->observer->OnI32(layer, "router.indices",
                          {expert_ids_.data(), tokens() * topk},
                          {tokens(), topk});
  Observe(layer, "router.weights", expert_weights_.data(), {tokens(), topk});
}

}  // namespace ecphory
