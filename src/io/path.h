// What lies under a path.
#pragma once

#include <string>
#include <string_view>

namespace ecphory {

// Also true for a link to nothing: opening it then says what is missing.
bool PathExists(const std::string& path);
bool IsDirectory(const std::string& path);
// Whether the file's name ends in `extension` (".gguf", in lower case), however
// the name writes its letters. A name that is nothing but an extension has
// none.
bool HasExtension(const std::string& path, std::string_view extension);

}  // namespace ecphory
