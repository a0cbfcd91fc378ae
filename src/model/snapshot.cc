#include "model/snapshot.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace ecphory {

namespace {

constexpr char kMagic[8] = {'E', 'C', 'P', 'H', 'S', 'N', 'A', 'P'};
constexpr uint32_t kVersion = 1;

// Fixed part, little-endian, 64 bytes, no padding.
struct Header {
  char magic[8];
  uint32_t version;
  int32_t published_keys;
  uint64_t fingerprint;
  uint64_t position;
  uint64_t earliest;     // lowest position the rows below allow truncating to
  uint64_t window_rows;  // rows per window, the newest is position - 1
  uint64_t open_rows;    // rows per open-group ring, likewise
  uint64_t has_logits;   // 0 or 1
};
static_assert(sizeof(Header) == 64);

class Writer {
 public:
  void Put(const void* data, size_t size) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    bytes_.insert(bytes_.end(), bytes, bytes + size);
  }
  // Room for so many bytes, to be written before the next call.
  uint8_t* Add(uint64_t size) {
    bytes_.resize(bytes_.size() + size);
    return bytes_.data() + (bytes_.size() - size);
  }
  std::vector<uint8_t>& bytes() { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

// Rows [end - count, end) of a ring, oldest first.
Status PutRows(Writer& out, const RowCache& cache, uint64_t end,
               uint64_t count) {
  if (cache.capacity == 0) return {};
  return cache.Read(end - count, count, out.Add(count * cache.row_bytes));
}

// Rows of `cache` (a ring) that are still there, up to the position.
uint64_t LiveRows(const SequenceState& state, uint64_t capacity) {
  const uint64_t oldest = state.written - std::min(state.written, capacity);
  return state.position - std::min(state.position, oldest);
}

uint64_t WindowCapacity(const SequenceState& state) {
  return state.windows.empty() ? 0 : state.windows[0].capacity;
}

// All open-group rings of a state have one capacity; 0 when there are none.
uint64_t OpenCapacity(const SequenceState& state) {
  for (const SourceCache& source : state.sources) {
    if (source.ratio > 1) return source.open_kv.capacity;
  }
  return 0;
}

// Bytes of a snapshot with this header; the header's numbers must be bounded
// by the snapshot's size beforehand, so that nothing here can overflow.
uint64_t PayloadBytes(const ModelConfig& config, const SequenceState& state,
                      const Header& header) {
  uint64_t size = sizeof(Header) + header.position * (sizeof(int32_t) + 1);
  for (const RowCache& window : state.windows) {
    size += header.window_rows * window.row_bytes;
  }
  for (const SourceCache& source : state.sources) {
    const uint64_t groups = header.position / source.ratio;
    size += groups * (source.latents.row_bytes + source.index_keys.row_bytes);
    if (source.ratio > 1) {
      size += header.open_rows *
              (source.open_kv.row_bytes + source.open_gate.row_bytes);
    }
  }
  if (header.has_logits != 0)
    size += uint64_t{config.vocab_size} * sizeof(float);
  return size + sizeof(uint64_t);  // checksum
}

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  const uint8_t* Take(uint64_t size) {
    const uint8_t* data = bytes_.data() + at_;
    at_ += size;
    return data;
  }
  template <typename T>
  std::vector<T> TakeVector(uint64_t count) {
    std::vector<T> values(count);
    const uint8_t* data = Take(count * sizeof(T));
    // memcpy wants a pointer even for nothing, and an empty vector has none.
    if (count > 0) std::memcpy(values.data(), data, count * sizeof(T));
    return values;
  }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

// Reads `count` ring rows that end before `end`; a smaller ring keeps the
// newest.
Status TakeRows(Reader& in, RowCache* cache, uint64_t end, uint64_t count) {
  const uint64_t kept = std::min(count, cache->capacity);
  in.Take((count - kept) * cache->row_bytes);
  return cache->Write(end - kept, kept, in.Take(kept * cache->row_bytes));
}

Status CheckHeader(const ModelConfig& config, const SequenceState& state,
                   std::span<const uint8_t> snapshot, Header* header) {
  if (snapshot.size() < sizeof(Header) + sizeof(uint64_t)) {
    return Corrupt("snapshot: %zu bytes, expected at least %zu",
                   snapshot.size(), sizeof(Header) + sizeof(uint64_t));
  }
  std::memcpy(header, snapshot.data(), sizeof(Header));
  if (std::memcmp(header->magic, kMagic, sizeof(kMagic)) != 0) {
    return Corrupt("snapshot: not an Ecphory snapshot (bad magic)");
  }
  if (header->version != kVersion) {
    return Unsupported("snapshot: version %u, this build reads version %u",
                       header->version, kVersion);
  }
  if (header->fingerprint != StateFingerprint(config, state)) {
    return InvalidArgument(
        "snapshot: made by another model or with other rounding options");
  }
  // Every count costs at least a byte, so this bounds all later arithmetic.
  const uint64_t size = snapshot.size();
  if (header->position > size || header->window_rows > size ||
      header->open_rows > size || header->has_logits > 1 ||
      PayloadBytes(config, state, *header) != size) {
    return Corrupt("snapshot: %zu bytes do not match its header",
                   snapshot.size());
  }
  uint64_t checksum = 0;
  std::memcpy(&checksum, snapshot.data() + size - sizeof(checksum),
              sizeof(checksum));
  if (checksum != XXH64(snapshot.data(), size - sizeof(checksum), 0)) {
    return Corrupt("snapshot: checksum differs, the bytes were damaged");
  }
  return Status::Ok();
}

// What a step needs: a whole window, and the open groups' tokens.
Status CheckRows(const ModelConfig& config, const SequenceState& state,
                 const Header& header) {
  const uint64_t position = header.position;
  if (position > state.context) {
    return OutOfRange("snapshot: %llu tokens, but the context holds %llu",
                      static_cast<unsigned long long>(position),
                      static_cast<unsigned long long>(state.context));
  }
  const uint64_t window = std::min<uint64_t>(position, config.sliding_window);
  uint64_t open = 0;
  for (const SourceCache& source : state.sources) {
    open = std::max(open, position % source.ratio);
  }
  const bool rows_ok = header.window_rows >= window &&
                       header.window_rows <= position &&
                       header.open_rows >= open && header.open_rows <= position;
  const bool keys_ok =
      header.published_keys >= -1 &&
      header.published_keys < static_cast<int64_t>(state.sources.size());
  if (!rows_ok || !keys_ok || header.earliest > position) {
    return Corrupt("snapshot: its header contradicts itself");
  }
  return Status::Ok();
}

Status CheckTokens(const ModelConfig& config, const int32_t* tokens,
                   uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    if (tokens[i] < 0 ||
        static_cast<uint32_t>(tokens[i]) >= config.vocab_size) {
      return Corrupt(
          "snapshot: token %d at position %llu is outside the "
          "vocabulary of %u",
          tokens[i], static_cast<unsigned long long>(i), config.vocab_size);
    }
  }
  return Status::Ok();
}

}  // namespace

