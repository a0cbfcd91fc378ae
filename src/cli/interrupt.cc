#include "interrupt.h"

#include <unistd.h>

#include <csignal>

#include "exit_code.h"

namespace ecphory::cli {

namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

void OnSignal(int) {
  if (g_interrupted.exchange(true)) _exit(kExitCancelled);
}

}  // namespace

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  // No SA_RESTART: waiting for standard input must end too.
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool Interrupted() { return g_interrupted.load(); }

std::atomic<bool>* InterruptFlag() { return &g_interrupted; }

}  // namespace ecphory::cli
