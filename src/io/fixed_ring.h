// A first-in-first-out queue with room for a fixed number of elements.
#pragma once

#include <cstddef>
#include <vector>

#include "base/check.h"

namespace ecphory {

// Allocates once, in the constructor. Not thread-safe.
template <typename T>
class FixedRing {
 public:
  explicit FixedRing(size_t capacity) : slots_(capacity) {}

  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }
  size_t capacity() const { return slots_.size(); }

  void Push(const T& value) {
    ECPHORY_CHECK(count_ < slots_.size());
    slots_[Wrap(first_ + count_++)] = value;
  }
  T Pop() {
    ECPHORY_CHECK(count_ > 0);
    const T value = slots_[first_];
    first_ = Wrap(first_ + 1);
    --count_;
    return value;
  }

 private:
  size_t Wrap(size_t place) const {
    return place < slots_.size() ? place : place - slots_.size();
  }

  std::vector<T> slots_;
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace ecphory
