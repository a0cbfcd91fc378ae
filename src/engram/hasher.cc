#include "engram/hasher.h"

#include <algorithm>
#include <cinttypes>
#include <utility>

#include "base/check.h"

namespace ecphory::engram {

namespace {

// Compressed ids of the current token and those before it, newest first.
using Window = std::array<int32_t, kMaxNgram>;

// The look-back of a token: from the first dead or missing position on,
// everything is padding.
Window LookBack(int32_t current, const History& history, uint32_t max_ngram,
                int32_t pad_id) {
  Window window;
  window.fill(pad_id);
  if (current < 0) return window;
  window[0] = current;
  const uint32_t known = std::min(history.length, max_ngram - 1);
  for (uint32_t i = 0; i < known && history.ids[i] >= 0; ++i) {
    window[i + 1] = history.ids[i];
  }
  return window;
}

void Push(int32_t id, uint32_t max_ngram, History* history) {
  auto& ids = history->ids;
  std::copy_backward(ids.begin(), ids.end() - 1, ids.end());
  ids[0] = id;
  history->length = std::min(history->length + 1, max_ngram - 1);
}

Status CheckTokenMap(std::span<const int32_t> token_map, uint32_t classes) {
  if (token_map.empty()) {
    return Corrupt("engram: the token map is empty, expected an id per token");
  }
  for (size_t token = 0; token < token_map.size(); ++token) {
    const int32_t id = token_map[token];
    if (id < 0 || static_cast<uint32_t>(id) >= classes) {
      return Corrupt("engram: token_map[%zu] is %d, expected 0..%u", token, id,
                     classes - 1);
    }
  }
  return {};
}

}  // namespace

Hasher::Hasher(Layout layout) : layout_(std::move(layout)) {
  for (const LayerLayout& layer : layout_.layers) {
    std::vector<Column>& columns = columns_.emplace_back();
    for (size_t i = 0; i < layer.primes.size(); ++i) {
      columns.push_back({Modulus(layer.primes[i]), layer.offsets[i]});
    }
  }
}

Result<Hasher> Hasher::Create(Layout layout, std::vector<int32_t> token_map,
                              int32_t pad_id) {
  ECPHORY_RETURN_IF_ERROR(CheckLayout(layout));
  const uint32_t classes = layout.compressed_vocab_size;
  ECPHORY_RETURN_IF_ERROR(CheckTokenMap(token_map, classes));
  if (pad_id < 0 || static_cast<uint32_t>(pad_id) >= classes) {
    return Corrupt("engram: the compressed pad id is %d, expected 0..%u",
                   pad_id, classes - 1);
  }
  Hasher hasher(std::move(layout));
  hasher.token_map_ = std::move(token_map);
  hasher.pad_id_ = pad_id;
  return hasher;
}

Status Hasher::Compress(std::span<const int32_t> tokens,
                        std::span<const uint8_t> dead,
                        std::span<int32_t> compressed) const {
  ECPHORY_CHECK(compressed.size() == tokens.size());
  ECPHORY_CHECK(dead.empty() || dead.size() == tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int32_t token = tokens[i];
    if (token < 0 || static_cast<size_t>(token) >= token_map_.size()) {
      return OutOfRange("token %d at position %zu, expected ids 0..%zu", token,
                        i, token_map_.size() - 1);
    }
    const bool is_dead = !dead.empty() && dead[i] != 0;
    compressed[i] = is_dead ? kDead : token_map_[static_cast<size_t>(token)];
  }
  return {};
}

// CheckLayout() keeps every product below 2^63, and so their xor: the range in
// which Modulus is exact.
void Hasher::HashToken(size_t layer, std::span<const int32_t> look_back,
                       uint64_t* rows) const {
  const std::vector<uint64_t>& multipliers = layout_.layers[layer].multipliers;
  const auto product = [&](size_t i) {
    return static_cast<uint64_t>(look_back[i]) * multipliers[i];
  };
  const Column* column = columns_[layer].data();
  uint64_t mixed = product(0);
  for (size_t i = 1; i < multipliers.size(); ++i) {
    mixed ^= product(i);
    for (uint32_t head = 0; head < layout_.heads; ++head, ++column) {
      *rows++ = column->prime(mixed) + column->offset;
    }
  }
}

void Hasher::Hash(std::span<const int32_t> compressed, History* history,
                  std::span<const std::span<uint64_t>> rows) const {
  const size_t columns = layout_.columns();
  ECPHORY_CHECK(rows.size() == layout_.layers.size());
  for (const auto& layer_rows : rows) {
    ECPHORY_CHECK(layer_rows.size() == compressed.size() * columns);
  }
  for (size_t t = 0; t < compressed.size(); ++t) {
    const Window window =
        LookBack(compressed[t], *history, layout_.max_ngram, pad_id_);
    for (size_t i = 0; i < rows.size(); ++i) {
      HashToken(i, window, rows[i].data() + t * columns);
    }
    Push(compressed[t], layout_.max_ngram, history);
  }
}

void Hasher::Advance(std::span<const int32_t> compressed,
                     History* history) const {
  for (const int32_t id : compressed) Push(id, layout_.max_ngram, history);
}

}  // namespace ecphory::engram
