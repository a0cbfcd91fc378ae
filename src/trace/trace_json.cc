// A trace as JSON: everything, by name.
#include <nlohmann/json.hpp>

#include "ecphory/engram_trace.h"
#include "text/utf8.h"
#include "trace/format.h"

namespace ecphory {

namespace {

using Json = nlohmann::ordered_json;

// JavaScript and jq read numbers as doubles: what may pass 2^53 is a string.
Json Decimals(const std::vector<uint64_t>& numbers) {
  Json list = Json::array();
  for (const uint64_t number : numbers) list.push_back(std::to_string(number));
  return list;
}

Json LayerJson(const EngramTraceLayer& layer) {
  Json columns = Json::array();
  for (const EngramTraceColumn& column : layer.columns) {
    columns.push_back(Json{{"ngram", column.ngram},
                           {"head", column.head},
                           {"prime", column.prime},
                           {"offset", column.offset}});
  }
  return Json{{"layer", layer.layer},
              {"rows", layer.rows},
              {"multipliers", Decimals(layer.multipliers)},
              {"columns", std::move(columns)}};
}

Json StreamsJson(const std::vector<EngramStreamTrace>& streams) {
  Json list = Json::array();
  for (const EngramStreamTrace& stream : streams) {
    list.push_back(Json{{"gate", stream.gate},
                        {"dot", stream.dot},
                        {"move", stream.move},
                        {"cosine", stream.cosine}});
  }
  return list;
}

// The n-grams that end at `token`, in reading order, padding included.
Json NgramsJson(const EngramTrace& trace, size_t at) {
  const EngramTraceToken& token = trace.tokens[at];
  Json ngrams = Json::array();
  for (uint32_t n = 2; n <= trace.max_ngram; ++n) {
    Json ids = Json::array(), pieces = Json::array();
    for (uint32_t back = n; back-- > 0;) {
      ids.push_back(token.window[back]);
      pieces.push_back(back < token.reach ? Json(ReplaceInvalidUtf8(
                                                trace.tokens[at - back].piece))
                                          : Json(nullptr));
    }
    ngrams.push_back(Json{{"n", n},
                          {"compressed", std::move(ids)},
                          {"pieces", std::move(pieces)}});
  }
  return ngrams;
}

Json TokenLayerJson(const EngramTrace& trace, size_t layer,
                    const EngramTokenTrace& token) {
  const EngramTraceLayer& facts = trace.layers[layer];
  std::vector<uint64_t> remainders;
  for (size_t c = 0; c < token.rows.size(); ++c) {
    remainders.push_back(token.rows[c] - facts.columns[c].offset);
  }
  Json json{{"layer", facts.layer},
            {"mixed", Decimals(token.mixed)},
            {"remainders", remainders},
            {"rows", token.rows}};
  if (trace.streams > 0) json["streams"] = StreamsJson(token.streams);
  return json;
}

Json TokenJson(const EngramTrace& trace, size_t at) {
  const EngramTraceToken& token = trace.tokens[at];
  Json layers = Json::array();
  for (size_t i = 0; i < token.layers.size(); ++i) {
    layers.push_back(TokenLayerJson(trace, i, token.layers[i]));
  }
  const bool dead = token.compressed < 0;
  return Json{{"position", at},
              {"id", token.id},
              {"piece", ReplaceInvalidUtf8(token.piece)},
              {"bytes", trace::Hex(token.piece)},
              {"special", token.special},
              {"dead", dead},
              {"compressed", dead ? Json(nullptr) : Json(token.compressed)},
              {"reach", token.reach},
              {"ngrams", NgramsJson(trace, at)},
              {"layers", std::move(layers)}};
}

Json ClassesJson(const std::vector<EngramTraceClass>& classes) {
  Json list = Json::array();
  for (const EngramTraceClass& c : classes) {
    Json pieces = Json::array();
    for (const std::string& piece : c.pieces) {
      pieces.push_back(ReplaceInvalidUtf8(piece));
    }
    list.push_back(Json{{"compressed", c.compressed},
                        {"members", c.members},
                        {"pieces", std::move(pieces)}});
  }
  return list;
}

}  // namespace

std::string EngramTraceJson(const EngramTrace& trace) {
  Json layers = Json::array(), tokens = Json::array();
  for (const auto& layer : trace.layers) layers.push_back(LayerJson(layer));
  for (size_t t = 0; t < trace.tokens.size(); ++t) {
    tokens.push_back(TokenJson(trace, t));
  }
  const Json json{
      {"path", ReplaceInvalidUtf8(trace.path)},
      {"name", ReplaceInvalidUtf8(trace.name)},
      {"backend", trace.streams > 0 ? Json(trace.backend) : Json(nullptr)},
      {"max_ngram", trace.max_ngram},
      {"heads", trace.heads},
      {"row_width", trace.row_width},
      {"streams", trace.streams},
      {"pad_compressed", trace.pad_compressed},
      {"tokens_given", trace.tokens_given},
      {"tokens_traced", trace.tokens.size()},
      {"layers", std::move(layers)},
      {"tokens", std::move(tokens)},
      {"classes", ClassesJson(trace.classes)}};
  return json.dump(1, ' ') + "\n";
}

}  // namespace ecphory
