// A disk of a given size, for the tests of full disks.
#pragma once

#include <sys/mount.h>

#include <string>

#include "io/test_directory.h"

namespace ecphory {

// A memory file system in a directory of its own. Needs root: check mounted().
class SmallDisk {
 public:
  explicit SmallDisk(size_t bytes) {
    const std::string options = "size=" + std::to_string(bytes);
    mounted_ = ::mount("none", directory_.path().c_str(), "tmpfs", 0,
                       options.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount(directory_.path().c_str());
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  const TestDirectory& directory() const { return directory_; }

 private:
  TestDirectory directory_;
  bool mounted_ = false;
};

}  // namespace ecphory
