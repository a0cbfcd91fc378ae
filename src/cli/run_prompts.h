// ecphory run --prompts-file: several texts at once.
#pragma once

#include <cstdint>
#include <string>

#include "ecphory/generate.h"
#include "flags.h"

namespace ecphory::cli {

struct PromptsRun {
  ModelFlags model;
  SessionOptions session;
  GenerateOptions generate;  // of every prompt
  std::string file;
  uint32_t sequences = 32;  // at a time
  bool json = false;
  bool quiet = false;
};

Status RunPrompts(const PromptsRun& run);

// Ids of `text`, at least one.
Result<std::vector<int32_t>> PromptIds(const Model& model,
                                       const std::string& text);
// Whether a prompt's tokens fit into a session's context; names --ctx.
Status CheckContext(size_t tokens, uint64_t context);

}  // namespace ecphory::cli
