#include "model/caches.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"

namespace ecphory {

CacheFormats CacheFormats::For(bool state_rounding) {
  if (state_rounding) return {};
  return {RowFormat::kF32, RowFormat::kF32, RowFormat::kF32};
}

Result<RowCache> RowCache::Create(Device& device, RowFormat format, size_t dim,
                                  uint64_t capacity) {
  RowCache cache;
  cache.format = format;
  cache.dim = dim;
  cache.row_bytes = RowBytes(format, dim);
  cache.capacity = capacity;
  uint64_t size = 0;
  // A size that overflows is left to the allocation to refuse.
  if (!CheckedMul(cache.row_bytes, capacity, &size)) size = SIZE_MAX;
  ECPHORY_ASSIGN_OR_RETURN(cache.bytes,
                           DeviceArray<uint8_t>::Allocate(device, size));
  return cache;
}

namespace {

// Calls copy(row of the ring, row of the copy, count) for the stretches that
// rows first .. first + count of a ring lie in: one or two.
template <typename Copy>
Status ForStretches(const RowCache& ring, uint64_t first, uint64_t count,
                    const Copy& copy) {
  ECPHORY_CHECK(count <= ring.capacity);
  for (uint64_t done = 0; done < count;) {
    const uint64_t row = (first + done) % ring.capacity;
    const uint64_t rows = std::min(count - done, ring.capacity - row);
    ECPHORY_RETURN_IF_ERROR(copy(row, done, rows));
    done += rows;
  }
  return {};
}

}  // namespace

Status RowCache::Read(uint64_t first, uint64_t count, uint8_t* rows) const {
  return ForStretches(
      *this, first, count, [&](uint64_t row, uint64_t at, uint64_t n) {
        return bytes.Read(row * row_bytes,
                          {rows + at * row_bytes, n * row_bytes});
      });
}

Status RowCache::Write(uint64_t first, uint64_t count, const uint8_t* rows) {
  return ForStretches(
      *this, first, count, [&](uint64_t row, uint64_t at, uint64_t n) {
        return bytes.Write(row * row_bytes,
                           {rows + at * row_bytes, n * row_bytes});
      });
}

namespace {

Result<SourceCache> MakeSource(const ModelConfig& config,
                               const SessionOptions& options,
                               const CacheFormats& formats, uint32_t layer,
                               Device& device) {
  SourceCache source;
  source.layer = layer;
  source.ratio = config.compress_ratios[layer];
  const uint64_t groups = options.context / source.ratio;
  ECPHORY_ASSIGN_OR_RETURN(
      source.latents,
      RowCache::Create(device, formats.latent, config.head_dim, groups));
  ECPHORY_ASSIGN_OR_RETURN(source.index_keys,
                           RowCache::Create(device, formats.index_key,
                                            config.index_head_dim, groups));
  if (source.ratio == 1) return source;
  const uint64_t open = SequenceState::OpenRows(config, options.chunk);
  for (RowCache* ring : {&source.open_kv, &source.open_gate}) {
    ECPHORY_ASSIGN_OR_RETURN(*ring, RowCache::Create(device, RowFormat::kF32,
                                                     config.head_dim, open));
  }
  return source;
}

Status MakeCaches(const ModelConfig& config, const SessionOptions& options,
                  Device& device, SequenceState* state) {
  const CacheFormats formats = CacheFormats::For(options.state_rounding);
  for (uint32_t layer = 0; layer < config.n_layers; ++layer) {
    ECPHORY_ASSIGN_OR_RETURN(
        RowCache window,
        RowCache::Create(device, formats.window, config.head_dim,
                         SequenceState::WindowCapacity(config, options.chunk)));
    state->windows.push_back(std::move(window));
  }
  for (uint32_t layer : config.kv_source_layer_ids) {
    ECPHORY_ASSIGN_OR_RETURN(
        SourceCache source,
        MakeSource(config, options, formats, layer, device));
    state->sources.push_back(std::move(source));
  }
  return {};
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

// visit(ring, first, count): the ring rows that continuing at the state's
// position needs. A ring is `chunk` rows longer than they are.
template <typename State, typename Visit>
Status ForNeededRows(State& state, const Visit& visit) {
  const auto visit_ring = [&](auto& ring) {
    if (ring.capacity == 0) return Status();
    const uint64_t needed =
        std::min(state.position, ring.capacity - uint64_t{state.chunk});
    return visit(ring, state.position - needed, needed);
  };
  for (auto& window : state.windows) {
    ECPHORY_RETURN_IF_ERROR(visit_ring(window));
  }
  for (auto& source : state.sources) {
    ECPHORY_RETURN_IF_ERROR(visit_ring(source.open_kv));
    ECPHORY_RETURN_IF_ERROR(visit_ring(source.open_gate));
  }
  return {};
}

}  // namespace

Result<SequenceState> SequenceState::Create(const ModelConfig& config,
                                            const SessionOptions& options,
                                            Device& device) {
  static std::atomic<uint64_t> last_id = 0;
  SequenceState state;
  state.id = ++last_id;
  state.context = options.context;
  state.chunk = options.chunk;
  state.state_rounding = options.state_rounding;
  state.tokens.reserve(options.context);
  state.image.reserve(options.context);
  const Status made = MakeCaches(config, options, device, &state);
  if (made.ok()) return state;
  return Status(made.code(),
                "caches for a context of " + std::to_string(options.context) +
                    " tokens: " + made.message() + "; use a smaller context");
}

size_t SequenceState::SourceIndex(const ModelConfig& config, uint32_t layer) {
  const auto& ids = config.kv_source_layer_ids;
  const auto source = std::find_if(ids.begin(), ids.end(), [&](uint32_t id) {
    return static_cast<int>(id) == config.KvSourceOf(layer);
  });
  ECPHORY_CHECK(source != ids.end());
  return static_cast<size_t>(source - ids.begin());
}

uint64_t SequenceState::EarliestTruncation() const {
  return written - std::min<uint64_t>(written, chunk);
}

void SequenceState::TruncateTo(uint64_t target) {
  position = target;
  tokens.resize(target);
  image.resize(target);
  logits.clear();
  device_logits = nullptr;
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

Result<SequenceState::Checkpoint> SequenceState::Save() const {
  Checkpoint checkpoint{.position = position,
                        .published_keys = published_keys,
                        .history = history,
                        .logits = logits,
                        .rows = {}};
  size_t total = 0;
  ECPHORY_RETURN_IF_ERROR(
      ForNeededRows(*this, [&](const RowCache& ring, uint64_t, uint64_t count) {
        total += count * ring.row_bytes;
        return Status();
      }));
  checkpoint.rows.resize(total);
  uint8_t* to = checkpoint.rows.data();
  ECPHORY_RETURN_IF_ERROR(ForNeededRows(
      *this, [&](const RowCache& ring, uint64_t first, uint64_t count) {
        uint8_t* const rows = to;
        to += count * ring.row_bytes;
        return ring.Read(first, count, rows);
      }));
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

Status SequenceState::Return(Checkpoint checkpoint) {
  TruncateTo(checkpoint.position);
  published_keys = checkpoint.published_keys;
  history = checkpoint.history;
  logits = std::move(checkpoint.logits);
  const uint8_t* from = checkpoint.rows.data();
  // Rows that were written since may stand where older ones stood.
  written = position > 0 ? position + chunk : 0;
  return ForNeededRows(*this,
                       [&](RowCache& ring, uint64_t first, uint64_t count) {
                         const uint8_t* const rows = from;
                         from += count * ring.row_bytes;
                         return ring.Write(first, count, rows);
                       });
}

uint64_t SequenceState::bytes() const {
  uint64_t total = 0;
  ForEachCache(*this,
               [&](const RowCache& cache) { total += cache.bytes.size(); });
  return total;
}

}  // namespace ecphory
