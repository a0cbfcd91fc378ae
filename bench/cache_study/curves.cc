// Hit rates by policy, size and n-gram size.
#include <algorithm>
#include <array>
#include <cstdio>
#include <queue>

#include "commands.h"
#include "policy.h"

namespace ecphory::study {

namespace {

// Memory that a kept row takes in engram/row_cache.h: 264 bytes, its key and a
// sixteenth of its set's bookkeeping. Taken for every policy.
constexpr uint64_t kBytesPerRow = 280;

constexpr uint64_t kThinFrom = 16;  // MB: 936 rows are left
constexpr uint64_t kThinBy = 4;

// Of one half. `expected` accesses a n-gram size is what an even sample has:
// the difference to those there are is due to rows used very often, which are
// hits.
void PrintRates(const std::array<double, kOrders>& misses, double expected) {
  double all = 0;
  for (const double n : misses) all += n;
  std::printf("\t%.5f", 1 - all / expected / kOrders);
  for (const double n : misses) std::printf("\t%.5f", 1 - n / expected);
}

// kind, policy, MB, then for the first and the second half of the tokens: all,
// 2-grams, 3-grams, 4-grams.
template <typename IsHit>
void Print(const Sample& sample, const std::string& policy, uint64_t megabytes,
           IsHit&& is_hit) {
  std::array<std::array<double, kOrders>, 2> misses{};  // [half][n-gram size]
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    misses[i < sample.half ? 0 : 1][sample.orders[i]] += is_hit(i) ? 0 : 1;
  }
  std::printf("%s\t%s\t%llu", sample.name.c_str(), policy.c_str(),
              static_cast<unsigned long long>(megabytes));
  for (size_t half = 0; half < 2; ++half) {
    PrintRates(misses[half], static_cast<double>(sample.tokens) / 2 /
                                 static_cast<double>(sample.thinned_by));
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

std::vector<bool> Optimum(const Sample& sample, size_t capacity) {
  std::vector<bool> hit(sample.ids.size());
  std::vector<uint32_t> next_of(sample.rows.size(), kNever);
  std::vector<uint8_t> held(sample.rows.size());
  // By next use, latest on top. A row that was used again has older entries
  // too; they are recognised by its next use.
  std::priority_queue<std::pair<uint32_t, uint32_t>> queue;
  size_t size = 0;
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    const uint32_t id = sample.ids[i];
    const uint32_t next = sample.next[i];
    hit[i] = held[id] != 0;
    if (held[id]) {
      held[id] = 0;
      --size;
    }
    if (next == kNever) continue;
    if (size == capacity) {
      while (!held[queue.top().second] ||
             next_of[queue.top().second] != queue.top().first) {
        queue.pop();
      }
      if (queue.top().first <= next) continue;
      held[queue.top().second] = 0;
      queue.pop();
      --size;
    }
    held[id] = 1;
    next_of[id] = next;
    queue.emplace(next, id);
    ++size;
  }
  return hit;
}

namespace {

void PrintPolicy(const Sample& sample, const NamedPolicy& policy,
                 uint64_t megabytes, size_t capacity) {
  const auto cache = policy.make(sample, capacity);
  Print(sample, policy.name, megabytes,
        [&](size_t i) { return cache->Access(sample.ids[i]); });
}

// Rows of a sampled cache that stands for one of `megabytes`.
size_t Capacity(uint64_t megabytes, uint64_t thinned_by) {
  return (megabytes << 20) / kBytesPerRow / kColumnsPerOrder / thinned_by;
}

}  // namespace

void Curves(const Sample& sample) {
  std::printf("# %s: %zu tokens, %zu distinct rows of %zu sampled\n",
              sample.name.c_str(), sample.tokens, sample.rows.size(),
              sample.ids.size());
  std::vector<NamedPolicy> policies = ListPolicies();
  for (NamedPolicy& policy : SetPolicies()) {
    policies.push_back(std::move(policy));
  }
  const Sample thin = Thin(sample, kThinBy);
  size_t step = 0;
  for (uint64_t megabytes = 1; megabytes <= 8192; megabytes *= 2, ++step) {
    const bool is_thin = megabytes >= kThinFrom;
    const Sample& used = is_thin ? thin : sample;
    const size_t capacity = Capacity(megabytes, is_thin ? kThinBy : 1);
    for (const NamedPolicy& policy : policies) {
      if (step % 2 != 0 && !policy.every_size) continue;
      PrintPolicy(used, policy, megabytes, capacity);
    }
    const std::vector<bool> hit = Optimum(used, capacity);
    Print(used, "optimum", megabytes, [&](size_t i) { return hit[i]; });
  }
}

void Choices(const Sample& sample) {
  const Sample thin = Thin(sample, kThinBy);
  for (const uint64_t megabytes : {16, 128, 1024}) {
    for (const NamedPolicy& policy : SetChoices()) {
      PrintPolicy(thin, policy, megabytes, Capacity(megabytes, kThinBy));
    }
  }
}

void ColdStart(const Sample& sample) {
  for (const uint64_t megabytes : {16, 64, 256, 1024}) {
    for (const NamedPolicy& policy : SetPolicies()) {
      if (!policy.every_size) continue;
      const auto cache = policy.make(sample, Capacity(megabytes, 1));
      std::printf("%s\t%s\t%llu", sample.name.c_str(), policy.name.c_str(),
                  static_cast<unsigned long long>(megabytes));
      size_t i = 0;
      for (size_t tokens = 1000; i < sample.ids.size(); tokens *= 10) {
        const size_t begin = i;
        const size_t end = std::min(tokens * kOrders, sample.ids.size());
        size_t hits = 0;
        for (; i < end; ++i) hits += cache->Access(sample.ids[i]) ? 1 : 0;
        std::printf("\t%.5f", static_cast<double>(hits) /
                                  static_cast<double>(end - begin));
      }
      std::printf("\n");
    }
  }
}

// What the sampling does to the figures: all columns, one in sixteen, and a
// quarter of those, at one size.
void SamplingError(const Sample& sample) {
  const Sample thin = Thin(sample, kThinBy);
  for (const NamedPolicy& policy : SetPolicies()) {
    PrintPolicy(sample, policy, kThinFrom, Capacity(kThinFrom, 1));
    PrintPolicy(thin, policy, kThinFrom, Capacity(kThinFrom, kThinBy));
  }
}

}  // namespace ecphory::study
