// Memory of the process's own, in large pages where the system has them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ecphory/status.h"

namespace ecphory {

// Pages are zero, and come when they are first touched: where the system has
// several memory nodes, from the node of the thread that touches them.
class AnonymousMemory {
 public:
  enum class Pages : uint8_t { kSmall, kHuge };

  AnonymousMemory() = default;
  // Aligned to 2 MiB. kHuge advises the system to give pages of that size; one
  // that has none gives small ones. kResourceExhausted names the bytes.
  static Result<AnonymousMemory> Map(size_t bytes, Pages pages);
  ~AnonymousMemory();
  AnonymousMemory(AnonymousMemory&& other) noexcept;
  AnonymousMemory& operator=(AnonymousMemory&& other) noexcept;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }  // a multiple of 2 MiB

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// Advises the system to give large pages to memory that is yet to be touched:
// to what of it fills them, so that no more of it comes than that.
void AdviseHugePages(void* memory, size_t bytes);

}  // namespace ecphory
