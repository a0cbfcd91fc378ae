// ecphory engram trace: which rows a text wakes, and how wide the gates open.
#include <array>
#include <cstdio>
#include <memory>

#include "ecphory/engram_trace.h"
#include "engram_commands.h"
#include "file_text.h"
#include "flags.h"
#include "interrupt.h"
#include "output.h"
#include "prompt.h"
#include "terminal.h"
#include "token_input.h"

namespace ecphory::cli {

namespace {

constexpr char kFooter[] = R"(
Of each token: its piece, id and compressed id, the n-grams that end there, the
rows it reads in each Engram layer, and, from a forward pass, each stream's
gate, how far the memory moves the stream (|gate v| / |h|), and the cosine of
the two. Without -p, -f and --tokens the text is read from standard input.

--html writes one self-contained page that colours the text by gate.

Examples:
  ecphory engram trace -m model.gguf -p "The lynx is a cat." --html trace.html
  ecphory engram trace -m model.gguf --tokens 1,2,3 --no-gates --long
  ecphory engram trace -m model.gguf -f story.txt --limit 500 --json)";

// Where there is no terminal to ask.
constexpr uint32_t kDefaultWidth = 100;

// More text than any trace takes.
constexpr size_t kMaxTextBytes = size_t{1} << 28;

struct TraceFlags {
  ModelFlags model;
  std::string text;
  std::string file;
  std::string tokens;
  std::string image_mask_file;
  std::string tokenizer;
  std::string html;
  uint32_t limit = 2048;
  bool has_text = false;
  bool has_tokens = false;
  bool no_gates = false;
  bool every_column = false;
  bool json = false;
};

Status CheckFlags(const TraceFlags& flags) {
  ECPHORY_RETURN_IF_ERROR(CheckModelFlags(flags.model));
  const int inputs = (flags.has_text ? 1 : 0) + (flags.has_tokens ? 1 : 0) +
                     (flags.file.empty() ? 0 : 1);
  if (inputs > 1) {
    return InvalidArgument(
        "more than one of -p, -f and --tokens is given, expected one of them");
  }
  if (flags.html.empty()) return {};
  return CheckTextFile(flags.html,
                       std::array{flags.model.path, flags.file, flags.tokenizer,
                                  flags.image_mask_file})
      .WithContext("--html");
}

Result<std::string> Text(const TraceFlags& flags) {
  if (flags.has_text) return flags.text;
  if (!flags.file.empty()) return ReadFileText(flags.file, kMaxTextBytes);
  return ReadPromptFromStandardInput();
}

Result<std::vector<int32_t>> Ids(const TraceFlags& flags,
                                 const EngramTracer& tracer) {
  if (flags.has_tokens) return ParseTokenList(flags.tokens);
  const Tokenizer* tokenizer = tracer.tokenizer();
  if (tokenizer == nullptr) {
    return Unsupported(
        "%s: the model has no tokenizer; give one with --tokenizer, or ids "
        "with --tokens",
        flags.model.path.c_str());
  }
  ECPHORY_ASSIGN_OR_RETURN(const std::string text, Text(flags));
  EncodeOptions options;
  options.add_bos = tokenizer->data().add_bos;
  return tokenizer->Encode(text, options);
}

Result<EngramTrace> MakeTrace(const TraceFlags& flags) {
  EngramTracerOptions open;
  open.model = flags.model.options;
  open.weights = !flags.no_gates;
  open.tokenizer = flags.tokenizer;
  ECPHORY_ASSIGN_OR_RETURN(const auto tracer,
                           EngramTracer::Open(flags.model.path, open));
  if (tracer->model() != nullptr && tracer->model()->engram_io().fallback) {
    std::fprintf(stderr, "[Engram: %s]\n",
                 tracer->model()->engram_io().reason.c_str());
  }
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, Ids(flags, *tracer));
  EngramTraceOptions options;
  options.limit = flags.limit;
  options.cancel = InterruptFlag();
  std::vector<uint8_t> mask;
  if (!flags.image_mask_file.empty()) {
    ECPHORY_ASSIGN_OR_RETURN(mask,
                             ReadImageMask(flags.image_mask_file, ids.size()));
    options.image_mask = mask;
  }
  return tracer->Trace(ids, options);
}

Status RunTrace(const TraceFlags& flags) {
  ECPHORY_RETURN_IF_ERROR(CheckFlags(flags));
  ECPHORY_ASSIGN_OR_RETURN(const EngramTrace trace, MakeTrace(flags));
  if (!flags.html.empty()) {
    ECPHORY_RETURN_IF_ERROR(WriteTextFile(flags.html, EngramTraceHtml(trace)));
  }
  if (flags.json) return Print(EngramTraceJson(trace));
  if (!flags.html.empty()) {
    return PrintLines(
        Format("wrote %s: %zu of %llu tokens\n", flags.html.c_str(),
               trace.tokens.size(),
               static_cast<unsigned long long>(trace.tokens_given)));
  }
  EngramTraceTextOptions options;
  options.width = TerminalWidth(kDefaultWidth);
  options.every_column = flags.every_column;
  return Print(EngramTraceText(trace, options));
}

void AddInputFlags(CLI::App& command, TraceFlags* flags) {
  AddPath(command, "-f,--file", &flags->file, "FILE",
          "Read the text from FILE");
  AddPath(command, "--tokenizer", &flags->tokenizer, "FILE",
          "A tokenizer.json in place of the model's own");
  AddPath(command, "--image-mask-file", &flags->image_mask_file, "FILE",
          "A .npy array, one value a token: non-zero = image position");
  AddInteger(command, "--limit", &flags->limit, 1, kMaxTraceTokens,
             "Trace the first so many tokens (default: 2048; with gates at "
             "most the model's context)");
  command.add_flag("--no-gates", flags->no_gates,
                   "Addresses only: no weight and no table is opened");
}

}  // namespace

void AddEngramTraceCommand(CLI::App& group, Action* action) {
  auto flags = std::make_shared<TraceFlags>();
  CLI::App* command = group.add_subcommand(
      "trace", "Show the rows a text wakes and how wide the gates open");
  command->footer(kFooter);
  AddModelFlags(*command, &flags->model);
  CLI::Option* text =
      AddText(*command, "-p,--prompt", &flags->text, "TEXT", "The text");
  CLI::Option* tokens = AddText(*command, "--tokens", &flags->tokens, "IDS",
                                "Token ids between commas, in place of a text");
  AddInputFlags(*command, flags.get());
  AddPath(*command, "--html", &flags->html, "FILE", "Write the page");
  command->add_flag("--long", flags->every_column,
                    "A line for each row: remainder, prime, offset");
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([=] {
    flags->has_text = text->count() > 0;
    flags->has_tokens = tokens->count() > 0;
    *action = [=] { return RunTrace(*flags); };
  });
}

}  // namespace ecphory::cli
