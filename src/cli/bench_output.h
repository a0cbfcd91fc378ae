// A bench report for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "ecphory/bench.h"
#include "output.h"

namespace ecphory::cli {

std::string BenchText(const BenchReport& report);
// Keys: docs/bench.md.
Json BenchJson(const BenchReport& report);
// Of --list.
Json BenchNamesJson(const std::vector<std::string>& names);

}  // namespace ecphory::cli
