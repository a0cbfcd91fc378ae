#include "model/compute_threads.h"

#include <string>

#include "base/quote.h"

namespace ecphory {

namespace {

// More would only add wake-ups: no released shape splits finer.
constexpr uint32_t kMaxThreads = 1024;

Result<std::vector<int>> ProcessorsOf(const std::string& affinity) {
  if (affinity == "none") return std::vector<int>();
  const std::vector<int> allowed = AllowedProcessors();
  if (affinity == "auto") return CoresFirst(allowed);
  Result<std::vector<int>> list = ParseProcessorList(affinity, allowed);
  if (list.ok()) return list;
  return list.status().WithContext("--cpu-affinity " + Quoted(affinity));
}

size_t CountOf(const ModelOptions& options, size_t listed) {
  if (options.threads != 0) return options.threads;
  return listed != 0 ? listed : AvailableProcessors();
}

}  // namespace

Result<ComputeThreads> ChooseThreads(const ModelOptions& options) {
  if (options.threads > kMaxThreads) {
    return InvalidArgument("threads = %u: expected 0 (all processors) to %u",
                           options.threads, kMaxThreads);
  }
  ComputeThreads threads;
  ECPHORY_ASSIGN_OR_RETURN(threads.processors,
                           ProcessorsOf(options.cpu_affinity));
  threads.count = CountOf(options, threads.processors.size());
  if (threads.processors.empty()) return threads;
  if (threads.count > threads.processors.size()) {
    return InvalidArgument(
        "--threads %zu: --cpu-affinity %s names %zu processor%s", threads.count,
        options.cpu_affinity.c_str(), threads.processors.size(),
        threads.processors.size() == 1 ? "" : "s");
  }
  threads.processors.resize(threads.count);
  return threads;
}

Result<std::unique_ptr<ThreadPool>> StartThreads(
    const ComputeThreads& threads) {
  return ThreadPool::Create(threads.count, threads.processors);
}

Result<ThreadBinding> BindCaller(const ComputeThreads& threads) {
  if (threads.processors.empty()) return ThreadBinding();
  return ThreadBinding::Bind(threads.processors.front());
}

}  // namespace ecphory
