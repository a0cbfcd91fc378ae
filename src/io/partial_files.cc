#include "ecphory/partial_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>

namespace ecphory {

namespace {

constexpr size_t kNameBytes = 1024;

// Fixed memory and lock-free: a handler may run while any other code does.
enum State : int {
  kFree,
  kTaken,  // its name is being written, or a handler removes what it names
  kBusy,   // what it names is being made or gets its final name
  kNamed,
};
struct Slot {
  std::atomic<int> state{kFree};
  char name[kNameBytes];
};
Slot g_slots[64];
std::atomic<bool> g_ending{false};  // RemovePartialFiles() has begun
static_assert(std::atomic<int>::is_always_lock_free &&
                  std::atomic<bool>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

bool Change(Slot* slot, int from, int to) {
  return slot->state.compare_exchange_strong(from, to);
}

// A busy slot with the name; null when it cannot be remembered.
Slot* Take(const std::string& path) {
  if (path.size() >= kNameBytes) return nullptr;
  for (Slot& slot : g_slots) {
    if (!Change(&slot, kFree, kTaken)) continue;
    std::memcpy(slot.name, path.c_str(), path.size() + 1);
    slot.state.store(kBusy);
    return &slot;
  }
  return nullptr;
}

Slot* Find(const std::string& path) {
  for (Slot& slot : g_slots) {
    // Only who has named it forgets it, so that the name stays as it is.
    if (slot.state.load() == kNamed && path == slot.name) return &slot;
  }
  return nullptr;
}

// `call` on the name of a busy slot, which is `then` where it succeeds and
// `otherwise` where it does not.
int Call(const std::string& path, const PartialFileCall& call, Slot* slot,
         State then, State otherwise) {
  int result = -1;
  int error = ECANCELED;
  if (!g_ending.load()) {
    result = call(path.c_str());
    error = errno;
  }
  if (slot != nullptr) slot->state.store(result >= 0 ? then : otherwise);
  errno = error;
  return result;
}

// ---- what follows runs in a signal handler: async-signal-safe calls only ----

void Pause() {
  const timespec millisecond = {0, 1'000'000};
  (void)::nanosleep(&millisecond, nullptr);
}

// getdents64, because readdir may allocate.
void RemoveFilesIn(int directory) {
  alignas(dirent64) char entries[4096];
  for (;;) {
    const long bytes =
        ::syscall(SYS_getdents64, directory, entries, sizeof(entries));
    if (bytes <= 0) return;
    for (long at = 0; at < bytes;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      (void)::unlinkat(directory, entry->d_name, 0);  // not "." nor ".."
      at += entry->d_reclen;
    }
  }
}

void RemoveDirectoryOfFiles(const char* name) {
  // Again where a thread has given one of the files another name meanwhile.
  for (int i = 0; i < 100 && ::rmdir(name) != 0 && errno == ENOTEMPTY; ++i) {
    const int directory = ::open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return;
    RemoveFilesIn(directory);
    ::close(directory);
  }
}

void RemoveNamed(Slot* slot) {
  // The handler may have interrupted the very thread that is busy: no longer
  // than that takes in all other cases.
  for (int i = 0; i < 100 && slot->state.load() == kBusy; ++i) Pause();
  if (!Change(slot, kNamed, kTaken) && !Change(slot, kBusy, kTaken)) return;
  if (::unlink(slot->name) != 0 && errno == EISDIR) {
    RemoveDirectoryOfFiles(slot->name);
  }
}

}  // namespace

int MakePartialFile(const std::string& path, const PartialFileCall& make) {
  return Call(path, make, Take(path), kNamed, kFree);
}

int FinishPartialFile(const std::string& path, const PartialFileCall& rename) {
  Slot* slot = Find(path);
  if (slot != nullptr && !Change(slot, kNamed, kBusy)) {
    errno = ECANCELED;
    return -1;
  }
  return Call(path, rename, slot, kFree, kNamed);
}

void ForgetPartialFile(const std::string& path) {
  if (Slot* slot = Find(path); slot != nullptr) Change(slot, kNamed, kFree);
}

void RemovePartialFiles() {
  g_ending.store(true);
  for (Slot& slot : g_slots) RemoveNamed(&slot);
}

}  // namespace ecphory
