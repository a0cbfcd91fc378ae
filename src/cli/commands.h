// The subcommands. Each adds itself to the parser and, when chosen, leaves
// what to do in `action`.
#pragma once

#include <CLI/App.hpp>
#include <functional>

#include "ecphory/status.h"

namespace ecphory::cli {

using Action = std::function<Status()>;

void AddRunCommand(CLI::App& app, Action* action);
void AddInfoCommand(CLI::App& app, Action* action);
void AddTokenizeCommand(CLI::App& app, Action* action);
void AddLogitsCommand(CLI::App& app, Action* action);
void AddConvertCommand(CLI::App& app, Action* action);
void AddBenchCommand(CLI::App& app, Action* action);
void AddSynthCommand(CLI::App& app, Action* action);
// A group: its own commands are in engram_commands.h.
void AddEngramCommand(CLI::App& app, Action* action);

}  // namespace ecphory::cli
