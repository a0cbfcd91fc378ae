#include "trace/reuse.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace ecphory::trace {

namespace {

// Prefix sums over counters that change one at a time (Fenwick).
class Counters {
 public:
  explicit Counters(size_t count) : sums_(count + 1) {}
  void Add(size_t index, int32_t value) {
    for (size_t i = index + 1; i < sums_.size(); i += i & (~i + 1)) {
      sums_[i] += value;
    }
  }
  // Of counters 0..index.
  int64_t Sum(size_t index) const {
    int64_t sum = 0;
    for (size_t i = index + 1; i > 0; i -= i & (~i + 1)) sum += sums_[i];
    return sum;
  }

 private:
  std::vector<int32_t> sums_;
};

}  // namespace

std::vector<uint32_t> PreviousUse(std::span<const uint64_t> rows) {
  std::unordered_map<uint64_t, uint32_t> last;
  last.reserve(rows.size());
  std::vector<uint32_t> previous(rows.size(), kNever);
  for (size_t t = 0; t < rows.size(); ++t) {
    const auto [at, is_new] = last.try_emplace(rows[t], uint32_t{0});
    if (!is_new) previous[t] = at->second;
    at->second = static_cast<uint32_t>(t);
  }
  return previous;
}

ReuseCounts& ReuseCounts::operator+=(const ReuseCounts& other) {
  requests += other.requests;
  within += other.within;
  distinct += other.distinct;
  across += other.across;
  return *this;
}

ReuseCounts CountReuse(std::span<const uint32_t> previous, uint32_t window) {
  ReuseCounts counts;
  counts.requests = previous.size();
  for (size_t t = 0; t < previous.size(); ++t) {
    if (previous[t] == kNever) continue;
    if (previous[t] / window == t / window) {
      ++counts.within;
    } else {
      ++counts.across;
    }
  }
  counts.distinct = counts.requests - counts.within;
  return counts;
}

std::vector<uint64_t> LruHits(std::span<const uint64_t> keys,
                              std::span<const uint64_t> sizes) {
  std::vector<uint64_t> hits(sizes.size());
  std::unordered_map<uint64_t, size_t> last;
  Counters newest(keys.size());  // 1 at the last use of each key so far
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto [at, is_new] = last.try_emplace(keys[i], i);
    if (!is_new) {
      // Keys used since, this one included: the entries that must fit.
      const int64_t distance = newest.Sum(i) - newest.Sum(at->second) + 1;
      const auto first = std::lower_bound(sizes.begin(), sizes.end(),
                                          static_cast<uint64_t>(distance));
      if (first != sizes.end()) {
        ++hits[static_cast<size_t>(first - sizes.begin())];
      }
      newest.Add(at->second, -1);
      at->second = i;
    }
    newest.Add(i, 1);
  }
  for (size_t s = 1; s < hits.size(); ++s) hits[s] += hits[s - 1];
  return hits;
}

double Quantile(std::span<const double> sorted, double q) {
  if (sorted.empty()) return 0;
  const double rank = std::ceil(q * static_cast<double>(sorted.size()));
  const size_t at = rank < 1 ? 0 : static_cast<size_t>(rank) - 1;
  return sorted[std::min(at, sorted.size() - 1)];
}

}  // namespace ecphory::trace
