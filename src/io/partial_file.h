// Names of files that a signal handler may have to remove.
#pragma once

#include <string>

namespace ecphory {

// From now on RemovePartialFiles() (ecphory/partial_files.h) removes the file,
// until it is forgotten. Of very many at a time, and of very long names, the
// rest are not remembered. Thread-safe.
void RememberPartialFile(const std::string& path);
void ForgetPartialFile(const std::string& path);

}  // namespace ecphory
