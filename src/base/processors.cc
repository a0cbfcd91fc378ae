#include "base/processors.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <string_view>
#include <thread>
#include <utility>

#include "base/quote.h"

namespace ecphory {

namespace {

// Far above any machine's; keeps a range from filling the memory.
constexpr int kMaxProcessor = 65535;

// "3-5" as first and last; false when it is no number or range.
bool ParseRange(std::string_view text, int* first, int* last) {
  const char* const end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, *first);
  if (error != std::errc() || *first < 0) return false;
  *last = *first;
  if (at == end) return true;
  if (*at != '-') return false;
  const auto [after, last_error] = std::from_chars(at + 1, end, *last);
  return last_error == std::errc() && after == end && *last >= 0 &&
         at + 1 != end && at[1] != '-';
}

// "0-3,8" of ascending numbers.
std::string ListText(const std::vector<int>& processors) {
  std::string text;
  for (size_t i = 0; i < processors.size();) {
    size_t end = i + 1;
    while (end < processors.size() &&
           processors[end] == processors[end - 1] + 1) {
      ++end;
    }
    text += (text.empty() ? "" : ",") + std::to_string(processors[i]);
    if (end - i > 1) text += "-" + std::to_string(processors[end - 1]);
    i = end;
  }
  return text;
}

// The lowest of `allowed` in a list of ranges; -1 where there is none.
int LowestOf(const std::string& list, const std::vector<int>& allowed) {
  for (const int processor : allowed) {
    for (size_t at = 0; at < list.size();) {
      const size_t comma = std::min(list.find(',', at), list.size());
      int first = 0, last = 0;
      if (ParseRange(list.substr(at, comma - at), &first, &last) &&
          first <= processor && processor <= last) {
        return processor;
      }
      at = comma + 1;
    }
  }
  return -1;
}

Status AddProcessor(int processor, const std::vector<int>& allowed,
                    std::vector<int>* list) {
  if (std::find(list->begin(), list->end(), processor) != list->end()) {
    return InvalidArgument("processor %d is given twice", processor);
  }
  if (!std::binary_search(allowed.begin(), allowed.end(), processor)) {
    return InvalidArgument("processor %d: this process may run on %s",
                           processor, ListText(allowed).c_str());
  }
  list->push_back(processor);
  return {};
}

}  // namespace

size_t AvailableProcessors() {
  const size_t allowed = AllowedProcessors().size();
  if (allowed > 0) return allowed;
  return std::max(1u, std::thread::hardware_concurrency());
}

std::vector<int> AllowedProcessors() {
  std::vector<int> processors;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) processors.push_back(i);
  }
  return processors;
}

Result<std::vector<int>> ParseProcessorList(const std::string& list,
                                            const std::vector<int>& allowed) {
  std::vector<int> processors;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    const std::string part = list.substr(at, comma - at);
    int first = 0, last = 0;
    if (!ParseRange(part, &first, &last) || last > kMaxProcessor) {
      return InvalidArgument("%s, expected processors such as 0-3,8",
                             Quoted(part).c_str());
    }
    if (last < first) {
      return InvalidArgument("%s runs backwards, expected %d-%d",
                             Quoted(part).c_str(), last, first);
    }
    for (int i = first; i <= last; ++i) {
      ECPHORY_RETURN_IF_ERROR(AddProcessor(i, allowed, &processors));
    }
    at = comma + 1;
  }
  return processors;
}

// A processor comes in the second half when a lower one of its core is allowed
// too.
std::vector<int> CoresFirst(const std::vector<int>& allowed,
                            const std::string& root) {
  std::vector<int> order, siblings;
  for (const int processor : allowed) {
    std::ifstream file(root + "/sys/devices/system/cpu/cpu" +
                       std::to_string(processor) +
                       "/topology/thread_siblings_list");
    std::string list;
    std::getline(file, list);
    const int first = LowestOf(list, allowed);
    (first >= 0 && first < processor ? siblings : order).push_back(processor);
  }
  order.insert(order.end(), siblings.begin(), siblings.end());
  return order;
}

Status BindThread(pthread_t thread, int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (processor >= 0 && processor < CPU_SETSIZE) {
    CPU_SET(static_cast<size_t>(processor), &set);
  }
  const int error = pthread_setaffinity_np(thread, sizeof(set), &set);
  if (error == 0) return {};
  return InvalidArgument("processor %d: cannot run a thread there: %s",
                         processor, std::strerror(error));
}

Result<ThreadBinding> ThreadBinding::Bind(int processor) {
  cpu_set_t before;
  CPU_ZERO(&before);
  const int error =
      pthread_getaffinity_np(pthread_self(), sizeof(before), &before);
  if (error != 0) {
    return InvalidArgument("cannot ask where this thread may run: %s",
                           std::strerror(error));
  }
  ECPHORY_RETURN_IF_ERROR(BindThread(pthread_self(), processor));
  ThreadBinding binding;
  binding.before_ = before;
  return binding;
}

ThreadBinding::~ThreadBinding() {
  if (!before_) return;
  // Refused only when no processor of `before` is left to this process, which
  // then moves its threads itself.
  (void)pthread_setaffinity_np(pthread_self(), sizeof(*before_), &*before_);
}

ThreadBinding::ThreadBinding(ThreadBinding&& other) noexcept
    : before_(std::exchange(other.before_, std::nullopt)) {}

ThreadBinding& ThreadBinding::operator=(ThreadBinding&& other) noexcept {
  std::swap(before_, other.before_);
  return *this;
}

}  // namespace ecphory
