// The backbone's fields of a ModelConfig.
//
// config.json and GGUF (`deepseek41.` in front) spell the backbone's keys
// alike, so one list of fields serves both.
#pragma once

#include "ecphory/config.h"
#include "format/field_reader.h"

namespace ecphory {

// Everything but architecture, Engram and rope scaling.
void ReadBackbone(FieldReader* fields, ModelConfig* config);

// bos_token_id and eos_token_id (a list counts as its first entry), when
// present.
void ReadSpecialTokens(FieldReader* fields, ModelConfig* config);

}  // namespace ecphory
