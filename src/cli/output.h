// Standard output and input, with every failure noticed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "ecphory/status.h"

namespace ecphory::cli {

// Object keys keep the order in which they were set.
using Json = nlohmann::ordered_json;

// Writes all of `text` to standard output at once. After a failure (disk full,
// reader gone) every further call returns it again.
Status Print(std::string_view text);
// Print for lines that hold names from files or arguments: whatever a terminal
// could obey is shown as \xNN.
Status PrintLines(std::string_view text);
// Indented, one final newline; bytes that are no UTF-8 become U+FFFD.
Status PrintJson(const Json& json);
// The reader of standard output has closed it.
bool OutputClosed();

// printf to a string.
std::string Format(const char* format, ...) ECPHORY_PRINTF(1, 2);

// All of standard input, at most `max_bytes`.
Result<std::string> ReadStandardInput(size_t max_bytes);

}  // namespace ecphory::cli
