// From a text the user gave to the ids a session begins with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ecphory/model.h"

namespace ecphory::cli {

// Standard input without its final newline, which belongs to the shell. A
// terminal is no text: kInvalidArgument says how to give one.
Result<std::string> ReadPromptFromStandardInput();

// Ids of `text`, after the begin-of-text token where the model wants one.
// Special tokens spelt in the text are ordinary text. kUnsupported when the
// model carries no tokenizer.
Result<std::vector<int32_t>> EncodePrompt(const Model& model,
                                          const std::string& text);

}  // namespace ecphory::cli
