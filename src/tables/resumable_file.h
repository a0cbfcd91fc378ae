// A large output that survives being killed at any moment.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "ecphory/status.h"
#include "io/unique_fd.h"
#include "tables/journal.h"

namespace ecphory::tables {

// The bytes go to PATH.partial, what is done to PATH.partial.journal. The order
// on disk is: a chunk's data, then its record; all records, then the record
// that the file was verified, then the name PATH. So a journal never promises
// more than the file holds, and PATH appears only when it is whole and checked.
class ResumableFile {
 public:
  struct Options {
    // What makes the bytes: a partial output of another signature is refused.
    std::string signature;
    uint64_t total_bytes = 0;
    bool overwrite = false;  // replace PATH at the end
  };
  // Starts, or goes on where a killed run stopped. Refuses: PATH exists (unless
  // `overwrite`), a .partial that is not ours, another process at work on it,
  // too little disk for what is missing.
  static Result<std::unique_ptr<ResumableFile>> Open(const std::string& path,
                                                     const Options& options);

  // Only PATH is left: a run was killed after its last step but one.
  bool complete() const { return complete_; }
  // Every chunk is written and was found intact on disk.
  bool verified() const { return verified_; }
  // Sums of the chunks that are written, by number.
  const std::map<size_t, uint64_t>& chunks() const { return chunks_; }
  const std::string& partial_path() const { return partial_; }

  // Thread-safe for ranges that do not overlap.
  Status Write(uint64_t offset, std::span<const uint8_t> bytes) const;
  // Makes the file's data so far durable, then the records.
  Status Record(const std::map<size_t, uint64_t>& chunks);
  // Zeros up to `bytes`, and nothing behind.
  Status SetSize(uint64_t bytes) const;
  Status RecordVerified();
  // Gives the file its name and removes the journal. Call once, last.
  Status Publish();
  // Removes .partial and journal.
  Status Discard();

 private:
  ResumableFile() = default;
  Status OpenPartial();
  Status OpenJournal(const std::string& signature, bool empty);
  Status ReadRecords();
  Status ReadRecord(const std::string& record);
  Status CheckSpace(uint64_t total_bytes) const;

  std::string path_;
  std::string partial_;
  std::string journal_path_;
  bool overwrite_ = false;
  bool complete_ = false;
  bool verified_ = false;
  UniqueFd fd_;
  std::unique_ptr<Journal> journal_;
  std::map<size_t, uint64_t> chunks_;
};

// A plain file whose name nobody can take from an input: kInvalidArgument when
// `output` is one of `inputs`, under whatever name, another part of one, or a
// file of a directory among them.
Status CheckNoInput(const std::string& output,
                    std::span<const std::string> inputs);

}  // namespace ecphory::tables
