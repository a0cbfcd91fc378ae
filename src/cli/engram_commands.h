// The subcommands of `ecphory engram`, as commands.h has those of `ecphory`.
#pragma once

#include <CLI/App.hpp>

#include "commands.h"

namespace ecphory::cli {

void AddEngramInfoCommand(CLI::App& group, Action* action);
void AddEngramVerifyCommand(CLI::App& group, Action* action);
void AddEngramPackCommand(CLI::App& group, Action* action);
void AddEngramBenchCommand(CLI::App& group, Action* action);
void AddEngramSynthCommand(CLI::App& group, Action* action);
void AddEngramTraceCommand(CLI::App& group, Action* action);
void AddEngramReportCommand(CLI::App& group, Action* action);

}  // namespace ecphory::cli
