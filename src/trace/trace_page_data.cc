#include "trace/trace_page_data.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "text/utf8.h"
#include "trace/format.h"

namespace ecphory::trace {

namespace {

using Json = nlohmann::json;

// Four decimals are more than a screen shows.
double Rounded(float x) {
  return std::round(static_cast<double>(x) * 1e4) / 1e4;
}

Json LayerData(const EngramTraceLayer& layer) {
  Json columns = Json::array(), multipliers = Json::array();
  for (const EngramTraceColumn& c : layer.columns) {
    columns.push_back({c.ngram, c.head, c.prime, c.offset});
  }
  for (const uint64_t m : layer.multipliers) {
    multipliers.push_back(std::to_string(m));
  }
  return {{"layer", layer.layer},
          {"rows", layer.rows},
          {"columns", std::move(columns)},
          {"multipliers", std::move(multipliers)}};
}

Json TokenLayerData(const EngramTokenTrace& layer) {
  Json mixed = Json::array(), streams = Json::array();
  for (const uint64_t m : layer.mixed) mixed.push_back(std::to_string(m));
  for (const EngramStreamTrace& s : layer.streams) {
    streams.push_back(
        {Rounded(s.gate), Rounded(s.dot), Rounded(s.move), Rounded(s.cosine)});
  }
  return {{"mixed", std::move(mixed)},
          {"rows", layer.rows},
          {"streams", std::move(streams)}};
}

Json TokenData(const EngramTraceToken& token, std::string_view text,
               size_t begin) {
  Json layers = Json::array();
  for (const auto& layer : token.layers)
    layers.push_back(TokenLayerData(layer));
  Json json{{"id", token.id},
            {"piece", ReplaceInvalidUtf8(token.piece)},
            {"compressed", token.compressed},
            {"window", token.window},
            {"reach", token.reach},
            {"layers", std::move(layers)}};
  if (!IsWholeUtf8(token.piece)) {
    json["hex"] = Hex(token.piece);
    json["whole"] = WholeCharacters(text, begin, begin + token.piece.size());
  }
  return json;
}

Json ClassesData(const std::vector<EngramTraceClass>& classes) {
  Json json = Json::object();
  for (const EngramTraceClass& c : classes) {
    Json pieces = Json::array();
    for (const auto& piece : c.pieces) {
      pieces.push_back(ReplaceInvalidUtf8(piece));
    }
    json[std::to_string(c.compressed)] = {{"members", c.members},
                                          {"pieces", std::move(pieces)}};
  }
  return json;
}

}  // namespace

std::string TracePageData(const EngramTrace& trace, std::string_view text) {
  Json layers = Json::array(), tokens = Json::array();
  for (const auto& layer : trace.layers) layers.push_back(LayerData(layer));
  size_t begin = 0;
  for (const auto& token : trace.tokens) {
    tokens.push_back(TokenData(token, text, begin));
    begin += token.piece.size();
  }
  const Json json{{"max_ngram", trace.max_ngram},
                  {"streams", trace.streams},
                  {"layers", std::move(layers)},
                  {"tokens", std::move(tokens)},
                  {"classes", ClassesData(trace.classes)}};
  return json.dump();
}

}  // namespace ecphory::trace
