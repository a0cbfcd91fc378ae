// ecphory engram synth: tables of valid rows that follow from a seed.
#include <memory>

#include "ecphory/engram_tables.h"
#include "engram_commands.h"
#include "engram_output.h"
#include "flags.h"
#include "output.h"

namespace ecphory::cli {

namespace {

constexpr char kFooter[] = R"(
For tests and benchmarks without a model: a table of any size, the same bytes
for the same flags. Any row can be computed alone. A name that ends in .gguf
gives a file with all Engram keys and a token map, which the other tools open as
they open a model; .safetensors gives the released names; any other name gives
rows and nothing else. A run that was stopped or killed goes on when it is
started again with the same flags.

Examples:
  ecphory engram synth -o mini.gguf --layout mini
  ecphory engram synth -o big.gguf --rows 40000000 --seed 7
  ecphory engram synth -o pair.safetensors --layout mini --codec pair
  ecphory engram synth -o full.gguf --sparse      # 203 GB of addresses, 6 MB
  ecphory engram synth -o real.gguf --tokenizer tokenizer.json)";

// One page of rows in so many bytes when --sparse gives no number.
constexpr uint64_t kSparseStride = uint64_t{256} << 20;

struct SynthFlags {
  SynthOptions options;
  uint32_t rows = 0;
  uint32_t vocab_size = 0;
  bool sparse = false;
  bool json = false;
};

Status RunSynth(const SynthFlags& flags) {
  SynthOptions options = flags.options;
  if (options.output.empty()) {
    return InvalidArgument("-o is missing, expected the file to write");
  }
  options.rows = flags.rows;
  options.vocab_size = flags.vocab_size;
  if (flags.sparse) options.sparse_bytes = kSparseStride;
  PhaseProgress progress(options.output);
  options.progress = progress.Callback();
  ECPHORY_ASSIGN_OR_RETURN(const WrittenTables written, SynthTables(options));
  progress.Erase();
  return flags.json ? PrintJson(WrittenJson(written))
                    : PrintLines(WrittenText(written));
}

}  // namespace

void AddEngramSynthCommand(CLI::App& group, Action* action) {
  auto flags = std::make_shared<SynthFlags>();
  SynthOptions& options = flags->options;
  CLI::App* command =
      group.add_subcommand("synth", "Make tables of valid rows from a seed");
  command->footer(kFooter);
  AddPath(*command, "-o,--output", &options.output, "FILE",
          "The file to write");
  AddText(*command, "--layout", &options.layout, "NAME",
          "released, mini, or a config.json (default: released)");
  AddChoice<std::string>(*command, "--codec", &options.codec,
                         {{"row264", "row264"},
                          {"pair", "pair"},
                          {"bf16", "bf16"},
                          {"q8_0", "q8_0"}},
                         "How rows hold their values (default: row264)");
  AddInteger(*command, "--width", &options.width, 32, 65536,
             "Values a row, a multiple of 32 (default: the layout's)");
  AddInteger(*command, "--rows", &flags->rows, 1, 4294967295,
             "About so many rows a layer; primes decide the exact number");
  AddInteger(*command, "--vocab-size", &flags->vocab_size, 1, 4294967295,
             "The primes' lower bound, engram_vocab_size");
  AddSeed(*command, "--seed", &options.seed, "Of the rows (default: 1)");
  AddPath(*command, "--tokenizer", &options.tokenizer, "FILE",
          "A tokenizer.json to store with its token map (GGUF)");
  command->add_flag("--sparse", flags->sparse,
                    "Write 16 rows in every 256 MiB and leave holes between");
  command->add_flag("--overwrite", options.overwrite,
                    "Replace the file when it exists");
  AddInteger(*command, "--threads", &options.threads, 1, 64,
             "Threads (default: the processors, at most 8)");
  command->add_flag("--json", flags->json, "Print the result as JSON");
  command->callback([=] { *action = [=] { return RunSynth(*flags); }; });
}

}  // namespace ecphory::cli
