// The seam between the engine and the operating system's files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ecphory/status.h"

namespace ecphory {

// A file opened for reading at any offset. Thread-safe. Errors name the path.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  virtual const std::string& path() const = 0;
  virtual uint64_t size() const = 0;
  // Fills `out` from `offset`; a short file is kCorrupt, never a short read.
  virtual Status ReadExact(uint64_t offset, std::span<uint8_t> out) const = 0;
  // The open file behind it, owned by this object; -1 when there is none and
  // ReadExact is the only way in.
  virtual int descriptor() const { return -1; }
};

// Opens a regular file with pread behind it. Retries EINTR and short reads.
// Anything but a regular file (a directory, device or pipe) is
// kInvalidArgument.
Result<std::shared_ptr<RandomAccessFile>> OpenFile(const std::string& path);

// A RandomAccessFile over bytes in memory (tests, fuzzing). Copies them.
std::shared_ptr<RandomAccessFile> MakeMemoryFile(
    std::string name, std::span<const uint8_t> bytes);

// A read-only mapping of [offset, offset + size) of a file: the pages that hold
// these bytes and no others. Unmapped when destroyed.
class FileMapping {
 public:
  // A range that reaches past the end of the file is kCorrupt.
  static Result<std::shared_ptr<FileMapping>> Map(const std::string& path,
                                                  uint64_t offset,
                                                  uint64_t size);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;
  // The bytes from the requested offset on.
  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  FileMapping() = default;
  void* base_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::span<const uint8_t> bytes_;
};

// Writes a file so that it appears whole or not at all: a temporary beside the
// target, then fsync and rename in Commit(). Without Commit() the temporary is
// removed by the destructor. After an error the only thing left to do is to
// destroy the writer.
class AtomicFileWriter {
 public:
  // Refuses a `path` that exists and is not a regular file. A symbolic link
  // there is replaced, not followed.
  static Result<std::unique_ptr<AtomicFileWriter>> Create(
      const std::string& path);
  ~AtomicFileWriter();
  AtomicFileWriter(const AtomicFileWriter&) = delete;
  AtomicFileWriter& operator=(const AtomicFileWriter&) = delete;
  // Appends; a full disk is kResourceExhausted and names the path.
  Status Write(std::span<const uint8_t> bytes);
  Status WriteZeros(uint64_t count);
  uint64_t size() const { return size_; }
  // Flushes, fsyncs the file, renames it over `path`, fsyncs the directory.
  // Call once, last.
  Status Commit();

 private:
  AtomicFileWriter() = default;
  Status Flush();

  std::string path_;
  std::string temporary_;
  int fd_ = -1;  // -1 once committed
  uint64_t size_ = 0;
  std::vector<uint8_t> buffer_;
};

// Bytes that an unprivileged writer may still put on the file system that
// holds `path` (or its directory, when it does not exist yet).
Result<uint64_t> FreeDiskBytes(const std::string& path);

// The whole file as a string; refuses files larger than `max_bytes`.
Result<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes);

}  // namespace ecphory
