// The Engram keys of config.json and of GGUF metadata: read, and checked.
// Models and stores that come without one read them here.
#pragma once

#include <cstdint>
#include <string>

#include "ecphory/config.h"
#include "ecphory/status.h"
#include "format/field_reader.h"
#include "tensor/table_codec.h"

namespace ecphory::engram {

// In front of the keys of a GGUF file.
inline constexpr char kGgufPrefix[] = "deepseek41.";
// Far above every published model (40 layers, 129,280 tokens).
inline constexpr uint32_t kMaxLayers = 4096;
inline constexpr uint32_t kMaxVocab = 1u << 30;

// The engram_* keys of a config.json. Without engram_layer_ids, or with an
// empty list, `config` stays disabled.
void ReadJsonConfig(FieldReader* fields, EngramConfig* config);

// The engram.* keys of GGUF metadata (`fields` adds the prefix), which come all
// or not at all. N-gram and head counts follow from the numbers' lengths.
void ReadGgufConfig(FieldReader* fields, EngramConfig* config);

// What the config.json inside a GGUF (`fields`) adds to its keys.
void ReadEmbeddedConfig(FieldReader* fields, EngramConfig* config);

// Refuses counts, sizes and ids that do not fit each other, the vocabulary or
// the number of layers, naming the key as config.json spells it. A disabled
// configuration must be empty.
Status CheckConfig(const EngramConfig& config, uint32_t vocab_size,
                   uint32_t n_layers);

// What GGUF calls a row of `width` codes and its scales: "e4m3_e8m0_32_row264"
// at 256.
std::string RowEncodingName(uint32_t width);

// The same of any codec: TableCodecName, but for rows that have their size in
// their name.
std::string RowEncodingName(TableCodec codec, uint32_t width);

}  // namespace ecphory::engram
