#include "measure/filled_state.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "measure/buffer.h"

namespace ecphory::measure {

namespace {

// Of variance 1, as normed vectors are: uniform in [-sqrt(3), sqrt(3)).
constexpr float kAmplitude = 1.7320508f;

// Rows that are made on the host before they are copied to their place.
constexpr uint64_t kRowsAtOnce = 4096;

Status FillRows(RowCache* cache, uint64_t rows, uint64_t seed,
                ThreadPool& pool) {
  std::vector<uint8_t> bytes(std::min(rows, kRowsAtOnce) * cache->row_bytes);
  for (uint64_t first = 0; first < rows; first += kRowsAtOnce) {
    const uint64_t count = std::min(rows - first, kRowsAtOnce);
    pool.ParallelFor(count, 64, [&](size_t begin, size_t end, size_t) {
      std::vector<float> x(cache->dim);
      for (size_t row = begin; row < end; ++row) {
        RandomBits bits(seed ^ ((first + row) << 8));
        for (float& value : x) value = kAmplitude * bits.Signed();
        EncodeRow(cache->format, x.data(), x.size(),
                  bytes.data() + row * cache->row_bytes);
      }
    });
    ECPHORY_RETURN_IF_ERROR(cache->Write(first, count, bytes.data()));
  }
  return {};
}

Status FillRing(RowCache* cache, uint64_t position, uint64_t seed,
                ThreadPool& pool) {
  return FillRows(cache, std::min(position, cache->capacity), seed, pool);
}

// The n-grams that end at the next token look back on the last tokens.
Status FillHistory(const engram::Hasher& hasher, SequenceState* state) {
  const uint64_t count =
      std::min<uint64_t>(state->position, hasher.layout().max_ngram - 1);
  std::vector<int32_t> compressed(count);
  ECPHORY_RETURN_IF_ERROR(hasher.Compress(std::span(state->tokens).last(count),
                                          std::span(state->image).last(count),
                                          compressed));
  hasher.Advance(compressed, &state->history);
  return {};
}

}  // namespace

std::vector<int32_t> RandomTokens(const ModelConfig& config, size_t count,
                                  uint64_t seed) {
  RandomBits bits(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) {
    do {
      token = static_cast<int32_t>(bits.Next() % config.vocab_size);
    } while (token == config.image_token_id);
  }
  return tokens;
}

Result<SequenceState> FilledState(const ModelConfig& config,
                                  const SessionOptions& options,
                                  uint64_t position,
                                  const engram::Hasher* hasher,
                                  ThreadPool& pool, Device& device) {
  ECPHORY_ASSIGN_OR_RETURN(SequenceState state,
                           SequenceState::Create(config, options, device));
  uint64_t seed = 1;
  for (RowCache& window : state.windows) {
    ECPHORY_RETURN_IF_ERROR(FillRing(&window, position, ++seed, pool));
  }
  for (SourceCache& source : state.sources) {
    const uint64_t groups = position / source.ratio;
    ECPHORY_RETURN_IF_ERROR(FillRows(&source.latents, groups, ++seed, pool));
    ECPHORY_RETURN_IF_ERROR(FillRows(&source.index_keys, groups, ++seed, pool));
    if (source.ratio == 1) continue;
    for (RowCache* ring : {&source.open_kv, &source.open_gate}) {
      ECPHORY_RETURN_IF_ERROR(FillRing(ring, position, ++seed, pool));
    }
  }
  state.tokens = RandomTokens(config, position, seed);
  state.image.assign(position, 0);
  state.NoteWritten(position);
  state.position = position;
  // As decoding up to here would have left it.
  state.published_keys = static_cast<int32_t>(state.sources.size()) - 1;
  if (hasher != nullptr) {
    ECPHORY_RETURN_IF_ERROR(FillHistory(*hasher, &state));
  }
  return state;
}

}  // namespace ecphory::measure
