// HTML that every section of a report is made of. Texts are escaped here.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace ecphory::trace {

// A cell of a table; numbers are set right.
std::string Cell(const std::string& text, bool number = true);
// A table's head: the first column names rows, the others are numbers.
std::string Head(const std::vector<std::string>& names);
// What the colours of a plot stand for: name and index (page.h).
std::string Key(const std::vector<std::pair<std::string, size_t>>& names);
// `plot` is HTML.
std::string Figure(const std::string& title, const std::string& plot);

}  // namespace ecphory::trace
