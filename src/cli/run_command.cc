// ecphory run: a prompt in, text out as it comes, one line of facts at the end.
#include <chrono>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "ecphory/generate.h"
#include "flags.h"
#include "interrupt.h"
#include "output.h"
#include "prefill_flags.h"
#include "progress.h"
#include "prompt.h"
#include "run_facts.h"
#include "run_prompts.h"

namespace ecphory::cli {

namespace {

constexpr char kFooter[] = R"(
The text goes to standard output, the facts to standard error. Without -p the
prompt is read from standard input. A model continues its prompt; the prompt is
not repeated. The same seed gives the same text; --temp 0 takes the best token
always, whatever the seed and the thread count.
Ctrl-C ends the text cleanly; a second one ends the program.

With --prompts-file several texts are continued together, a token of each a
step, and shown when all have ended: a line "== prompt N: why it ended", N from
0, then the text. Each has a sampler of its own that starts from --seed: its
text is the one that it would be alone.

Examples:
  ecphory run -m model.gguf -p "remember:"
  ecphory run -m model.gguf -p "Once" -n 200 --temp 0.7 --top-p 0.9 --seed 3
  ecphory run -m model.gguf --stop "." --json < prompt.txt
  ecphory run -m model.gguf --prompts-file prompts.txt --sequences 16 --temp 0)";

// Below this a prompt is read before anyone looks for progress.
constexpr uint64_t kProgressTokens = 2048;
constexpr uint32_t kMaxTokens = 1u << 30;

struct RunFlags {
  ModelFlags model;
  SessionOptions session;
  GenerateOptions generate;
  PrefillFlags prefill;
  std::string prompt;
  bool has_prompt = false;
  std::string prompts_file;
  uint32_t sequences = 32;
  bool no_engram = false;
  bool json = false;
  bool quiet = false;
  std::chrono::steady_clock::time_point start =
      std::chrono::steady_clock::now();
};

Result<std::string> PromptText(const RunFlags& flags) {
  if (flags.has_prompt) return flags.prompt;
  return ReadPromptFromStandardInput();
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

// Text goes out as it comes; when it cannot, generation stops.
void ConnectOutput(GenerateOptions* generate, bool json, Progress* progress,
                   MemoryWatch* memory) {
  generate->cancel = InterruptFlag();
  generate->on_prompt_progress = [=](uint64_t done, uint64_t total) {
    memory->Sample();
    progress->Show(done, total);
  };
  generate->on_text = [=](std::string_view text) {
    progress->Erase();
    if (!json && !Print(text).ok()) InterruptFlag()->store(true);
  };
}

Status Finish(const RunFlags& flags, const RunFacts& facts) {
  if (flags.json) {
    ECPHORY_RETURN_IF_ERROR(PrintJson(facts.ToJson()));
  } else {
    ECPHORY_RETURN_IF_ERROR(Print("\n"));
    if (!flags.quiet) std::fprintf(stderr, "%s\n", facts.ToLine().c_str());
  }
  // No message: the facts have said it.
  const bool cancelled = facts.result.reason == StopReason::kCancelled;
  return cancelled ? Status(StatusCode::kCancelled, "") : Status();
}

Status RunGenerate(const RunFlags& flags) {
  ECPHORY_RETURN_IF_ERROR(CheckModelFlags(flags.model));
  SessionOptions options = flags.session;
  options.engram = !flags.no_engram;
  ECPHORY_ASSIGN_OR_RETURN(options.prefill, flags.prefill.Mode());
  if (!flags.prompts_file.empty()) {
    return RunPrompts({.model = flags.model,
                       .session = options,
                       .generate = flags.generate,
                       .file = flags.prompts_file,
                       .sequences = flags.sequences,
                       .json = flags.json,
                       .quiet = flags.quiet});
  }
  ECPHORY_ASSIGN_OR_RETURN(const std::string text, PromptText(flags));
  ECPHORY_ASSIGN_OR_RETURN(const auto model, OpenModel(flags.model));
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt,
                           PromptIds(*model, text));
  ECPHORY_ASSIGN_OR_RETURN(const auto session, Session::Create(model, options));
  ECPHORY_RETURN_IF_ERROR(CheckContext(prompt.size(), session->context()));

  Progress progress("reading the prompt", kProgressTokens);
  RunFacts facts;
  GenerateOptions generate = flags.generate;
  ConnectOutput(&generate, flags.json, &progress, &facts.memory);
  const double load_seconds = SecondsSince(flags.start);
  ECPHORY_ASSIGN_OR_RETURN(
      facts.result, Generate(*session, *model->tokenizer(), prompt, generate));
  facts.memory.Sample();
  facts.model = model.get();
  facts.plan = model->PlanMemory(options);
  if (flags.model.options.backend.compare(0, 4, "cuda") == 0) {
    ECPHORY_ASSIGN_OR_RETURN(facts.device, PlanDevice(*model, options));
  }
  facts.prefill = options.prefill;
  facts.start_to_first_token = load_seconds + facts.result.first_token_seconds;
  facts.seed = generate.sampler.seed;
  return Finish(flags, facts);
}

void AddSamplingFlags(CLI::App& command, SamplerOptions* sampler) {
  AddReal(
      command, "--temp", &sampler->temperature,
      [](float x) { return x >= 0 && x <= 100; }, "0 (greedy) to 100",
      "Temperature; 0 is greedy (default: 0.8)");
  AddInteger(command, "--top-k", &sampler->top_k, 0, UINT32_MAX,
             "Keep the N best tokens; 0 is off (default: 0)");
  AddReal(
      command, "--top-p", &sampler->top_p,
      [](float x) { return x > 0 && x <= 1; }, "more than 0, at most 1 (off)",
      "Keep the fewest best tokens that reach this mass (default: 1)");
  AddReal(
      command, "--min-p", &sampler->min_p,
      [](float x) { return x >= 0 && x <= 1; }, "0 (off) to 1",
      "Drop tokens below this share of the best one (default: 0.05)");
  AddReal(
      command, "--repeat-penalty", &sampler->repeat_penalty,
      [](float x) { return x >= 0.01f && x <= 100; }, "0.01 to 100 (1 is off)",
      "More than 1 discourages the last 64 tokens (default: 1)");
  AddSeed(command, "--seed", &sampler->seed,
          "Seed of the random draws (default: 0)");
}

}  // namespace

