#include "interrupt.h"

#include <unistd.h>

#include <csignal>

#include "ecphory/partial_files.h"
#include "exit_code.h"

namespace ecphory::cli {

namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

std::atomic<bool> g_ending{false};

void OnSignal(int) {
  if (!g_interrupted.exchange(true)) return;
  // Others come while the second one's handler, perhaps in this very thread,
  // still removes: it ends the process when it has.
  if (g_ending.exchange(true)) return;
  RemovePartialFiles();
  _exit(kExitCancelled);
}

// A page of a mapped file that cannot be read any more.
void OnBusError(int) {
  constexpr char kLine[] =
      "ecphory: i/o error: a model file became shorter or unreadable while it "
      "was in use; run again with the whole file\n";
  const ssize_t ignored = write(STDERR_FILENO, kLine, sizeof(kLine) - 1);
  (void)ignored;
  _exit(ExitCode(StatusCode::kIoError));
}

void Catch(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  // No SA_RESTART: waiting for standard input must end too.
  sigaction(signal, &action, nullptr);
}

// nohup's wish.
bool HangUpIgnored() {
  struct sigaction current = {};
  return sigaction(SIGHUP, nullptr, &current) == 0 &&
         current.sa_handler == SIG_IGN;
}

}  // namespace

void CatchSignals() {
  Catch(SIGINT, OnSignal);
  Catch(SIGTERM, OnSignal);
  if (!HangUpIgnored()) Catch(SIGHUP, OnSignal);
  Catch(SIGBUS, OnBusError);
  Catch(SIGPIPE, SIG_IGN);
  Catch(SIGXFSZ, SIG_IGN);
}

bool Interrupted() { return g_interrupted.load(); }

std::atomic<bool>* InterruptFlag() { return &g_interrupted; }

}  // namespace ecphory::cli
