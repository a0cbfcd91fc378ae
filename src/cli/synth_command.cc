// ecphory synth: a model of released shape with random weights.
#include <chrono>
#include <memory>

#include "commands.h"
#include "ecphory/synth.h"
#include "flags.h"
#include "interrupt.h"
#include "output.h"
#include "progress.h"
#include "sizes.h"

namespace ecphory::cli {

namespace {

constexpr char kFooter[] = R"(
To measure and to test on without the released files: every tensor has its
released name, shape and type, and values that keep activations of ordinary
size through all layers (docs/synth.md says how). What it writes opens like any
model, tokenizer included; its text is noise. The same flags give the same bytes
on every machine.

A cut with --layers keeps layers that differ: two of v41-flash (14 and 20) have
Engram, a KV source of ratio 2 and of ratio 1, index and candidate source.

Examples:
  ecphory synth --layers 2 --experts 32 -o cut.gguf --dtypes q4_k
  ecphory synth --layers 4 --experts 16 -o cut       # a released directory
  ecphory synth --preset mini -o mini.gguf
  ecphory synth -o full.gguf --dtypes q2 --dry-run   # 366 GB: what it would be)";

struct SynthModelFlags {
  SynthModelOptions options;
  uint32_t engram_rows = 0;
  bool dry_run = false;
  bool json = false;
};

Json FactsJson(const SynthModelFlags& flags, const SynthModelFacts& facts,
               double seconds) {
  const SynthModelOptions& options = flags.options;
  Json json{{"output", options.output},
            {"written", !flags.dry_run},
            {"preset", options.preset},
            {"architecture", facts.architecture},
            {"format", facts.format},
            {"dtypes", options.dtypes},
            {"seed", options.seed},
            {"layers", facts.layers},
            {"tensors", facts.tensors},
            {"tensor_bytes", facts.tensor_bytes},
            {"engram_bytes", facts.engram_bytes}};
  if (!flags.dry_run) json["seconds"] = seconds;
  return json;
}

std::string FactsText(const SynthModelFlags& flags,
                      const SynthModelFacts& facts, double seconds) {
  std::string layers;
  for (const uint32_t layer : facts.layers) {
    layers += " " + std::to_string(layer);
  }
  std::string text = Format(
      "%s %s: %s, %s tensors of %s (%s bytes)",
      flags.dry_run ? "would write" : "wrote", flags.options.output.c_str(),
      facts.architecture.c_str(), Grouped(facts.tensors).c_str(),
      HumanBytes(facts.tensor_bytes).c_str(),
      Grouped(facts.tensor_bytes).c_str());
  if (facts.engram_bytes > 0) {
    text += ", Engram tables " + HumanBytes(facts.engram_bytes) + " of it";
  }
  if (!flags.dry_run) text += Format(", in %.1f s", seconds);
  return text + "\n  layers of " + flags.options.preset + ":" + layers + "\n";
}

Result<SynthModelFacts> Write(const SynthModelFlags& flags) {
  SynthModelOptions options = flags.options;
  options.engram_rows = flags.engram_rows;
  if (options.output.empty()) {
    return InvalidArgument(
        "-o is missing, expected a .gguf file or a directory to write");
  }
  if (flags.dry_run) return PlanSynthModel(options);
  Progress progress("writing " + options.output);
  options.progress = [&](uint64_t done, uint64_t total) {
    progress.Show(done, total);
    return !Interrupted();
  };
  return SynthModel(options);
}

Status RunSynthModel(const SynthModelFlags& flags) {
  const auto start = std::chrono::steady_clock::now();
  ECPHORY_ASSIGN_OR_RETURN(const SynthModelFacts facts, Write(flags));
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - start;
  if (flags.json) return PrintJson(FactsJson(flags, facts, seconds.count()));
  return PrintLines(FactsText(flags, facts, seconds.count()));
}

void AddShapeFlags(CLI::App& command, SynthModelFlags* flags) {
  SynthModelOptions& options = flags->options;
  AddChoice<std::string>(
      command, "--preset", &options.preset,
      {{"v41-flash", "v41-flash"},
       {"v41-narrow", "v41-narrow"},
       {"v4-flash", "v4-flash"},
       {"mini", "mini"}},
      "The shape (default: v41-flash); v4-flash is for other "
      "engines");
  AddInteger(command, "--layers", &options.layers, 1, 4096,
             "Layers to keep (default: all)");
  AddInteger(command, "--experts", &options.experts, 1, 65536,
             "Routed experts a layer (default: the preset's)");
  AddInteger(command, "--engram-rows", &flags->engram_rows, 1, UINT32_MAX,
             "About so many rows a table (default: the preset's; with --layers "
             "at most 2000000)");
  AddChoice<std::string>(command, "--dtypes", &options.dtypes,
                         {{"released", "released"},
                          {"q8_0", "q8_0"},
                          {"q4_k", "q4_k"},
                          {"q2", "q2"}},
                         "Types of the weights: released (FP8, FP4; in GGUF "
                         "Q8_0, MXFP4), or, in GGUF only, experts in q8_0, "
                         "q4_k or q2 (default: released)");
}

}  // namespace

void AddSynthCommand(CLI::App& app, Action* action) {
  auto flags = std::make_shared<SynthModelFlags>();
  SynthModelOptions& options = flags->options;
  CLI::App* command = app.add_subcommand(
      "synth", "Write a model of released shape with random weights");
  command->footer(kFooter);
  AddShapeFlags(*command, flags.get());
  AddPath(*command, "-o,--output", &options.output, "PATH",
          "What to write: a file if the name ends in .gguf, else a directory "
          "of safetensors");
  AddSeed(*command, "--seed", &options.seed,
          "Seed of the weights (default: 1)");
  command->add_flag("--overwrite", options.overwrite,
                    "Replace the .gguf file when it exists");
  command->add_flag("--dry-run", flags->dry_run,
                    "Say what would be written, and write nothing");
  AddInteger(*command, "--threads", &options.threads, 1, 1024,
             "Threads (default: the processors)");
  command->add_flag("--json", flags->json, "Print the result as JSON");
  command->callback([=] { *action = [=] { return RunSynthModel(*flags); }; });
}

}  // namespace ecphory::cli
