// Names of files and directories that are not finished, for a signal handler
// that may have to remove them: RemovePartialFiles() (ecphory/partial_files.h).
// All here is thread-safe. Of more than 64 names at a time, and of names of
// 1,024 bytes or more, the rest are not remembered.
#pragma once

#include <functional>
#include <string>

namespace ecphory {

// Does to the file what open(), mkdir() or rename() does: below 0, with errno,
// for failure.
using PartialFileCall = std::function<int(const char* path)>;

// Makes a partial file, or a partial directory of files, and remembers it.
// ECANCELED once RemovePartialFiles() has begun: there is then no moment at
// which something is made and stays.
int MakePartialFile(const std::string& path, const PartialFileCall& make);

// Gives it its final name and forgets it; ECANCELED as above.
int FinishPartialFile(const std::string& path, const PartialFileCall& rename);

// For one that its owner has removed.
void ForgetPartialFile(const std::string& path);

}  // namespace ecphory
