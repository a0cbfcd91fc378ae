// The subcommands of `ecphory engram`, as commands.h has those of `ecphory`.
#pragma once

#include <CLI/App.hpp>

#include "commands.h"

namespace ecphory::cli {}  // namespace ecphory::cli
