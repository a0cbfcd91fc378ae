// What lies under a path.
#pragma once

#include <string>

namespace ecphory {

// Also true for a link to nothing: opening it then says what is missing.
bool PathExists(const std::string& path);
bool IsDirectory(const std::string& path);

}  // namespace ecphory
