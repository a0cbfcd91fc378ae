// Makes writes fail past a size while it lives: a full disk without a disk.
#pragma once

#include <sys/resource.h>

#include <csignal>

#include "base/check.h"

namespace ecphory {

// For tests only: process-wide.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    // The default action of SIGXFSZ ends the process; ignored, write(2) fails
    // with EFBIG.
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ECPHORY_CHECK(::getrlimit(RLIMIT_FSIZE, &old_limit_) == 0);
    rlimit limit = old_limit_;
    limit.rlim_cur = bytes;
    ECPHORY_CHECK(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_limit_);
    std::signal(SIGXFSZ, old_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_limit_{};
  void (*old_handler_)(int) = nullptr;
};

}  // namespace ecphory
