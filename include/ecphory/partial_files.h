// Outputs that are not finished. Everything here is thread-safe. Of more than
// 64 names at a time, and of names of 1,024 bytes or more, the rest are not
// remembered.
#pragma once

#include <functional>
#include <string>

#include "ecphory/export.h"

namespace ecphory {

// Does to the file what open(), mkdir() or rename() does: below 0, with errno,
// for failure.
using PartialFileCall = std::function<int(const char* path)>;

// Makes a partial file, or a partial directory of files, and remembers it.
// ECANCELED once RemovePartialFiles() has begun: there is then no moment at
// which something is made and stays.
ECPHORY_EXPORT int MakePartialFile(const std::string& path,
                                   const PartialFileCall& make);

// Gives it its final name and forgets it; ECANCELED as above.
ECPHORY_EXPORT int FinishPartialFile(const std::string& path,
                                     const PartialFileCall& rename);

// For one that its owner has removed.
ECPHORY_EXPORT void ForgetPartialFile(const std::string& path);

// Removes what has been written so far of all files and directories that would
// be removed if their writing failed; those that can be continued stay. For a
// process that ends at once: it may be called in a signal handler, and from
// then on no such file is begun or finished (kCancelled).
ECPHORY_EXPORT void RemovePartialFiles();

}  // namespace ecphory
