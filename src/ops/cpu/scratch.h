// Working memory that is kept from call to call, so that operators allocate
// nothing in the steady state.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace ecphory {

// At least `count` uninitialised T, aligned for any vector. The memory belongs
// to the calling thread and to `Purpose`: the next call with the same Purpose
// on this thread returns the same memory. Grows, never shrinks; freed when the
// thread ends.
template <typename Purpose, typename T = float>
T* ThreadScratch(size_t count) {
  constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(T* p) const { ::operator delete(p, kAlign); }
  };
  thread_local std::unique_ptr<T, Free> memory;
  thread_local size_t capacity = 0;
  if (capacity < count) {
    memory.reset();
    memory.reset(static_cast<T*>(::operator new(count * sizeof(T), kAlign)));
    capacity = count;
  }
  return memory.get();
}

}  // namespace ecphory