uint64_t StateFingerprint(const ModelConfig& config,
                          const SequenceState& state) {
  std::vector<uint64_t> facts = {
      config.vocab_size,      config.hidden_size,
      config.n_layers,        config.n_heads,
      config.head_dim,        config.rope_dim,
      config.sliding_window,  config.index_n_heads,
      config.index_head_dim,  config.n_experts,
      config.hc_mult,         config.engram.columns(),
      config.engram.head_dim, state.state_rounding ? 1u : 0u};
  const auto add = [&](const auto& values) {
    facts.push_back(values.size());
    for (auto value : values) facts.push_back(value);
  };
  add(config.compress_ratios);
  add(config.kv_source_layer_ids);
  add(config.index_source_layer_ids);
  add(config.engram.layer_ids);
  add(config.engram.rows);
  return XXH64(facts.data(), facts.size() * sizeof(uint64_t), kVersion);
}

Result<std::vector<uint8_t>> EncodeSnapshot(const ModelConfig& config,
                                            const SequenceState& state) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.published_keys = state.published_keys;
  header.fingerprint = StateFingerprint(config, state);
  header.position = state.position;
  header.earliest = state.EarliestTruncation();
  header.window_rows = LiveRows(state, WindowCapacity(state));
  header.open_rows = LiveRows(state, OpenCapacity(state));
  header.has_logits = state.logits.empty() ? 0 : 1;

  Writer out;
  out.bytes().reserve(PayloadBytes(config, state, header));
  out.Put(&header, sizeof(header));
  out.Put(state.tokens.data(), state.tokens.size() * sizeof(int32_t));
  out.Put(state.image.data(), state.image.size());
  for (const RowCache& window : state.windows) {
    ECPHORY_RETURN_IF_ERROR(
        PutRows(out, window, state.position, header.window_rows));
  }
  for (const SourceCache& source : state.sources) {
    const uint64_t groups = state.position / source.ratio;
    ECPHORY_RETURN_IF_ERROR(PutRows(out, source.latents, groups, groups));
    ECPHORY_RETURN_IF_ERROR(PutRows(out, source.index_keys, groups, groups));
    for (const RowCache* ring : {&source.open_kv, &source.open_gate}) {
      ECPHORY_RETURN_IF_ERROR(
          PutRows(out, *ring, state.position, header.open_rows));
    }
  }
  out.Put(state.logits.data(), state.logits.size() * sizeof(float));
  const uint64_t checksum = XXH64(out.bytes().data(), out.bytes().size(), 0);
  out.Put(&checksum, sizeof(checksum));
  return std::move(out.bytes());
}

