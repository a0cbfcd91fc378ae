// The processors that this process may run on.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "ecphory/status.h"

namespace ecphory {

// Their number; at least 1.
size_t AvailableProcessors();

// Their numbers, ascending: what taskset or a control group left. Empty where
// the system does not say.
std::vector<int> AllowedProcessors();

// "0-3,8,10-11" -> 0 1 2 3 8 10 11, in the order given. kInvalidArgument names
// what is no number, a range that runs backwards, a processor given twice, and
// those outside `allowed`.
Result<std::vector<int>> ParseProcessorList(const std::string& list,
                                            const std::vector<int>& allowed);

// All of `allowed`, one of each core before the second of any, so that the
// first so many threads share no core while others idle. `root` is put before
// /sys (tests).
std::vector<int> CoresFirst(const std::vector<int>& allowed,
                            const std::string& root = "");

// The thread runs on this processor alone from now on.
Status BindThread(pthread_t thread, int processor);

// Binds the calling thread; lets it run where it could before when destroyed,
// which must be on the same thread.
class ThreadBinding {
 public:
  ThreadBinding() = default;  // of nothing
  static Result<ThreadBinding> Bind(int processor);
  ~ThreadBinding();
  ThreadBinding(ThreadBinding&& other) noexcept;
  ThreadBinding& operator=(ThreadBinding&& other) noexcept;

 private:
  std::optional<cpu_set_t> before_;
};

}  // namespace ecphory
