// Many reads in flight: the seam between the Engram store and the kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ecphory/status.h"

namespace ecphory {

class CachedPages;

// A ring of this depth takes well under a megabyte of the kernel's memory.
inline constexpr uint32_t kMaxQueueDepth = 4096;

// One read. The buffer is the caller's and must stay until the read is reaped.
struct QueuedRead {
  uint32_t file = 0;  // index of a file the queue was made for
  uint32_t bytes = 0;
  uint64_t offset = 0;
  uint8_t* buffer = nullptr;
  uint64_t tag = 0;  // comes back with the completion
};

// What became of it, as the kernel says it: bytes read (perhaps fewer than
// asked for), or a negative errno value. Retries are the caller's.
struct CompletedRead {
  uint64_t tag = 0;
  int32_t result = 0;
};

// One thread at a time may be in Submit and one in Reap; the two may overlap.
// No call allocates.
class ReadQueue {
 public:
  // Reads in flight are waited for: afterwards no buffer is written to.
  virtual ~ReadQueue() = default;

  virtual const char* name() const = 0;  // "uring", "pread", ...
  // Reads that may be in flight at once.
  virtual uint32_t depth() const = 0;
  // Offsets, lengths and buffer addresses of reads of `file` must be multiples
  // of this power of two. 1: anything goes.
  virtual uint32_t alignment(uint32_t file) const = 0;

  // Tells the kernel of memory that most reads will go to, so that it need not
  // look its pages up at every read. Before the first Submit, at most once;
  // `memory` outlives the queue. False: no use here, or refused (locked memory
  // limit); reads work all the same.
  virtual bool RegisterMemory(std::span<uint8_t> memory) {
    (void)memory;
    return false;
  }

  // What the page cache has of `file`, to be taken by any thread without a
  // read, where the queue keeps that: alive as long as the queue. Null: it does
  // not.
  virtual CachedPages* pages(uint32_t file) {
    (void)file;
    return nullptr;
  }

  // Starts a prefix of `reads` and returns its length: fewer than asked for
  // when the queue is full or the kernel takes no more for now. Whoever gets 0
  // with nothing in flight must treat it as a failure. An error: none of these
  // was started.
  virtual Result<size_t> Submit(std::span<const QueuedRead> reads) = 0;

  // Takes completions, in any order. Sleeps until at least `min` (<=
  // done.size(), and <= reads in flight) are there; 0 does not wait.
  virtual Result<size_t> Reap(std::span<CompletedRead> done, size_t min) = 0;
};

}  // namespace ecphory
