#include "model/caches.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"

namespace ecphory {

CacheFormats CacheFormats::For(bool state_rounding) {
  if (state_rounding) return {};
  return {RowFormat::kF32, RowFormat::kF32, RowFormat::kF32};
}

void LazyBytes::Free::operator()(uint8_t* p) const { std::free(p); }

LazyBytes::LazyBytes(size_t size)
    : data_(size == 0 ? nullptr : static_cast<uint8_t*>(std::calloc(size, 1))),
      size_(size) {}

RowCache::RowCache(RowFormat row_format, size_t row_dim, uint64_t rows)
    : format(row_format),
      dim(row_dim),
      row_bytes(RowBytes(row_format, row_dim)),
      capacity(rows) {
  uint64_t size = 0;
  // A size that overflows is left to the allocation to refuse.
  if (!CheckedMul(row_bytes, rows, &size)) size = SIZE_MAX;
  bytes = LazyBytes(size);
}

namespace {

SourceCache MakeSource(const ModelConfig& config, const SessionOptions& options,
                       const CacheFormats& formats, uint32_t layer) {
  SourceCache source;
  source.layer = layer;
  source.ratio = config.compress_ratios[layer];
  const uint64_t groups = options.context / source.ratio;
  source.latents = RowCache(formats.latent, config.head_dim, groups);
  source.index_keys =
      RowCache(formats.index_key, config.index_head_dim, groups);
  if (source.ratio > 1) {
    const uint64_t open = SequenceState::OpenRows(config, options.chunk);
    source.open_kv = RowCache(RowFormat::kF32, config.head_dim, open);
    source.open_gate = RowCache(RowFormat::kF32, config.head_dim, open);
  }
  return source;
}

template <typename State, typename Visit>
void ForEachCache(State& state, const Visit& visit) {
  for (auto& window : state.windows) visit(window);
  for (auto& source : state.sources) {
    visit(source.latents);
    visit(source.index_keys);
    visit(source.open_kv);
    visit(source.open_gate);
  }
}

// Visits the ring rows that continuing at the state's position needs: a ring is
// `chunk` rows longer than they are.
template <typename State, typename Visit>
void ForEachNeededRow(State& state, const Visit& visit) {
  const auto visit_ring = [&](auto& ring) {
    if (ring.capacity == 0) return;
    const uint64_t needed =
        std::min(state.position, ring.capacity - uint64_t{state.chunk});
    for (uint64_t p = state.position - needed; p < state.position; ++p) {
      visit(ring.row(p % ring.capacity), ring.row_bytes);
    }
  };
  for (auto& window : state.windows) visit_ring(window);
  for (auto& source : state.sources) {
    visit_ring(source.open_kv);
    visit_ring(source.open_gate);
  }
}

}  // namespace

Result<SequenceState> SequenceState::Create(const ModelConfig& config,
                                            const SessionOptions& options) {
  SequenceState state;
  state.context = options.context;
  state.chunk = options.chunk;
  state.state_rounding = options.state_rounding;
  state.tokens.reserve(options.context);
  state.image.reserve(options.context);
  const CacheFormats formats = CacheFormats::For(options.state_rounding);
  for (uint32_t layer = 0; layer < config.n_layers; ++layer) {
    state.windows.emplace_back(formats.window, config.head_dim,
                               WindowCapacity(config, options.chunk));
  }
  for (uint32_t layer : config.kv_source_layer_ids) {
    state.sources.push_back(MakeSource(config, options, formats, layer));
  }
  bool fits = true;
  ForEachCache(state, [&](const RowCache& cache) { fits &= cache.bytes.ok(); });
  if (!fits) {
    return ResourceExhausted(
        "caches for a context of %llu tokens do not fit in memory; "
        "use a smaller context",
        static_cast<unsigned long long>(options.context));
  }
  return state;
}

SourceCache& SequenceState::SourceOf(const ModelConfig& config,
                                     uint32_t layer) {
  const int source = config.KvSourceOf(layer);
  for (SourceCache& cache : sources) {
    if (static_cast<int>(cache.layer) == source) return cache;
  }
  ECPHORY_CHECK(false && "layer has no KV source");
  return sources.front();
}

uint64_t SequenceState::EarliestTruncation() const {
  return written - std::min<uint64_t>(written, chunk);
}

void SequenceState::TruncateTo(uint64_t target) {
  position = target;
  tokens.resize(target);
  image.resize(target);
  logits.clear();
  if (target == 0) written = 0;
  // The keys slot as token-by-token decoding would have left it.
  published_keys = -1;
  for (uint64_t p = target; p > 0 && published_keys < 0; --p) {
    for (size_t i = 0; i < sources.size(); ++i) {
      if (p % sources[i].ratio == 0) published_keys = static_cast<int32_t>(i);
    }
  }
}

void SequenceState::NoteWritten(uint64_t count) {
  written = std::max(written, position + count);
}

void SequenceState::ForgetBefore(uint64_t earliest) {
  written = std::max(written, earliest + chunk);
}

SequenceState::Checkpoint SequenceState::Save() const {
  Checkpoint checkpoint{.position = position,
                        .published_keys = published_keys,
                        .history = history,
                        .logits = logits,
                        .rows = {}};
  size_t total = 0;
  ForEachNeededRow(*this,
                   [&](const uint8_t*, size_t bytes) { total += bytes; });
  checkpoint.rows.reserve(total);
  ForEachNeededRow(*this, [&](const uint8_t* row, size_t bytes) {
    checkpoint.rows.insert(checkpoint.rows.end(), row, row + bytes);
  });
  return checkpoint;
}

uint64_t SequenceState::CheckpointBytes(const ModelConfig& config,
                                        const SessionOptions& options,
                                        uint64_t position) {
  if (position == 0) return 0;
  const CacheFormats formats = CacheFormats::For(options.state_rounding);
  const auto rows = [&](uint64_t needed) { return std::min(position, needed); };
  uint64_t bytes = sizeof(float) * uint64_t{config.vocab_size};
  bytes += config.n_layers * rows(config.sliding_window) *
           RowBytes(formats.window, config.head_dim);
  for (const uint32_t layer : config.kv_source_layer_ids) {
    if (config.compress_ratios[layer] == 1) continue;
    bytes += 2 * rows(OpenRows(config, 0)) *
             RowBytes(RowFormat::kF32, config.head_dim);
  }
  return bytes;
}

void SequenceState::Return(Checkpoint checkpoint) {
  TruncateTo(checkpoint.position);
  published_keys = checkpoint.published_keys;
  history = checkpoint.history;
  logits = std::move(checkpoint.logits);
  const uint8_t* from = checkpoint.rows.data();
  ForEachNeededRow(*this, [&](uint8_t* row, size_t bytes) {
    std::copy_n(from, bytes, row);
    from += bytes;
  });
  // Rows that were written since may stand where older ones stood.
  written = position > 0 ? position + chunk : 0;
}

uint64_t SequenceState::bytes() const {
  uint64_t total = 0;
  ForEachCache(*this,
               [&](const RowCache& cache) { total += cache.bytes.size(); });
  return total;
}

}  // namespace ecphory
