// An io_uring: set up, torn down, and its two rings by hand.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <span>

#include "ecphory/status.h"

namespace ecphory {

// Submission belongs to one thread at a time, completion to another.
class UringRing {
 public:
  UringRing() = default;
  ~UringRing();
  UringRing(const UringRing&) = delete;
  UringRing& operator=(const UringRing&) = delete;

  // Room for `depth` submissions and at least as many completions.
  Status Open(uint32_t depth);
  // Whether reads may name these files by index; saves a lookup a read.
  bool RegisterFiles(std::span<const int> descriptors);
  // Whether reads into `memory` may be fixed reads of buffer 0.
  bool RegisterMemory(std::span<uint8_t> memory);

  int descriptor() const { return ring_.ring_fd; }

  // The submission that comes `ahead` after the last one published.
  io_uring_sqe* Next(uint32_t ahead);
  // Shows the kernel the next `count` submissions.
  void Publish(uint32_t count);
  // Takes back what was published and the kernel did not take.
  void Withdraw();

  // Moves up to done.size() completions out; returns how many.
  template <typename Completed>
  size_t Take(std::span<Completed> done) {
    const uint32_t head = *ring_.cq.khead;
    const uint32_t ready = io_uring_smp_load_acquire(ring_.cq.ktail) - head;
    const uint32_t count =
        ready < done.size() ? ready : static_cast<uint32_t>(done.size());
    const uint32_t mask = *ring_.cq.kring_mask;
    for (uint32_t i = 0; i < count; ++i) {
      const io_uring_cqe& cqe = ring_.cq.cqes[(head + i) & mask];
      done[i].tag = cqe.user_data;
      done[i].result = cqe.res;
    }
    io_uring_smp_store_release(ring_.cq.khead, head + count);
    return count;
  }

 private:
  Status CheckReadSupported();

  io_uring ring_{};
  bool open_ = false;
};

}  // namespace ecphory
