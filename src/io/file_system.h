// What kind of file system a file lies on.
#pragma once

#include <cstdint>
#include <string>

namespace ecphory {

struct FileSystemKind {
  // "ext4", "xfs", "tmpfs", ...; "unknown (0x1234)" for magic numbers that are
  // not listed.
  std::string name;
  bool network = false;  // reads cross a network
  bool memory = false;   // the files are memory already
};

// `magic` is statfs(2)'s f_type.
FileSystemKind FileSystemByMagic(uint64_t magic);
// Of an open file; name "unknown" when the kernel does not tell.
FileSystemKind FileSystemOf(int descriptor);

}  // namespace ecphory
