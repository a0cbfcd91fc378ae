// Policies that decide inside a set of 16 rows, as the real cache does.
#include <algorithm>
#include <memory>

#include "engram/row_cache_set.h"
#include "policy.h"

namespace ecphory::study {

namespace {

constexpr size_t kWays = engram::RowCacheSet::kWays;

uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58'476d'1ce4'e5b9u;
  x ^= x >> 27;
  x *= 0x94d0'49bb'1331'11ebu;
  return x ^ x >> 31;
}

size_t SetOf(uint64_t hash, size_t sets) {
  return static_cast<size_t>((hash >> 32) * sets >> 32);
}

class SetLru : public Policy {
 public:
  SetLru(const Sample& sample, size_t capacity)
      : sample_(sample),
        sets_(std::max<size_t>(1, capacity / kWays)),
        held_(sets_ * kWays, kNever) {}
  bool Access(uint32_t id) override {
    uint32_t* set = &held_[SetOf(Mix(sample_.rows[id]), sets_) * kWays];
    uint32_t* at = std::find(set, set + kWays, id);
    const bool hit = at != set + kWays;
    if (!hit) at = set + kWays - 1;
    std::copy_backward(set, at, at + 1);
    *set = id;
    return hit;
  }

 private:
  const Sample& sample_;
  size_t sets_;
  std::vector<uint32_t> held_;
};

// S3-FIFO in a set: the policy of engram/row_cache_set.h with its choices as
// parameters. Each queue is in order of age, newest last.
struct S3Options {
  size_t newcomers = 3;
  size_t remembered = 32;
  uint32_t promote = 1;  // uses that move a newcomer on
};
class SetS3Fifo : public Policy {
 public:
  SetS3Fifo(const Sample& sample, size_t capacity, S3Options options)
      : sample_(sample),
        options_(options),
        sets_(std::max<size_t>(1, capacity / kWays)) {}
  bool Access(uint32_t id) override {
    Set& set = sets_[SetOf(Mix(sample_.rows[id]), sets_.size())];
    for (std::vector<Row>* part : {&set.newcomers, &set.main}) {
      for (Row& row : *part) {
        if (row.id != id) continue;
        row.uses = std::min(row.uses + 1, 3u);
        return true;
      }
    }
    const auto ghost =
        std::find(set.remembered.begin(), set.remembered.end(), id);
    const bool returns = ghost != set.remembered.end();
    if (returns) set.remembered.erase(ghost);
    while (set.newcomers.size() + set.main.size() >= kWays) Step(&set);
    (returns ? set.main : set.newcomers).push_back({id, 0});
    return false;
  }

 private:
  struct Row {
    uint32_t id;
    uint32_t uses;
  };
  struct Set {
    std::vector<Row> newcomers, main;
    std::vector<uint32_t> remembered;
  };
  template <typename T>
  static T PopFront(std::vector<T>* queue) {
    const T front = queue->front();
    queue->erase(queue->begin());
    return front;
  }
  void Step(Set* set) {
    if (set->newcomers.size() < options_.newcomers && !set->main.empty()) {
      Row row = PopFront(&set->main);
      if (row.uses == 0) return;
      --row.uses;
      return set->main.push_back(row);
    }
    const Row row = PopFront(&set->newcomers);
    if (row.uses >= options_.promote) return set->main.push_back({row.id, 0});
    set->remembered.push_back(row.id);
    if (set->remembered.size() > options_.remembered) {
      PopFront(&set->remembered);
    }
  }
  const Sample& sample_;
  S3Options options_;
  std::vector<Set> sets_;
};

// engram::RowCacheSet itself.
class RealSets : public Policy {
 public:
  RealSets(const Sample& sample, size_t capacity)
      : sample_(sample),
        sets_(std::max<size_t>(1, capacity / kWays)),
        state_(new engram::RowCacheSet[sets_]()),
        held_(sets_ * kWays, kNever) {}
  bool Access(uint32_t id) override {
    const uint64_t hash = Mix(sample_.rows[id]);
    const auto tag = static_cast<uint16_t>(hash);
    const size_t s = SetOf(hash, sets_);
    for (size_t way = 0; way < kWays; ++way) {
      if (held_[s * kWays + way] != id) continue;
      state_[s].Hit(way);
      return true;
    }
    bool evicted;
    held_[s * kWays + state_[s].Admit(tag, &evicted)] = id;
    return false;
  }

 private:
  const Sample& sample_;
  size_t sets_;
  std::unique_ptr<engram::RowCacheSet[]> state_;
  std::vector<uint32_t> held_;
};

template <typename T, typename... Args>
NamedPolicy Named(const std::string& name, bool every_size, Args... args) {
  return {name, every_size, [=](const Sample& sample, size_t capacity) {
            return std::make_unique<T>(sample, capacity, args...);
          }};
}

}  // namespace

std::vector<NamedPolicy> SetPolicies() {
  return {Named<SetLru>("LRU, 16 ways", false),
          Named<RealSets>("row cache", true)};
}

std::vector<NamedPolicy> SetChoices() {
  const auto s3 = [](const std::string& name, S3Options options) {
    return Named<SetS3Fifo>(name, false, options);
  };
  return {Named<RealSets>("row cache", true),
          s3("2 newcomers", {.newcomers = 2}),
          s3("3 newcomers", {}),
          s3("4 newcomers", {.newcomers = 4}),
          s3("8 newcomers", {.newcomers = 8}),
          s3("16 remembered", {.remembered = 16}),
          s3("64 remembered", {.remembered = 64}),
          s3("2 uses to move on", {.promote = 2})};
}

}  // namespace ecphory::study
