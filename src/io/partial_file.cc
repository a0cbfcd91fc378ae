#include "io/partial_file.h"

#include <unistd.h>

#include <atomic>
#include <cstring>

#include "ecphory/partial_files.h"

namespace ecphory {

namespace {

constexpr size_t kNameBytes = 1024;

// Fixed memory: a handler may run while any other code does.
enum State : int { kFree, kTaken, kNamed };
struct Slot {
  std::atomic<int> state{kFree};
  char name[kNameBytes];
};
Slot g_slots[64];
static_assert(std::atomic<int>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

}  // namespace

void RememberPartialFile(const std::string& path) {
  if (path.size() >= kNameBytes) return;
  for (Slot& slot : g_slots) {
    int expected = kFree;
    if (!slot.state.compare_exchange_strong(expected, kTaken)) continue;
    std::memcpy(slot.name, path.c_str(), path.size() + 1);
    slot.state.store(kNamed);
    return;
  }
}

void ForgetPartialFile(const std::string& path) {
  for (Slot& slot : g_slots) {
    // Only who has named it forgets it, so that the name stays as it is.
    if (slot.state.load() != kNamed || path != slot.name) continue;
    slot.state.store(kFree);
    return;
  }
}

void RemovePartialFiles() {
  for (Slot& slot : g_slots) {
    if (slot.state.load() == kNamed) (void)::unlink(slot.name);
  }
}

}  // namespace ecphory
