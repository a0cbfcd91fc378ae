// What a long job has finished, kept so that a killed one can go on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ecphory/status.h"
#include "io/unique_fd.h"

namespace ecphory::tables {

// A file of one-line records, each with its checksum. A record is on the disk
// when Append returns; one that was being written when the process or the
// machine stopped is dropped at the next start. Not thread-safe.
//
//   XXH3-64 of the text, 16 hex digits, space, text, newline
//
// The first text is "ecphory-journal 1 " and the job's signature: a journal is
// of use to the same job only.
class Journal {
 public:
  // An existing journal. kNotFound without one; kInvalidArgument when it is
  // another job's, or no journal at all.
  static Result<std::unique_ptr<Journal>> Open(const std::string& path,
                                               const std::string& signature);
  // An empty one, which replaces what is there in one step.
  static Result<std::unique_ptr<Journal>> Create(const std::string& path,
                                                 const std::string& signature);

  // Whether the file is a journal, of whatever job.
  static bool IsOne(const std::string& path);

  const std::vector<std::string>& records() const { return records_; }
  // `text` is one line.
  Status Append(const std::string& text);
  Status Remove();

 private:
  Journal() = default;
  Status Load(const std::string& bytes, const std::string& signature);

  std::string path_;
  UniqueFd fd_;
  std::vector<std::string> records_;
};

}  // namespace ecphory::tables
