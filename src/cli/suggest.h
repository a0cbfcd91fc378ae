// "did you mean": the known name nearest to a mistyped one.
#pragma once

#include <string>
#include <vector>

namespace ecphory::cli {

// Insertions, deletions, replacements and swaps of neighbours between a and b.
size_t EditDistance(const std::string& a, const std::string& b);

// Empty when nothing is near enough to be meant.
std::string Nearest(const std::string& name,
                    const std::vector<std::string>& known);

}  // namespace ecphory::cli
