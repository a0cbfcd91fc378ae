// The threads that compute: how many, and on which processors.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/processors.h"
#include "base/thread_pool.h"
#include "ecphory/model.h"
#include "ecphory/status.h"

namespace ecphory {

struct ComputeThreads {
  size_t count = 1;
  std::vector<int> processors;  // [count] to bind threads to; empty: none
};

// As options.threads and options.cpu_affinity say. kInvalidArgument names what
// is no processor of this process, and more threads than processors.
Result<ComputeThreads> ChooseThreads(const ModelOptions& options);

// Threads that are bound, but for the caller's: processors[0] is for it.
Result<std::unique_ptr<ThreadPool>> StartThreads(const ComputeThreads& threads);

// Binds the calling thread until the result is destroyed; does nothing where
// threads are not bound.
Result<ThreadBinding> BindCaller(const ComputeThreads& threads);

}  // namespace ecphory
