// Tensors' bytes on their way into a file: each held to its size, progress
// reported.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "ecphory/status.h"
#include "io/file.h"

namespace ecphory {

class TensorStream {
 public:
  using Sink = std::function<Status(std::span<const uint8_t>)>;
  using Producer = std::function<Status(const Sink& sink)>;
  // Bytes done and in all; false cancels. May be empty.
  using Progress = std::function<bool(uint64_t done, uint64_t total)>;

  // `progress` outlives this.
  TensorStream(AtomicFileWriter* file, std::string path, uint64_t total,
               const Progress& progress)
      : file_(file),
        path_(std::move(path)),
        total_(total),
        progress_(progress) {}

  // Passes on the first error of producer or file. A producer that makes more
  // or less than `bytes` is kInternal.
  Status WriteTensor(const std::string& name, uint64_t bytes,
                     const Producer& producer);
  // kCancelled when `progress` says so.
  Status Report();

 private:
  AtomicFileWriter* const file_;
  const std::string path_;
  const uint64_t total_;
  const Progress& progress_;
  uint64_t reported_ = 0;
};

}  // namespace ecphory
