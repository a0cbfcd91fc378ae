// Attention's dealings with the caches: what forward.cc stores, pools, selects
// and attends.
#include <algorithm>
#include <cmath>

#include "base/ceil_div.h"
#include "model/forward.h"
#include "model/prefill.h"

namespace ecphory {

void Forward::StoreWindow(uint32_t layer, const float* kv) {
  RowCache& window = state_->windows[layer];
  StoreRows(kv, state_->position, tokens(), &window);
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
  ops_.matmul({.weight = w.wkv,
               .x = x,
               .y = kv_.data(),
               .tokens = tokens(),
               .input = projected_},
              pool_);
  ops_.matmul({.weight = w.wgate,
               .x = x,
               .y = gate_.data(),
               .tokens = tokens(),
               .input = projected_},
              pool_);
  StoreRows(kv_.data(), state_->position, tokens(), &source->open_kv);
  StoreRows(gate_.data(), state_->position, tokens(), &source->open_gate);
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

// Encodes x[rows, dim] into the cache from `first_row` on, which rounds it.
void Forward::StoreRows(const float* x, uint64_t first_row, size_t rows,
                        RowCache* cache) {
  ops_.store_rows({.x = x,
                   .rows = rows,
                   .dim = cache->dim,
                   .format = cache->format,
                   .cache = cache->bytes.data(),
                   .first_row = first_row,
                   .capacity = cache->capacity},
                  pool_);
}

// Rotates latent_ and index_key_ to their groups' first positions and stores
// them, which rounds them.
void Forward::StoreCompressed(uint32_t layer, SourceCache* source,
                              uint64_t first_group, size_t groups) {
  const size_t index = static_cast<size_t>(source - state_->sources.data());
  const int64_t* const positions =
      group_positions_.data() + index * options_.chunk;
  const auto store = [&](DeviceArray<float>& x, RowCache& cache,
                         const char* name) {
    Rope(layer, x.data(), groups, 1, cache.dim, positions);
    StoreRows(x.data(), first_group, groups, &cache);
    ObserveRows(layer, name, cache, first_group, groups);
  };
  store(latent_, source->latents, "compress_kv");
  store(index_key_, source->index_keys, "index_k");
  state_->published_keys = static_cast<int32_t>(index);
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
  const bool is_source =
      static_cast<int32_t>(layer) == config_.candidate_source_layer_id;
  if (groups == 0) {
    queue_->Fill(selected_.data(), 0xff,  // -1
                 tokens() * config_.index_topk * sizeof(int32_t));
    Observe(layer, "index_scores", scores_.data(), {tokens(), 0});
    if (is_source) ObserveCandidates(layer, candidates_.data(), tokens(), 0);
    return;
  }
  const size_t tile = static_cast<size_t>(
      std::clamp<uint64_t>(scores_.size() / groups, 1, tokens()));
  for (size_t begin = 0; begin < tokens(); begin += tile) {
    SelectTile(layer, keys, begin, std::min(begin + tile, tokens()), groups);
  }
  if (is_source) candidate_groups_ = groups;
}

void Forward::SelectTile(uint32_t layer, const RowCache& keys, size_t begin,
                         size_t end, uint64_t groups) {
  const size_t heads = config_.index_n_heads, dim = config_.index_head_dim;
  const size_t rows = end - begin;
  const size_t block = config_.candidate_block_size;
  const bool is_source =
      static_cast<int32_t>(layer) == config_.candidate_source_layer_id;
  uint8_t* mask = nullptr;
  if (is_source || candidate_groups_ == groups) {
    mask = candidates_.data() + begin * CeilDiv(groups, block);
  }
  // Scores outside the candidates choose nothing; an observer sees them all.
  const bool score_all = is_source || Observed(layer);
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
                     .mask = score_all ? nullptr : mask,
                     .block_size = block,
                     .scores = scores_.data()},
                    pool_);
  Observe(layer, "index_scores", scores_.data(), {rows, groups});

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
      .window_begin = static_cast<int>(layer) > LastKvSource(config_)
                          ? chunk_->decoder_begin
                          : 0,
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
                 .y_stride = groups * rank,
                 .input = projected_},
                pool_);
  }
  Round(lora_.data(), tokens() * groups * rank);
  Project(w.wo_b, lora_.data(), tokens(), y);
}

}  // namespace ecphory
