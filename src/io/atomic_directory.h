// A directory of files (no directories inside) that appears whole or not at
// all.
#pragma once

#include <memory>
#include <string>

#include "ecphory/status.h"

namespace ecphory {

// Files are written into a temporary directory beside the target, which gets
// its name in Commit(). Without Commit() the destructor removes it and all that
// is in it.
class AtomicDirectory {
 public:
  // kInvalidArgument when `path` exists (an empty directory is allowed).
  static Result<std::unique_ptr<AtomicDirectory>> Create(
      const std::string& path);
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  // Where to write meanwhile.
  const std::string& path() const { return temporary_; }
  // A failure below path() as one below the target: people are told the name
  // that they gave, not one that is gone.
  Status Named(const Status& status) const;
  // Call once, last.
  Status Commit();

 private:
  AtomicDirectory() = default;
  std::string target_;
  std::string temporary_;  // empty once committed
};

}  // namespace ecphory
