// Calls of an operator that are made at once: in a pass over several sequences
// each has caches and a position of its own.
#pragma once

#include <cstddef>
#include <span>

#include "base/thread_pool.h"

namespace ecphory {

// One call, or several of which none reads what another writes. They differ in
// pointers, positions and counts only: all else is that of the first. A result
// is the same, bit for bit on the processor, in whatever company it is
// computed. Lies in the host's memory and is read before the operator returns.
template <typename Args>
class Calls {
 public:
  Calls(const Args& one) : calls_(&one, 1) {}
  Calls(std::span<const Args> several) : calls_(several) {}

  size_t size() const { return calls_.size(); }
  const Args& operator[](size_t i) const { return calls_[i]; }
  auto begin() const { return calls_.begin(); }
  auto end() const { return calls_.end(); }

 private:
  std::span<const Args> calls_;
};

// An operator that makes one call after the other.
template <auto kOne, typename Args>
void OneByOne(const Calls<Args>& calls, ThreadPool& pool) {
  for (const Args& args : calls) kOne(args, pool);
}

}  // namespace ecphory