Status DecodeSnapshot(const ModelConfig& config,
                      std::span<const uint8_t> snapshot, SequenceState* state) {
  Header header;
  ECPHORY_RETURN_IF_ERROR(CheckHeader(config, *state, snapshot, &header));
  ECPHORY_RETURN_IF_ERROR(CheckRows(config, *state, header));
  Reader in(snapshot);
  in.Take(sizeof(Header));
  std::vector<int32_t> tokens = in.TakeVector<int32_t>(header.position);
  ECPHORY_RETURN_IF_ERROR(CheckTokens(config, tokens.data(), tokens.size()));

  state->tokens = std::move(tokens);
  state->image = in.TakeVector<uint8_t>(header.position);
  for (RowCache& window : state->windows) {
    ECPHORY_RETURN_IF_ERROR(
        TakeRows(in, &window, header.position, header.window_rows));
  }
  for (SourceCache& source : state->sources) {
    const uint64_t groups = header.position / source.ratio;
    ECPHORY_RETURN_IF_ERROR(TakeRows(in, &source.latents, groups, groups));
    ECPHORY_RETURN_IF_ERROR(TakeRows(in, &source.index_keys, groups, groups));
    if (source.ratio == 1) continue;
    for (RowCache* ring : {&source.open_kv, &source.open_gate}) {
      ECPHORY_RETURN_IF_ERROR(
          TakeRows(in, ring, header.position, header.open_rows));
    }
  }
  state->logits =
      in.TakeVector<float>(header.has_logits != 0 ? config.vocab_size : 0);
  state->device_logits = nullptr;
  state->position = header.position;
  state->published_keys = header.published_keys;
  // Rows older than the snapshot kept are not there, whatever this session's
  // rings could hold.
  state->written = header.position;
  if (header.earliest > 0) {
    state->written =
        std::max(state->written, header.earliest + uint64_t{state->chunk});
  }
  return Status::Ok();
}

}  // namespace ecphory
