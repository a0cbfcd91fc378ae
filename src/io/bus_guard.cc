#include "io/bus_guard.h"

#include <ucontext.h>

#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <mutex>

namespace ecphory {

namespace {

struct Guard {
  sigjmp_buf resume;
  uintptr_t begin;
  uintptr_t end;
  Guard* outer;
};

// The handler must not allocate, which the first use of other models may do.
__attribute__((tls_model("initial-exec"))) thread_local Guard* innermost =
    nullptr;

struct sigaction previous;

Guard* GuardOf(uintptr_t address) {
  for (Guard* guard = innermost; guard != nullptr; guard = guard->outer) {
    if (address >= guard->begin && address < guard->end) return guard;
  }
  return nullptr;
}

void HandOn(int signal, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    // A fault comes again at once and then ends the process, with the right
    // address in the core file; a signal that was sent does not.
    ::sigaction(signal, &previous, nullptr);
    if (info->si_code <= 0) ::raise(signal);
  }
}

void OnBusError(int signal, siginfo_t* info, void* context) {
  const bool fault = info->si_code > 0;
  Guard* guard =
      fault ? GuardOf(reinterpret_cast<uintptr_t>(info->si_addr)) : nullptr;
  if (guard == nullptr) return HandOn(signal, info, context);
  innermost = guard->outer;
  // The jump leaves the mask as it is, and whoever put himself in between may
  // block more than we do (ThreadSanitizer blocks all).
  ::pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask,
                    nullptr);
  siglongjmp(guard->resume, 1);
}

Status Install() {
  struct sigaction action {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  if (::sigaction(SIGBUS, &action, &previous) == 0) return Status::Ok();
  return ErrnoError(errno, "cannot install a SIGBUS handler");
}

}  // namespace

Status InstallBusGuard() {
  static std::once_flag once;
  static Status* status = new Status();
  std::call_once(once, [] { *status = Install(); });
  return *status;
}

bool RunGuarded(std::span<const uint8_t> memory, void (*body)(void* context),
                void* context) {
  Guard guard;
  guard.begin = reinterpret_cast<uintptr_t>(memory.data());
  guard.end = guard.begin + memory.size();
  guard.outer = innermost;
  // Without the signal mask: saving it would be a system call.
  if (sigsetjmp(guard.resume, 0) != 0) return false;
  innermost = &guard;
  body(context);
  innermost = guard.outer;
  return true;
}

}  // namespace ecphory
