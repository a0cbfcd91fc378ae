// The configurations that synthetic models come in, whole or cut.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ecphory/status.h"
#include "ecphory/tokenizer.h"

namespace ecphory {

// A model of architecture deepseek41 as the text of its config.json.
struct SynthShape {
  std::string name;              // of the model
  std::string config;            // compact, keys sorted
  std::vector<uint32_t> layers;  // of the preset, that were kept
};

struct SynthCut {
  uint32_t layers = 0;       // 0: all
  uint32_t experts = 0;      // 0: the preset's
  uint64_t engram_rows = 0;  // about, a table; 0: the preset's, or in a cut of
                             // the layers at most kCutRows
};

// 528 MB a table of the released row.
inline constexpr uint64_t kCutRows = 2'000'000;

// "v41-flash" (DeepSeek-V4.1-Flash), "v41-narrow" or "mini" (the bundled
// model). kInvalidArgument names the flag that asks for what the preset has
// not.
Result<SynthShape> MakeSynthShape(const std::string& preset,
                                  const SynthCut& cut);

// A byte-level vocabulary of `size` entries: three special tokens, the 256
// bytes, merges of two and three bytes, and above 128,000 ids placeholders. It
// encodes every text.
TokenizerData SynthTokenizer(uint32_t size);
// The text of its tokenizer.json.
std::string SynthTokenizerJson(const TokenizerData& data);

// Raw id -> compressed id: ids below `classes` stand for themselves, the others
// share theirs with the first ones.
std::vector<int32_t> SynthTokenMap(uint32_t size, uint32_t classes);

// The first `count` of `first_kept`, then of what is left of 0 .. layers - 1,
// ascending.
std::vector<uint32_t> KeptLayers(uint32_t layers, uint32_t count,
                                 const std::vector<uint32_t>& first_kept);
// Of `ids`, those in `kept`, as positions in it.
std::vector<uint32_t> MapLayers(const std::vector<uint32_t>& ids,
                                const std::vector<uint32_t>& kept);
// kInvalidArgument unless 1 <= layers <= most (0 is all).
Status CheckSynthLayers(const std::string& preset, uint32_t layers,
                        uint32_t most);

}  // namespace ecphory
