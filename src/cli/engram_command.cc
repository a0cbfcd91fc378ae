// ecphory engram: the group of commands about Engram tables.
#include "engram_commands.h"

namespace ecphory::cli {

namespace {

constexpr char kFooter[] = R"(
The tables hold the rows that a model looks up by n-gram; they stay on disk.

'ecphory engram COMMAND --help' explains a command.)";

}  // namespace

void AddEngramCommand(CLI::App& app, Action* action) {
  CLI::App* group = app.add_subcommand(
      "engram", "Look at, check, make and measure Engram tables");
  group->footer(kFooter);
  group->require_subcommand(1);
  AddEngramSynthCommand(*group, action);
  AddEngramTraceCommand(*group, action);
  AddEngramReportCommand(*group, action);
}

}  // namespace ecphory::cli
