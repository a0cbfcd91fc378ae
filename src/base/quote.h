// Names that come from files, made safe for a one-line message.
#pragma once

#include <string>
#include <string_view>

namespace ecphory {

// 'name' in single quotes; bytes outside printable ASCII, quotes and
// backslashes become \xNN, and text beyond 96 bytes is replaced by "..." and
// the length.
std::string Quoted(std::string_view name);

}  // namespace ecphory
