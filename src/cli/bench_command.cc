// ecphory bench: operators and models, held against the machine's bounds.
#include <memory>

#include "bench_output.h"
#include "commands.h"
#include "ecphory/bench.h"
#include "flags.h"
#include "interrupt.h"
#include "output.h"
#include "prefill_flags.h"
#include "progress.h"

namespace ecphory::cli {

namespace {

constexpr char kFooter[] = R"(
Measures first what this machine does at best with so many threads: reading,
copying, multiply-adds. 'share' is the time that the bytes take at that
bandwidth, or the arithmetic at that peak, over the time it took.

With --ops every operator at the shapes of the released model, with weights that
rotate through more memory than any cache holds. With -m a model as a whole: a
prompt, and steps of one token at each --context. The caches are then filled
with random rows, so that no long prefill is needed; bytes are those of the
weights and rows that a step touched. With --sequences N a step of N sequences
together is timed too, a token of each.

Best on an otherwise idle machine. docs/bench.md explains every figure.

Examples:
  ecphory bench --ops
  ecphory bench -m model.gguf --context 1024,65536
  ecphory bench -m model.gguf --sequences 32
  ecphory bench --ops --filter matvec/Q8_0 --threads 1
  ecphory bench --ops --quick --json > bench.json)";

// What --quick stands for: enough to see that everything runs.
constexpr float kQuickSeconds = 0.02f;
constexpr uint32_t kQuickRounds = 3;

constexpr uint32_t kMaxContext = 1u << 30;
constexpr uint64_t kMaxWorkingSet = uint64_t{1024} << 30;

struct BenchFlags {
  ModelFlags model;
  BenchOptions options;
  float seconds = 0.2f;
  std::optional<uint64_t> working_set;
  bool ops = false;
  bool quick = false;
  bool list = false;
  bool json = false;
};

Status PrintNames(const BenchFlags& flags) {
  std::vector<std::string> names;
  std::string lines;
  for (const std::string& name : BenchFigures(flags.options.sizes)) {
    if (name.find(flags.options.filter) == std::string::npos) continue;
    names.push_back(name);
    lines += name + "\n";
  }
  if (names.empty()) {
    return InvalidArgument("no figure's name holds '%s'",
                           flags.options.filter.c_str());
  }
  if (flags.json) return PrintJson(BenchNamesJson(names));
  return Print(lines);
}

Status RunBenchCommand(const BenchFlags& flags) {
  if (flags.list) return PrintNames(flags);
  if (!flags.ops && flags.model.path.empty()) {
    return InvalidArgument("nothing to measure, expected --ops, -m or both");
  }
  if (!flags.ops && !flags.options.filter.empty()) {
    return InvalidArgument(
        "--filter chooses operators, expected --ops or --list");
  }
  BenchOptions options = flags.options;
  options.ops = flags.ops;
  options.model = flags.model.path;
  options.model_options = flags.model.options;
  options.seconds = flags.quick ? kQuickSeconds : flags.seconds;
  if (flags.quick) options.rounds = kQuickRounds;
  options.working_set = flags.working_set.value_or(0);
  Progress progress("measuring");
  options.progress = [&](const std::string& what, uint64_t done,
                         uint64_t total) {
    progress.Show(done, total, ", " + what);
    return !Interrupted();
  };
  ECPHORY_ASSIGN_OR_RETURN(const BenchReport report, RunBench(options));
  progress.Erase();
  return flags.json ? PrintJson(BenchJson(report))
                    : PrintLines(BenchText(report));
}

void AddContexts(CLI::App& app, BenchOptions* options) {
  const auto set = [=](const std::vector<std::string>& texts) {
    options->contexts.emplace();
    for (const std::string& text : texts) {
      options->contexts->push_back(
          ParseInteger("--context", text, 0, kMaxContext));
    }
  };
  AddList(app, "--context", set, "N,...",
          "With -m: time a step of one token after so many (default: 1024, or "
          "as many as the model has room for)");
}

void AddOpsFlags(CLI::App& command, BenchFlags* flags) {
  BenchOptions& options = flags->options;
  command.add_flag("--ops", flags->ops, "Operators at a model's shapes");
  AddChoice<BenchSizes>(
      command, "--sizes", &options.sizes,
      {{"released", BenchSizes::kReleased}, {"mini", BenchSizes::kMini}},
      "Whose shapes: the released model's, or the bundled one's (default: "
      "released)");
  AddText(command, "--filter", &options.filter, "TEXT",
          "Only operators whose name holds this; --list shows the names");
  command.add_flag("--list", flags->list,
                   "Print the operators' names, measure nothing");
  AddChoice<BenchPages>(
      command, "--pages", &options.pages,
      {{"small", BenchPages::kSmall}, {"huge", BenchPages::kHuge}},
      "Pages under operators' weights and inputs, whose bandwidth a model is "
      "held to as well (default: small, as a mapped file has)");
  AddBytes(command, "--working-set", &flags->working_set, kMaxWorkingSet,
           "Memory that weights rotate over (default: 256M, or four times the "
           "last-level cache; 16M of mini)");
}

void AddPassFlags(CLI::App& command, BenchFlags* flags) {
  BenchOptions& options = flags->options;
  AddModelFlags(command, &flags->model);
  AddActivationsFlag(command, &options.session.activations);
  AddContexts(command, &options);
  AddInteger(command, "--sequences", &options.sequences, 1, kMaxSequences,
             "With -m: time steps of so many sequences together as well");
  const auto set_prompt = [&options](const std::string& text) {
    options.prompt = ParseInteger("--prompt", text, 1, kMaxChunk);
  };
  command
      .add_option_function<std::string>(
          "--prompt", set_prompt,
          "With -m: tokens of the prompt (default: 512, or as many as the "
          "model has room for)")
      ->type_name("N");
  // Operators are measured with the others, --threads and --device.
  for (const char* flag :
       {"--activations", "--context", "--sequences", "--prompt", "--weights",
        "--engram-place", "--engram-io", "--engram-cache",
        "--engram-io-threads", "--engram-depth"}) {
    command.get_option(flag)->needs(command.get_option("-m"));
  }
}

}  // namespace

void AddBenchCommand(CLI::App& app, Action* action) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = app.add_subcommand(
      "bench", "Measure operators and models against the machine's bounds");
  command->footer(kFooter);
  AddOpsFlags(*command, flags.get());
  AddPassFlags(*command, flags.get());
  CLI::Option* rounds =
      AddInteger(*command, "--repetitions", &flags->options.rounds, 3, 1000,
                 "Rounds whose median is shown (default: 7)");
  CLI::Option* seconds = AddReal(
      *command, "--seconds", &flags->seconds,
      [](float value) { return value > 0 && value <= 600; },
      "more than 0, up to 600", "About how long a figure takes (default: 0.2)");
  AddPath(*command, "--sgemm", &flags->options.sgemm, "FILE",
          "OpenBLAS or oneDNN to measure beside (default: the system's)");
  command
      ->add_flag("--quick", flags->quick,
                 "A tenth of the time, to see that all runs")
      ->excludes(rounds)
      ->excludes(seconds);
  command->add_flag("--json", flags->json, "Print JSON with the conditions");
  command->callback([=] { *action = [=] { return RunBenchCommand(*flags); }; });
}

}  // namespace ecphory::cli