void AddRunCommand(CLI::App& app, Action* action) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "Continue a prompt");
  command->footer(kFooter);
  AddModelFlags(*command, &flags->model);
  CLI::Option* prompt = AddText(*command, "-p,--prompt", &flags->prompt, "TEXT",
                                "The text to continue");
  CLI::Option* prompts =
      AddPath(*command, "--prompts-file", &flags->prompts_file, "FILE",
              "Continue several texts at once: one a line, or in a file named "
              ".jsonl a JSON string or {\"prompt\": ...} a line; empty lines "
              "are skipped")
          ->excludes(prompt);
  AddInteger(*command, "--sequences", &flags->sequences, 1, kMaxSequences,
             "With --prompts-file: texts at a time (default: 32)")
      ->needs(prompts);
  AddInteger(*command, "-n,--max-tokens", &flags->generate.max_tokens, 0,
             kMaxTokens, "Tokens to generate at most (default: 256)");
  AddSamplingFlags(*command, &flags->generate.sampler);
  command
      ->add_option("--stop", flags->generate.stop,
                   "End before this text; may be given several times")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  AddInteger(*command, "--ctx", &flags->session.context, 1, UINT32_MAX,
             "Tokens the session holds (default: 4096, or the model's "
             "maximum where that is less)");
  AddInteger(*command, "--chunk", &flags->session.chunk, 1, kMaxChunk,
             "Prompt tokens per forward pass (default: 256)");
  AddActivationsFlag(*command, &flags->session.activations);
  AddPrefillFlags(*command, &flags->prefill, /*first_pass=*/false);
  command->add_flag("--no-engram", flags->no_engram, "Shut every Engram gate");
  command->add_flag("--json", flags->json,
                    "Print one JSON object at the end, text included");
  command->add_flag("--quiet", flags->quiet, "No line of facts");
  command->callback([=] {
    flags->has_prompt = prompt->count() > 0;
    *action = [=] { return RunGenerate(*flags); };
  });
}

}  // namespace ecphory::cli
