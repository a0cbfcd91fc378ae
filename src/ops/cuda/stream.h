// Where the CUDA operators run: the current device, its stream, and what went
// wrong. Free of CUDA headers, so that any C++ file may include it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ecphory/status.h"

namespace ecphory::cuda {

struct DeviceFacts {
  int ordinal = 0;
  std::string name;  // "NVIDIA H200"
  int major = 0;     // compute capability
  int minor = 0;
  int code_version = 0;  // 10 * capability that the kernels were compiled for
  bool wgmma_code = false;  // compiled for 9.0a
  int multiprocessors = 0;
  uint64_t memory_bytes = 0;
  uint64_t free_bytes = 0;
  uint64_t l2_bytes = 0;
};

// How many devices there are; kUnsupported says why there is none: no driver,
// one too old for this build, none visible.
Result<int> CountDevices();
// kInvalidArgument for a number that does not exist, kUnsupported for a device
// older than compute capability 8.0 or one that this build has no code for.
Result<DeviceFacts> DescribeDevice(int ordinal);

// One device and the order of work on it. Operators called by a thread run on
// the stream that the thread has entered, and there must be one. Not
// thread-safe: one thread at a time.
class Stream {
 public:
  static Result<std::unique_ptr<Stream>> Create(int ordinal);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Makes it this thread's stream for as long as the scope lives.
  class Scope {
   public:
    explicit Scope(Stream& stream);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Stream* outer_;
  };

  // Takes so much scratch for `purpose` now. kResourceExhausted.
  Status ReserveScratch(const void* purpose, size_t bytes);

  // Waits for all work so far. The first error since the last call: of a
  // launch, or of a kernel while it ran.
  Status Synchronize();

  const DeviceFacts& device() const { return device_; }

  struct Handles;  // stream.cuh
  Handles& handles() { return *handles_; }

 private:
  Stream();
  DeviceFacts device_;
  std::unique_ptr<Handles> handles_;
};

// Waits for what the calling thread's operators have begun; see
// Stream::Synchronize.
Status SynchronizeThread();

}  // namespace ecphory::cuda
