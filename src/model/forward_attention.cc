// Attention's dealings with the caches: what forward.cc stores, pools, selects
// and attends.
#include <algorithm>
#include <cmath>

#include "base/ceil_div.h"
#include "model/forward.h"
#include "model/prefill.h"

namespace ecphory {

// Encodes the rows of x, segment by segment, into caches, which rounds them.
template <typename Place>
void Forward::StoreRows(const float* x, const Place& place) {
  CallForAll(ops_.store_rows, std::span(segments_), [&](const Segment& s) {
    const RowPlace to = place(s);
    const float* const rows = x;
    x += to.rows * to.cache->dim;
    return StoreRowsArgs{.x = rows,
                         .rows = to.rows,
                         .dim = to.cache->dim,
                         .format = to.cache->format,
                         .cache = to.cache->bytes.data(),
                         .first_row = to.first,
                         .capacity = to.cache->capacity};
  });
}

// kv_ and, with `queries`, qr_.
void Forward::ProjectInput(uint32_t i, const float* x, bool queries) {
  const AttentionWeights& w = model_.weights->layers[i].attn;
  projections_.clear();
  projections_.push_back({&w.wkv, x, kv_.data()});
  if (queries) projections_.push_back({&w.wq_a, x, qr_.data()});
  ProjectAll(projections_);
}

// What else is made of a layer's input: of a KV source latent_ and gate_ before
// tokens are pooled; with `queries`, of an index source index_w_.
void Forward::ProjectBeside(uint32_t i, const float* x, bool queries) {
  const AttentionWeights& w = model_.weights->layers[i].attn;
  projections_.clear();
  if (config_.IsKvSource(i)) {
    // What is pooled is fp32 in both activation modes, as the release has it.
    const bool pooled = config_.compress_ratios[i] > 1;
    projections_.push_back({&w.compressor.wkv, x, latent_.data(), !pooled});
    if (pooled) {
      projections_.push_back({&w.compressor.wgate, x, gate_.data(), false});
    }
  }
  if (queries && config_.IsIndexSource(i)) {
    projections_.push_back({&w.indexer.weights_proj, x, index_w_.data()});
  }
  if (!projections_.empty()) ProjectAll(projections_);
}

void Forward::ProjectQueries(uint32_t i) {
  const AttentionWeights& w = model_.weights->layers[i].attn;
  projections_.clear();
  projections_.push_back({&w.wq_b, qr_.data(), q_.data()});
  if (config_.IsIndexSource(i)) {
    projections_.push_back({&w.indexer.wq_b, qr_.data(), index_q_.data()});
  }
  ProjectAll(projections_);
}

void Forward::StoreWindow(uint32_t layer, const float* kv) {
  StoreRows(kv, [&](const Segment& s) {
    return RowPlace{&s.state->windows[layer], s.position(), s.tokens};
  });
  ObserveRows(layer, "window_kv", segments_[0].state->windows[layer],
              segments_[0].position(), tokens());
}

// Fills latent_ with the groups that this chunk completes, sequence by
// sequence; returns how many.
size_t Forward::PoolTokens(uint32_t layer) {
  const size_t ratio = config_.compress_ratios[layer];
  if (ratio == 1) return tokens();
  const auto store = [&](const float* x, RowCache SourceCache::*ring) {
    StoreRows(x, [&](const Segment& s) {
      return RowPlace{&(s.state->SourceOf(config_, layer).*ring), s.position(),
                      s.tokens};
    });
  };
  store(latent_.data(), &SourceCache::open_kv);
  store(gate_.data(), &SourceCache::open_gate);
  size_t groups = 0;
  CallForAll(ops_.pool_groups, std::span(segments_), [&](const Segment& s) {
    const SourceCache& source = s.state->SourceOf(config_, layer);
    const PoolGroupsArgs args = {
        .kv = reinterpret_cast<const float*>(source.open_kv.bytes.data()),
        .gate = reinterpret_cast<const float*>(source.open_gate.bytes.data()),
        .capacity = static_cast<size_t>(source.open_kv.capacity),
        .dim = source.open_kv.dim,
        .ratio = ratio,
        .first_group = s.first_group(ratio),
        .groups = s.groups(ratio),
        .latent = latent_.data() + groups * source.open_kv.dim};
    groups += args.groups;
    return args;
  });
  return groups;
}

// Rotates latent_ and index_key_ to their groups' first positions and stores
// them, which rounds them.
void Forward::StoreCompressed(uint32_t layer, size_t groups) {
  const size_t index = SequenceState::SourceIndex(config_, layer);
  const uint64_t ratio = config_.compress_ratios[layer];
  const int64_t* const positions = group_positions_.data() + index * tokens();
  const auto store = [&](DeviceArray<float>& x, RowCache SourceCache::*member,
                         const char* name) {
    const auto place = [&](const Segment& s) {
      return RowPlace{&(s.state->sources[index].*member), s.first_group(ratio),
                      s.groups(ratio)};
    };
    const RowPlace first = place(segments_[0]);
    Rope(layer, x.data(), groups, 1, first.cache->dim, positions);
    StoreRows(x.data(), place);
    ObserveRows(layer, name, *first.cache, first.first, first.rows);
  };
  store(latent_, &SourceCache::latents, "compress_kv");
  store(index_key_, &SourceCache::index_keys, "index_k");
  for (const Segment& s : segments_) {
    if (s.groups(ratio) == 0) continue;
    s.state->published_keys = static_cast<int32_t>(index);
  }
}

// The index keys `layer` scores against, and how many of them exist.
const RowCache& Forward::KeysFor(uint32_t layer, const Segment& s,
                                 uint64_t* groups) const {
  const SequenceState& state = *s.state;
  const SourceCache& own = s.state->SourceOf(config_, layer);
  const uint64_t end = state.position + s.tokens;
  *groups = end / own.ratio;
  if (options_.index_keys == IndexKeys::kOwn || state.published_keys < 0) {
    return own.index_keys;
  }
  const SourceCache& slot =
      state.sources[static_cast<size_t>(state.published_keys)];
  // A later layer's keys end with the previous chunk: it has not run yet.
  const uint64_t known = slot.layer <= layer ? end : state.position;
  *groups = std::min(*groups, known / slot.ratio);
  return slot.index_keys;
}

// Chooses for all tokens, as many at a time as scores_ holds scores of.
void Forward::Select(uint32_t layer) {
  const size_t block = config_.candidate_block_size;
  const bool is_source = IsCandidateSource(layer);
  tiles_.clear();
  size_t used = 0;
  for (Segment& s : segments_) {
    uint64_t groups = 0;
    const RowCache& keys = KeysFor(layer, s, &groups);
    const bool masked =
        groups > 0 && (is_source || s.candidate_groups == groups);
    for (size_t first = s.first; first <= s.last();) {
      const size_t room =
          groups == 0 ? s.tokens : (scores_.size() - used) / groups;
      const size_t count = std::min(s.last() + 1 - first, room);
      if (count == 0) {
        SelectTiles(layer);
        used = 0;
        continue;
      }
      tiles_.push_back({.segment = &s,
                        .first = first,
                        .tokens = count,
                        .keys = &keys,
                        .groups = groups,
                        .scores = scores_.data() + used,
                        .mask = masked ? MaskOf(s) + (first - s.first) *
                                                         CeilDiv(groups, block)
                                       : nullptr});
      used += count * groups;
      first += count;
    }
    if (is_source) s.candidate_groups = groups;
  }
  SelectTiles(layer);
}

void Forward::SelectTiles(uint32_t layer) {
  const std::span tiles(tiles_);
  const size_t block = config_.candidate_block_size;
  const bool is_source = IsCandidateSource(layer);
  CallForAll(ops_.index_scores, tiles,
             [&](const ScoreTile& tile) { return ScoresOf(layer, tile); });
  for (const ScoreTile& tile : tiles_) {
    Observe(layer, "index_scores", tile.scores, {tile.tokens, tile.groups});
  }
  if (is_source) {
    CallForAll(ops_.candidate_blocks, tiles, [&](const ScoreTile& tile) {
      return CandidateBlocksArgs{.scores = tile.scores,
                                 .tokens = tile.tokens,
                                 .groups = static_cast<size_t>(tile.groups),
                                 .block_size = block,
                                 .top_blocks = config_.candidate_topk_blocks,
                                 .mask = tile.mask};
    });
    for (const ScoreTile& tile : tiles_) {
      ObserveCandidates(layer, tile.mask, tile.tokens,
                        CeilDiv(tile.groups, block));
    }
  }
  CallForAll(ops_.select_topk, tiles, [&](const ScoreTile& tile) {
    return SelectTopkArgs{
        .scores = tile.scores,
        .mask = is_source ? nullptr : tile.mask,
        .tokens = tile.tokens,
        .groups = static_cast<size_t>(tile.groups),
        .block_size = block,
        .topk = config_.index_topk,
        .selected = selected_.data() + tile.first * config_.index_topk};
  });
  tiles_.clear();
}

IndexScoresArgs Forward::ScoresOf(uint32_t layer, const ScoreTile& tile) const {
  const size_t heads = config_.index_n_heads, dim = config_.index_head_dim;
  const Segment& s = *tile.segment;
  // Scores outside the candidates choose nothing; an observer sees them all.
  const bool score_all = IsCandidateSource(layer) || Observed(layer);
  return {.q = index_q_.data() + tile.first * heads * dim,
          .weights = index_w_.data() + tile.first * heads,
          .tokens = tile.tokens,
          .heads = heads,
          .dim = dim,
          .first_position = s.position() + (tile.first - s.first),
          .ratio = s.state->SourceOf(config_, layer).ratio,
          .key_format = tile.keys->format,
          .key_rows = tile.keys->bytes.data(),
          .groups = static_cast<size_t>(tile.groups),
          .key_scale = 1.0f / std::sqrt(static_cast<float>(dim)),
          .head_scale = 1.0f / std::sqrt(static_cast<float>(heads)),
          .mask = score_all ? nullptr : tile.mask,
          .block_size = config_.candidate_block_size,
          .scores = tile.scores};
}

// A segment's rows of candidates_ lie close together.
uint8_t* Forward::MaskOf(const Segment& s) {
  return candidates_.data() + s.first * (candidates_.size() / options_.chunk);
}

void Forward::Attend(uint32_t layer) {
  CallForAll(ops_.attention, std::span(segments_),
             [&](const Segment& s) { return AttentionOf(layer, s); });
}

AttentionArgs Forward::AttentionOf(uint32_t layer, const Segment& s) {
  const RowCache& window = s.state->windows[layer];
  const size_t offset = s.first * config_.n_heads * config_.head_dim;
  AttentionArgs args = {
      .q = q_.data() + offset,
      .tokens = s.tokens,
      .heads = config_.n_heads,
      .dim = config_.head_dim,
      .first_position = s.position(),
      .window_format = window.format,
      .round_bf16 = RoundsToBf16(),
      .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
      .window_rows = window.bytes.data(),
      .window_capacity = static_cast<size_t>(window.capacity),
      .window = config_.sliding_window,
      .window_begin = static_cast<int>(layer) > LastKvSource(config_)
                          ? chunk_->decoder_begin
                          : 0,
      .sink = model_.weights->layers[layer].attn.sink.data(),
      .out = heads_.data() + offset};
  if (config_.KvSourceOf(layer) >= 0) {
    const RowCache& latents = s.state->SourceOf(config_, layer).latents;
    args.latent_format = latents.format;
    args.latent_rows = latents.bytes.data();
    args.selected = selected_.data() + s.first * config_.index_topk;
    args.topk = config_.index_topk;
  }
  return args;
}

// Each group of heads is projected by its own block of wo_a's rows.
void Forward::GroupedOutput(const AttentionWeights& w, float* y) {
  const size_t groups = config_.o_groups, rank = config_.o_lora_rank;
  const size_t width = config_.n_heads * config_.head_dim;
  auto& products = std::get<std::vector<MatmulArgs>>(calls_);
  products.clear();
  for (size_t g = 0; g < groups; ++g) {
    products.push_back({.weight = w.wo_a.RowBlock(g * rank, rank),
                        .x = heads_.data() + g * (width / groups),
                        .y = lora_.data() + g * rank,
                        .tokens = tokens(),
                        .x_stride = width,
                        .y_stride = groups * rank,
                        .input = projected_,
                        .round_bf16 = RoundsToBf16()});
  }
  ops_.matmuls(std::span<const MatmulArgs>(products), pool_);
  ops_.matmul({.weight = w.wo_b,
               .x = lora_.data(),
               .y = y,
               .tokens = tokens(),
               .input = projected_},
              pool_);
}

}  // namespace ecphory
