#include "prompt.h"

#include <unistd.h>

#include "output.h"

namespace ecphory::cli {

namespace {

// More text than any context holds.
constexpr size_t kMaxPromptBytes = size_t{1} << 28;

}  // namespace

Result<std::string> ReadPromptFromStandardInput() {
  if (isatty(STDIN_FILENO) == 1) {
    return InvalidArgument(
        "no text: give it as an argument (-p TEXT for run), or pipe it into "
        "standard input");
  }
  ECPHORY_ASSIGN_OR_RETURN(std::string text,
                           ReadStandardInput(kMaxPromptBytes));
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

Result<std::vector<int32_t>> EncodePrompt(const Model& model,
                                          const std::string& text) {
  const Tokenizer* tokenizer = model.tokenizer();
  if (tokenizer == nullptr) {
    return Unsupported(
        "%s: the model has no tokenizer; give ids with --tokens (tokenize, "
        "logits) or put tokenizer.json beside config.json",
        model.info().path.c_str());
  }
  EncodeOptions options;
  options.add_bos = tokenizer->data().add_bos;
  return tokenizer->Encode(text, options);
}

}  // namespace ecphory::cli
