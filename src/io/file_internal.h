// What the implementations behind io/file.h share.
#pragma once

#include <cstdint>
#include <string>

#include "ecphory/status.h"
#include "io/unique_fd.h"

namespace ecphory {

struct OpenedFile {
  UniqueFd fd;
  uint64_t size = 0;
};

// Opens `path` for reading; anything but a regular file is refused.
Result<OpenedFile> OpenRegularFile(const std::string& path);

// kCorrupt unless [offset, offset + count) lies within `size` bytes.
Status CheckRange(const std::string& path, uint64_t size, uint64_t offset,
                  uint64_t count);

// The directory that holds `path`; "." for a bare name.
std::string DirectoryOf(const std::string& path);

// Makes the names in the directory that holds `path` durable.
Status SyncDirectoryOf(const std::string& path);

}  // namespace ecphory
