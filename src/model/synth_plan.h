// What a synthetic model consists of, before a byte of it is made.
#pragma once

#include <string>
#include <vector>

#include "ecphory/status.h"
#include "ecphory/synth.h"
#include "format/gguf.h"
#include "model/source.h"
#include "model/synth_presets.h"
#include "model/synth_values.h"

namespace ecphory {

// Storage types of a GGUF file's weights.
struct SynthTypes {
  DType gate_up = DType::kMXFP4;
  DType down = DType::kMXFP4;
  const char* description = "";  // key `quantization`
};
// Of --dtypes "released" (as conversion stores the released types), "q8_0",
// "q4_k" or "q2".
Result<SynthTypes> ParseSynthTypes(const std::string& name);

// Configuration, tokenizer and token map of a shape as the source of a model
// that lies at `path`.
Result<ModelSource> MakeSynthSource(const SynthShape& shape,
                                    const std::string& path);

// Tensors of architecture deepseek41 in file order, tables last: as GGUF, and
// as a released directory, where several tensors may be one GGUF tensor.
std::vector<SynthTensor> PlanSynthGguf(const ModelConfig& config,
                                       const SynthTypes& types);
std::vector<SynthTensor> PlanSynthReleased(const ModelConfig& config);

// DeepSeek V4 Flash, architecture deepseek4: GGUF only.
struct SynthV4 {
  std::string name;
  std::vector<uint32_t> layers;  // of the preset, that were kept
  uint32_t experts = 0;
};
Result<SynthV4> MakeSynthV4(const SynthCut& cut);
std::vector<SynthTensor> PlanSynthV4(const SynthV4& shape,
                                     const SynthTypes& types);
Status AddSynthV4Keys(const SynthV4& shape, const SynthTypes& types,
                      GgufWriter* writer);

}  // namespace ecphory
