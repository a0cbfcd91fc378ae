// A small trace made by hand, for tests of its renderings.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ecphory/engram_trace.h"

namespace ecphory::trace::testing {

// One Engram layer, 2- and 3-grams, one head, two streams.
inline EngramTrace MakeTrace(const std::vector<std::string>& pieces) {
  EngramTrace trace;
  trace.path = "model.gguf";
  trace.name = "toy";
  trace.backend = "ref";
  trace.max_ngram = 3;
  trace.heads = 1;
  trace.row_width = 32;
  trace.streams = 2;
  trace.pad_compressed = 9;
  trace.tokens_given = pieces.size();
  trace.layers = {{4, 24, {3, 5, 7}, {{2, 0, 11, 0}, {3, 0, 13, 11}}}};
  for (size_t t = 0; t < pieces.size(); ++t) {
    EngramTraceToken token;
    token.id = static_cast<int32_t>(t);
    token.piece = pieces[t];
    token.compressed = static_cast<int32_t>(t % 9);
    token.window = {token.compressed, 9, 9};
    token.reach = 1;
    token.layers.push_back(
        {{18446744073709551615u, 7},
         {t % 11, 11 + 7},
         {{0.25f, -1.2f, 0.5f, 0.1f}, {0.75f, 1.2f, 1.5f, -0.2f}}});
    trace.tokens.push_back(std::move(token));
  }
  return trace;
}

}  // namespace ecphory::trace::testing
