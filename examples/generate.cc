// A whole program around the library: opens a model, continues a prompt, and
// says what went wrong when something does.
//
//   generate MODEL "the prompt"
#include <ecphory/generate.h>

#include <cstdio>
#include <string>

namespace {

ecphory::Status ContinueText(const std::string& path,
                             const std::string& prompt) {
  ECPHORY_ASSIGN_OR_RETURN(const auto model, ecphory::Model::Open(path, {}));
  const ecphory::Tokenizer* tokenizer = model->tokenizer();
  if (tokenizer == nullptr) {
    return ecphory::Unsupported("%s: no tokenizer", path.c_str());
  }
  ECPHORY_ASSIGN_OR_RETURN(const auto ids, tokenizer->Encode(prompt));
  ECPHORY_ASSIGN_OR_RETURN(const auto session,
                           ecphory::Session::Create(model, {}));

  ecphory::GenerateOptions options;
  options.max_tokens = 64;
  options.sampler.temperature = 0;  // greedy
  options.on_text = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  ECPHORY_ASSIGN_OR_RETURN(
      const auto result, ecphory::Generate(*session, *tokenizer, ids, options));
  std::printf("\n[%zu tokens, %llu Engram rows, stopped: %s]\n",
              result.tokens.size(),
              static_cast<unsigned long long>(result.stats.engram_rows),
              ecphory::StopReasonName(result.reason));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]);
    return 2;
  }
  const ecphory::Status status = ContinueText(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
