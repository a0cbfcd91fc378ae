#include "io/io_choice.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "io/memory_facts.h"

namespace ecphory {

namespace {

using Clock = std::chrono::steady_clock;

// One measurement of one way; several are taken in turns.
constexpr double kSliceSeconds = 0.05;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string Size(uint64_t bytes) {
  char text[32];
  const double mb = static_cast<double>(bytes) / 1e6;
  if (mb < 1000) {
    std::snprintf(text, sizeof(text), "%.0f MB", std::ceil(mb));
  } else {
    std::snprintf(text, sizeof(text), "%.1f GB", mb / 1000);
  }
  return text;
}

// 74123 -> "74,000": two or three digits are all that such a rate is worth.
std::string Rate(double per_second) {
  const auto n = static_cast<long long>(per_second);
  const long long step = n >= 100000 ? 1000 : n >= 1000 ? 100 : 1;
  std::string digits = std::to_string((n + step / 2) / step * step);
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

// "io_uring, O_DIRECT, depth 256".
std::string Describe(const MadeQueue& made, const QueueOptions& options) {
  const std::string depth = "depth " + std::to_string(made.queue->depth());
  const std::string threads = std::to_string(options.threads) + " threads";
  switch (made.mode) {
    case IoMode::kUring:
      return std::string("io_uring, ") +
             (made.direct ? "O_DIRECT, " : "page cache, ") + depth;
    case IoMode::kBuffered: return "page cache, " + depth;
    default:
      return std::string("pread, ") + (made.direct ? "O_DIRECT, " : "") +
             threads;
  }
}

IoChoice Finish(MadeQueue made, std::string reason) {
  IoChoice choice;
  choice.mode = made.mode;
  choice.direct = made.direct;
  choice.fallback = !made.denied.empty();
  choice.queue = std::move(made.queue);
  choice.reason = std::move(reason);
  return choice;
}

uint64_t TotalBytes(std::span<const TableRange> tables) {
  uint64_t total = 0;
  for (const TableRange& table : tables) {
    if (!CheckedAdd(total, table.bytes, &total)) return UINT64_MAX;
  }
  return total;
}

// The first file for which `test` holds.
template <typename Test>
const TableFile* Find(const IoRequest& request, const Test& test) {
  for (const auto& file : request.files) {
    if (test(*file)) return file.get();
  }
  return nullptr;
}

// A queue of the given way. `why` is said unless something was denied: then
// that is.
Result<IoChoice> Use(const IoRequest& request, IoMode mode,
                     const std::string& why) {
  ECPHORY_ASSIGN_OR_RETURN(MadeQueue made,
                           MakeQueue(mode, request.files, request.queue));
  std::string reason = Describe(made, request.queue) +
                       (made.denied.empty() ? why : ": " + made.denied);
  return Finish(std::move(made), std::move(reason));
}

// Views need no queue.
IoChoice UseView(const IoRequest& request) {
  IoChoice choice;
  choice.mode = request.mode;
  choice.reason = request.mode == IoMode::kMmap
                      ? "mapped, " + Size(TotalBytes(request.tables)) +
                            ", through the page cache (asked for)"
                      : "copied to memory, " +
                            Size(TotalBytes(request.tables)) + " (asked for)";
  return choice;
}

Result<IoChoice> UseAsAsked(const IoRequest& request) {
  const bool view =
      request.mode == IoMode::kMmap || request.mode == IoMode::kRam;
  const TableFile* in_memory =
      Find(request, [](const TableFile& file) { return file.buffered() < 0; });
  if (request.mode == IoMode::kMmap && in_memory != nullptr) {
    ECPHORY_ASSIGN_OR_RETURN(
        IoChoice choice,
        Use(request, IoMode::kPread,
            ": " + in_memory->direct_refusal() + " and cannot be mapped"));
    choice.fallback = true;
    return choice;
  }
  if (view) return UseView(request);
  return Use(request, request.mode, " (asked for)");
}

// A way and what was measured of it.
struct Candidate {
  MadeQueue made;
  std::vector<double> rates;
  Status failure;

  double rate() const {
    if (rates.empty()) return 0;
    double sum = 0;
    for (const double r : rates) sum += r;
    return sum / static_cast<double>(rates.size());
  }
};

void MeasureInTurns(const IoRequest& request, Candidate* a, Candidate* b) {
  IoProbe probe(request.files, request.tables, request.row_bytes);
  const auto start = Clock::now();
  // Each turn takes two slices; the last one must still fit.
  while (SecondsSince(start) + 2 * kSliceSeconds <= request.probe_seconds &&
         !OrderIsClear(a->rates, b->rates)) {
    for (Candidate* candidate : {a, b}) {
      const auto rate =
          probe.Measure(candidate->made.queue.get(), kSliceSeconds);
      if (!rate.ok()) {
        candidate->failure = rate.status();
        return;
      }
      candidate->rates.push_back(*rate);
    }
  }
}

Result<IoChoice> UseFasterDirect(const IoRequest& request) {
  Candidate uring, pread;
  ECPHORY_ASSIGN_OR_RETURN(
      uring.made, MakeQueue(IoMode::kUring, request.files, request.queue));
  if (uring.made.mode != IoMode::kUring) {
    std::string reason =
        Describe(uring.made, request.queue) + ": " + uring.made.denied;
    return Finish(std::move(uring.made), std::move(reason));
  }
  ECPHORY_ASSIGN_OR_RETURN(
      pread.made, MakeQueue(IoMode::kPread, request.files, request.queue));
  MeasureInTurns(request, &uring, &pread);
  const bool uring_wins = !pread.failure.ok() ||
                          (uring.failure.ok() && uring.rate() >= pread.rate());
  Candidate& best = uring_wins ? uring : pread;
  const Candidate& other = uring_wins ? pread : uring;
  std::string reason = Describe(best.made, request.queue) + ": ";
  bool failed = false;
  if (!other.failure.ok()) {
    reason += std::string(IoModeName(other.made.mode)) +
              " failed when it was measured: " + other.failure.message();
    failed = true;
  } else if (!best.failure.ok() || best.rates.empty()) {
    reason += "not measured";
  } else {
    reason += Rate(best.rate()) + " random reads/s measured (" +
              IoModeName(other.made.mode) + " " + Rate(other.rate()) + ")";
  }
  IoChoice choice = Finish(std::move(best.made), std::move(reason));
  choice.fallback = choice.fallback || failed;
  return choice;
}

}  // namespace

bool TablesAreSmall(uint64_t table_bytes, uint64_t available_bytes) {
  return table_bytes <= uint64_t{1} << 30 && table_bytes <= available_bytes / 8;
}

Result<IoChoice> ChooseIo(const IoRequest& request) {
  if (request.mode != IoMode::kAuto) return UseAsAsked(request);
  if (Find(request, [](const TableFile& f) { return f.buffered() < 0; })) {
    return Use(request, IoMode::kPread, ": the file lies in memory");
  }
  const uint64_t total = TotalBytes(request.tables);
  const uint64_t available = AvailableMemory().value_or(0);
  if (total == 0 || TablesAreSmall(total, available)) {
    ECPHORY_ASSIGN_OR_RETURN(
        IoChoice choice,
        Use(request, IoMode::kBuffered,
            ": tables of " + Size(total) + ": the page cache holds them"));
    choice.page_cache_holds = true;
    return choice;
  }
  const TableFile* refusing =
      Find(request, [](const TableFile& file) { return file.direct() < 0; });
  if (refusing != nullptr) {
    ECPHORY_ASSIGN_OR_RETURN(
        IoChoice choice,
        Use(request, IoMode::kBuffered, ": " + refusing->direct_refusal()));
    choice.fallback = true;
    return choice;
  }
  return UseFasterDirect(request);
}

}  // namespace ecphory
