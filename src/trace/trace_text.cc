// A trace for the terminal: a block of lines for each token.
#include <algorithm>
#include <cmath>

#include "ecphory/engram_trace.h"
#include "trace/format.h"

namespace ecphory {

namespace {

using trace::Grouped;
using trace::Print;
using trace::QuotePiece;
using trace::WrapItems;

constexpr size_t kMinWidth = 60;

// A bar of eight heights, so that a look down the page shows where gates open.
std::string GateBar(float gate) {
  static const char* const kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const int height = static_cast<int>(std::floor(gate * 8));
  return kBars[std::clamp(height, 0, 7)];
}

std::string PieceText(const EngramTraceToken& token) {
  return token.piece.empty() ? "#" + std::to_string(token.id)
                             : QuotePiece(token.piece);
}

std::string Header(const EngramTrace& trace, size_t width) {
  std::string layers;
  for (const EngramTraceLayer& layer : trace.layers) {
    layers += (layers.empty() ? "" : ", ") + std::to_string(layer.layer);
  }
  const size_t traced = trace.tokens.size();
  std::string text = trace.path + (trace.name.empty() ? "" : ": " + trace.name);
  if (trace.streams > 0) text += ", " + trace.backend;
  text += "\n";
  text += WrapItems(
      "",
      {Print("%s tokens", Grouped(traced).c_str()), "Engram layers " + layers,
       Print("n-grams of 2 to %u tokens, %u heads", trace.max_ngram,
             trace.heads),
       Print("%zu rows of %u values a token and layer",
             trace.layers[0].columns.size(), trace.row_width)},
      width);
  if (traced < trace.tokens_given) {
    text += Print("only the first %zu of %s tokens are traced\n", traced,
                  Grouped(trace.tokens_given).c_str());
  }
  return text;
}

// Where each column of a layer's table begins, and its prime.
std::string LayerText(const EngramTrace& trace, const EngramTraceLayer& layer,
                      size_t width) {
  std::string text =
      Print("\nlayer %u: %s rows\n", layer.layer, Grouped(layer.rows).c_str());
  std::vector<std::string> multipliers;
  for (const uint64_t m : layer.multipliers) {
    multipliers.push_back(std::to_string(m));
  }
  text += WrapItems("  multipliers  ", multipliers, width);
  for (uint32_t n = 2; n <= trace.max_ngram; ++n) {
    std::vector<std::string> columns;
    for (const EngramTraceColumn& column : layer.columns) {
      if (column.ngram != n) continue;
      columns.push_back(Print("%llu+%llu",
                              static_cast<unsigned long long>(column.prime),
                              static_cast<unsigned long long>(column.offset)));
    }
    text += WrapItems(Print("  %u-gram prime+offset  ", n), columns, width);
  }
  return text;
}

std::string NgramText(const EngramTrace& trace, size_t at, uint32_t n,
                      size_t width) {
  const EngramTraceToken& token = trace.tokens[at];
  std::vector<std::string> items;
  for (uint32_t back = n; back-- > 0;) {
    const std::string id = std::to_string(token.window[back]);
    items.push_back(back < token.reach
                        ? PieceText(trace.tokens[at - back]) + " " + id
                        : "padding " + id);
  }
  return WrapItems(Print("      %u-gram  ", n), items, width);
}

std::string StreamsText(const std::vector<EngramStreamTrace>& streams,
                        size_t width) {
  std::vector<std::string> gates, moves, cosines;
  for (const EngramStreamTrace& s : streams) {
    const auto [gate, dot, move, cosine] = s;
    gates.push_back(
        Print("%s %.3f", GateBar(gate).c_str(), static_cast<double>(gate)));
    moves.push_back(Print("%6.1f%%", 100 * static_cast<double>(move)));
    cosines.push_back(Print("%+7.3f", static_cast<double>(cosine)));
  }
  return WrapItems("        gate    ", gates, width) +
         WrapItems("        moves   ", moves, width) +
         WrapItems("        cosine  ", cosines, width);
}

std::string RowsText(const EngramTrace& trace, size_t layer,
                     const EngramTokenTrace& token, size_t width) {
  const EngramTraceLayer& facts = trace.layers[layer];
  const int digits = static_cast<int>(std::to_string(facts.rows).size());
  std::string text;
  for (uint32_t n = 2; n <= trace.max_ngram; ++n) {
    std::vector<std::string> rows;
    for (uint32_t head = 0; head < trace.heads; ++head) {
      rows.push_back(Print("%*llu", digits,
                           static_cast<unsigned long long>(
                               token.rows[(n - 2) * trace.heads + head])));
    }
    text += WrapItems(Print("        %u-gram  ", n), rows, width);
  }
  return text;
}

// Each row with the arithmetic that leads to it.
std::string ColumnsText(const EngramTrace& trace, size_t layer,
                        const EngramTokenTrace& token) {
  using Ull = unsigned long long;
  const EngramTraceLayer& facts = trace.layers[layer];
  std::string text;
  for (size_t c = 0; c < token.rows.size(); ++c) {
    const EngramTraceColumn& column = facts.columns[c];
    if (column.head == 0) {
      text += Print("        %u-gram  mixed %llu\n", column.ngram,
                    Ull{token.mixed[column.ngram - 2]});
    }
    text += Print("          head %u  mod %llu = %llu, + %llu = row %llu\n",
                  column.head, Ull{column.prime},
                  Ull{token.rows[c] - column.offset}, Ull{column.offset},
                  Ull{token.rows[c]});
  }
  return text;
}

std::string TokenText(const EngramTrace& trace, size_t at, size_t width,
                      bool every_column) {
  const EngramTraceToken& token = trace.tokens[at];
  const bool dead = token.compressed < 0;
  std::string text =
      Print("\n%5zu  %s  id %d, ", at, PieceText(token).c_str(), token.id);
  text += dead ? "dead: an image position, its gates are shut\n"
               : Print("compressed %d\n", token.compressed);
  for (uint32_t n = 2; n <= trace.max_ngram && !dead; ++n) {
    text += NgramText(trace, at, n, width);
  }
  for (size_t i = 0; i < token.layers.size(); ++i) {
    text += Print("      layer %u\n", trace.layers[i].layer);
    if (trace.streams > 0) {
      text += StreamsText(token.layers[i].streams, width);
    }
    text += every_column ? ColumnsText(trace, i, token.layers[i])
                         : RowsText(trace, i, token.layers[i], width);
  }
  return text;
}

}  // namespace

std::string EngramTraceText(const EngramTrace& trace,
                            const EngramTraceTextOptions& options) {
  const size_t width = std::max<size_t>(options.width, kMinWidth);
  std::string text = Header(trace, width);
  for (const EngramTraceLayer& layer : trace.layers) {
    text += LayerText(trace, layer, width);
  }
  for (size_t t = 0; t < trace.tokens.size(); ++t) {
    text += TokenText(trace, t, width, options.every_column);
  }
  return text;
}

}  // namespace ecphory
