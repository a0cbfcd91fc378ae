// The argument PATH of the commands about Engram tables, and its companions.
#pragma once

#include <CLI/App.hpp>

#include "ecphory/engram_tables.h"

namespace ecphory::cli {

// PATH, --config, --more-tables, --eos.
void AddTableInput(CLI::App& command, TableInput* input);
// kInvalidArgument when PATH is missing.
Status CheckTableInput(const TableInput& input);

}  // namespace ecphory::cli
