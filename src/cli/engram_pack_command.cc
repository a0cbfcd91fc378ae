// ecphory engram pack: codes and scales of every row put together.
#include <memory>

#include "ecphory/engram_tables.h"
#include "engram_commands.h"
#include "engram_input.h"
#include "engram_output.h"
#include "flags.h"
#include "output.h"

namespace ecphory::cli {

namespace {

constexpr char kFooter[] = R"(
A released model keeps the codes and the scales of a row in two places, which
takes two reads a row. pack writes them together: one read a row. An output that
ends in .gguf gets all Engram keys and the token map and opens as a memory of
its own; any other name gets rows and nothing else. Every source row is checked
on the way, and the output is read back before it gets its name. A run that was
stopped, killed or out of disk goes on when it is started again.

The shards of a Qwen-style per-layer n-gram table become a GGUF sidecar of
Q8_0 or BF16 rows.

Examples:
  ecphory engram pack DeepSeek-V4.1-Flash -o memory.gguf
  ecphory engram pack model.gguf -o memory.gguf        # the tables of a model
  ecphory engram pack DeepSeek-V4.1-Flash -o rows.bin --write-manifest rows.xxh
  ecphory engram pack Qwen3.8-Flash-Next -o table.gguf --codec q8_0
  ecphory engram pack --config config.json --table e1.bin --scale s1.bin
      --table e14.bin --scale s14.bin -o rows.bin)";

struct PackFlags {
  PackOptions options;
  bool json = false;
};

Status RunPack(const PackFlags& flags) {
  PackOptions options = flags.options;
  const bool parts = !options.tables.empty() || !options.scales.empty();
  if (!parts) ECPHORY_RETURN_IF_ERROR(CheckTableInput(options.input));
  if (parts && !options.input.path.empty()) {
    return InvalidArgument("PATH and --table are given, expected one of them");
  }
  if (parts && options.input.config.empty()) {
    return InvalidArgument(
        "--config is missing, expected a config.json or its directory");
  }
  if (options.output.empty()) {
    return InvalidArgument("-o is missing, expected the file to write");
  }
  PhaseProgress progress(options.output);
  options.progress = progress.Callback();
  ECPHORY_ASSIGN_OR_RETURN(const WrittenTables written, PackTables(options));
  progress.Erase();
  return flags.json ? PrintJson(WrittenJson(written))
                    : PrintLines(WrittenText(written));
}

}  // namespace

void AddEngramPackCommand(CLI::App& group, Action* action) {
  auto flags = std::make_shared<PackFlags>();
  PackOptions& options = flags->options;
  CLI::App* command = group.add_subcommand(
      "pack", "Write tables so that one read brings a row");
  command->footer(kFooter);
  AddTableInput(*command, &options.input);
  command
      ->add_option("--table", options.tables,
                   "Codes of a layer in a file of their own; once a layer")
      ->type_name("FILE");
  command
      ->add_option("--scale", options.scales,
                   "Scales of a layer in a file of their own; once a layer")
      ->type_name("FILE");
  AddPath(*command, "-o,--output", &options.output, "FILE",
          "The file to write: .gguf, or raw rows");
  AddChoice<std::string>(
      *command, "--codec", &options.codec,
      {{"row264", "row264"}, {"bf16", "bf16"}, {"q8_0", "q8_0"}},
      "How rows hold their values: row264 of Engram tables, q8_0 (default) or "
      "bf16 of a per-layer table");
  AddPath(*command, "--write-manifest", &options.write_manifest, "FILE",
          "Write the checksums of the output, for verify");
  command->add_flag("--overwrite", options.overwrite,
                    "Replace the file when it exists");
  AddInteger(*command, "--threads", &options.threads, 1, 64,
             "Threads (default: the processors, at most 8)");
  command->add_flag("--json", flags->json, "Print the result as JSON");
  command->callback([=] { *action = [=] { return RunPack(*flags); }; });
}

}  // namespace ecphory::cli
