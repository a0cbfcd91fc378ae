// ecphory engram: the group of commands about Engram tables.
#include "engram_commands.h"

namespace ecphory::cli {

namespace {

constexpr char kFooter[] = R"(
The tables hold the rows that a model looks up by n-gram; they stay on disk.

Examples:
  ecphory engram info model.gguf
  ecphory engram verify model.gguf --write-manifest model.gguf.xxh
  ecphory engram pack DeepSeek-V4.1-Flash -o memory.gguf
  ecphory engram bench memory.gguf --text book.txt --svg sweep.svg

'ecphory engram COMMAND --help' explains a command.)";

}  // namespace

void AddEngramCommand(CLI::App& app, Action* action) {
  CLI::App* group = app.add_subcommand(
      "engram", "Look at, check, make and measure Engram tables");
  group->footer(kFooter);
  group->require_subcommand(1);
  AddEngramInfoCommand(*group, action);
  AddEngramVerifyCommand(*group, action);
  AddEngramPackCommand(*group, action);
  AddEngramSynthCommand(*group, action);
  AddEngramBenchCommand(*group, action);
  AddEngramTraceCommand(*group, action);
  AddEngramReportCommand(*group, action);
}

}  // namespace ecphory::cli
