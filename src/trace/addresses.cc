#include "trace/addresses.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace ecphory::trace {

namespace {

// Members of a class that a trace shows: enough to see what was merged.
constexpr size_t kShownMembers = 6;

// The ids that position `t` hashes, newest first, and how many of them are of
// the text: the look-back ends at the start and at the first dead position.
void FillWindow(std::span<const int32_t> compressed, size_t t,
                uint32_t max_ngram, int32_t pad_id, EngramTraceToken* token) {
  token->window.assign(max_ngram, pad_id);
  while (token->reach < max_ngram && token->reach <= t) {
    const int32_t id = compressed[t - token->reach];
    if (id < 0) return;
    token->window[token->reach++] = id;
  }
}

// What the hash takes modulo the primes of 2..max_ngram tokens.
std::vector<uint64_t> Mix(const engram::LayerLayout& layer,
                          const std::vector<int32_t>& window) {
  std::vector<uint64_t> mixed;
  uint64_t x = static_cast<uint64_t>(window[0]) * layer.multipliers[0];
  for (size_t i = 1; i < window.size(); ++i) {
    x ^= static_cast<uint64_t>(window[i]) * layer.multipliers[i];
    mixed.push_back(x);
  }
  return mixed;
}

// The rows are the hasher's own; a trace that explains them otherwise would
// be worthless.
void CheckRows(const engram::LayerLayout& layer, uint32_t heads,
               const EngramTokenTrace& trace) {
  for (size_t c = 0; c < trace.rows.size(); ++c) {
    ECPHORY_CHECK(trace.mixed[c / heads] % layer.primes[c] + layer.offsets[c] ==
                  trace.rows[c]);
  }
}

}  // namespace

std::vector<EngramTraceLayer> DescribeLayers(const engram::Layout& layout) {
  std::vector<EngramTraceLayer> layers;
  for (const engram::LayerLayout& from : layout.layers) {
    EngramTraceLayer layer{from.layer_id, from.rows, from.multipliers, {}};
    for (uint32_t c = 0; c < layout.columns(); ++c) {
      layer.columns.push_back({c / layout.heads + 2, c % layout.heads,
                               from.primes[c], from.offsets[c]});
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

Status TraceAddresses(const engram::Hasher& hasher,
                      std::span<const int32_t> tokens,
                      std::span<const uint8_t> dead, EngramTrace* trace) {
  const engram::Layout& layout = hasher.layout();
  const size_t columns = layout.columns();
  std::vector<int32_t> compressed(tokens.size());
  ECPHORY_RETURN_IF_ERROR(hasher.Compress(tokens, dead, compressed));
  std::vector<std::vector<uint64_t>> rows(layout.layers.size());
  std::vector<std::span<uint64_t>> views;
  for (auto& layer : rows) {
    layer.resize(tokens.size() * columns);
    views.emplace_back(layer);
  }
  engram::History history;
  hasher.Hash(compressed, &history, views);

  for (size_t t = 0; t < tokens.size(); ++t) {
    EngramTraceToken token;
    token.id = tokens[t];
    token.compressed = compressed[t];
    FillWindow(compressed, t, layout.max_ngram, hasher.pad_id(), &token);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto begin = rows[i].begin() + static_cast<ptrdiff_t>(t * columns);
      EngramTokenTrace layer;
      layer.mixed = Mix(layout.layers[i], token.window);
      layer.rows.assign(begin, begin + static_cast<ptrdiff_t>(columns));
      CheckRows(layout.layers[i], layout.heads, layer);
      token.layers.push_back(std::move(layer));
    }
    trace->tokens.push_back(std::move(token));
  }
  return {};
}

std::vector<EngramTraceClass> DescribeClasses(const engram::Hasher& hasher,
                                              const Tokenizer* tokenizer,
                                              const EngramTrace& trace) {
  std::vector<EngramTraceClass> classes;
  for (const EngramTraceToken& token : trace.tokens) {
    for (const int32_t id : token.window) classes.push_back({id, 0, {}});
  }
  const auto by_id = [](const auto& a, const auto& b) {
    return a.compressed < b.compressed;
  };
  std::sort(classes.begin(), classes.end(), by_id);
  const auto same = [](const auto& a, const auto& b) {
    return a.compressed == b.compressed;
  };
  classes.erase(std::unique(classes.begin(), classes.end(), same),
                classes.end());
  const std::vector<int32_t>& map = hasher.token_map();
  for (size_t id = 0; id < map.size(); ++id) {
    const auto found =
        std::lower_bound(classes.begin(), classes.end(),
                         EngramTraceClass{map[id], 0, {}}, by_id);
    if (found == classes.end() || found->compressed != map[id]) continue;
    ++found->members;
    if (tokenizer == nullptr || found->pieces.size() >= kShownMembers) continue;
    found->pieces.emplace_back(tokenizer->TokenBytes(static_cast<int32_t>(id)));
  }
  return classes;
}

}  // namespace ecphory::trace
