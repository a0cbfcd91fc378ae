// Policies over the whole cache.
#include <algorithm>
#include <bit>
#include <random>

#include "lists.h"
#include "policy.h"

namespace ecphory::study {

namespace {

enum Where : uint8_t { kOut, kFirst, kSecond, kGhost };

// Oldest out; with `renew` least recently used out.
class Queue : public Policy {
 public:
  Queue(size_t n, size_t capacity, bool renew)
      : capacity_(capacity), renew_(renew), in_(n), links_(n), list_(&links_) {}
  bool Access(uint32_t id) override {
    if (in_[id]) {
      if (renew_) list_.Renew(id);
      return true;
    }
    if (list_.size() == capacity_) in_[list_.PopOldest()] = 0;
    in_[id] = 1;
    list_.PushNewest(id);
    return false;
  }

 private:
  size_t capacity_;
  bool renew_;
  std::vector<uint8_t> in_;
  Links links_;
  List list_;
};

// Oldest out unless used since the hand came by. CLOCK moves such rows to the
// newest end; SIEVE leaves them where they are.
class SecondChance : public Policy {
 public:
  SecondChance(size_t n, size_t capacity, bool sieve)
      : capacity_(capacity),
        sieve_(sieve),
        in_(n),
        used_(n),
        links_(n),
        list_(&links_) {}
  bool Access(uint32_t id) override {
    if (in_[id]) {
      used_[id] = 1;
      return true;
    }
    if (list_.size() == capacity_) Evict();
    in_[id] = 1;
    used_[id] = 0;
    list_.PushNewest(id);
    return false;
  }

 private:
  void Evict() {
    uint32_t id = hand_ == kNever ? list_.oldest() : hand_;
    while (used_[id]) {
      used_[id] = 0;
      const uint32_t newer = list_.newer(id);
      if (!sieve_) list_.Renew(id);
      id = newer == kNever ? list_.oldest() : newer;
    }
    hand_ = sieve_ ? list_.newer(id) : kNever;
    list_.Remove(id);
    in_[id] = 0;
  }
  size_t capacity_;
  bool sieve_;
  std::vector<uint8_t> in_, used_;
  Links links_;
  List list_;
  uint32_t hand_ = kNever;
};

// Segmented LRU: new rows on probation, used ones in the protected 80 %.
class Segmented : public Policy {
 public:
  Segmented(size_t n, size_t capacity)
      : capacity_(capacity),
        protected_capacity_(std::max<size_t>(1, capacity * 8 / 10)),
        where_(n),
        links_(n),
        probation_(&links_),
        protected_(&links_) {}
  bool Access(uint32_t id) override {
    if (where_[id] == kOut) {
      if (size() == capacity_) where_[PopVictim()] = kOut;
      Admit(id);
      return false;
    }
    Promote(id);
    return true;
  }

  // For admission in front of it.
  size_t size() const { return probation_.size() + protected_.size(); }
  bool Holds(uint32_t id) const { return where_[id] != kOut; }
  uint32_t Victim() const {
    return probation_.size() > 0 ? probation_.oldest() : protected_.oldest();
  }
  uint32_t PopVictim() {
    const uint32_t id = Victim();
    (where_[id] == kFirst ? probation_ : protected_).Remove(id);
    where_[id] = kOut;
    return id;
  }
  void Admit(uint32_t id) {
    where_[id] = kFirst;
    probation_.PushNewest(id);
  }
  void Promote(uint32_t id) {
    if (where_[id] == kSecond) return protected_.Renew(id);
    probation_.Remove(id);
    where_[id] = kSecond;
    protected_.PushNewest(id);
    if (protected_.size() <= protected_capacity_) return;
    const uint32_t demoted = protected_.PopOldest();
    Admit(demoted);
  }

 private:
  size_t capacity_, protected_capacity_;
  std::vector<uint8_t> where_;
  Links links_;
  List probation_, protected_;
};

// S3-FIFO: a small queue for new rows, a main queue for those that came back,
// and the numbers of as many rows as the main queue that left the small one.
class S3Fifo : public Policy {
 public:
  S3Fifo(size_t n, size_t capacity)
      : capacity_(capacity),
        small_capacity_(std::max<size_t>(1, capacity / 10)),
        where_(n),
        uses_(n),
        links_(n),
        small_(&links_),
        main_(&links_),
        ghost_(&links_) {}
  bool Access(uint32_t id) override {
    if (where_[id] == kFirst || where_[id] == kSecond) {
      if (uses_[id] < 3) ++uses_[id];
      return true;
    }
    const bool returns = where_[id] == kGhost;
    if (returns) ghost_.Remove(id);
    while (small_.size() + main_.size() >= capacity_) Evict();
    uses_[id] = 0;
    where_[id] = returns ? kSecond : kFirst;
    (returns ? main_ : small_).PushNewest(id);
    return false;
  }

 private:
  void Evict() {
    if (small_.size() >= small_capacity_ || main_.size() == 0) {
      const uint32_t id = small_.PopOldest();
      if (uses_[id] > 1) {
        uses_[id] = 0;
        where_[id] = kSecond;
        main_.PushNewest(id);
        return;
      }
      where_[id] = kGhost;
      ghost_.PushNewest(id);
      if (ghost_.size() > capacity_ - small_capacity_) {
        where_[ghost_.PopOldest()] = kOut;
      }
      return;
    }
    const uint32_t id = main_.PopOldest();
    if (uses_[id] > 0) {
      --uses_[id];
      main_.PushNewest(id);
    } else {
      where_[id] = kOut;
    }
  }
  size_t capacity_, small_capacity_;
  std::vector<uint8_t> where_, uses_;
  Links links_;
  List small_, main_, ghost_;
};

// LRU that lets a row in at its second use, while its first is remembered: the
// numbers of as many rows as it holds, times `memory`.
class SecondHit : public Policy {
 public:
  SecondHit(size_t n, size_t capacity, size_t memory)
      : capacity_(capacity),
        memory_(capacity * memory),
        where_(n),
        links_(n),
        list_(&links_),
        ghost_(&links_) {}
  bool Access(uint32_t id) override {
    if (where_[id] == kFirst) {
      list_.Renew(id);
      return true;
    }
    if (where_[id] == kGhost) {
      ghost_.Remove(id);
      if (list_.size() == capacity_) Forget(list_.PopOldest());
      where_[id] = kFirst;
      list_.PushNewest(id);
    } else {
      Forget(id);
    }
    return false;
  }

 private:
  void Forget(uint32_t id) {
    if (ghost_.size() == memory_) where_[ghost_.PopOldest()] = kOut;
    where_[id] = kGhost;
    ghost_.PushNewest(id);
  }
  size_t capacity_, memory_;
  std::vector<uint8_t> where_;
  Links links_;
  List list_, ghost_;
};

// A count-min sketch of uses with four rows; halved every 10 capacities.
class Sketch {
 public:
  explicit Sketch(size_t capacity)
      : mask_(std::bit_ceil(capacity * 4) - 1),
        period_(capacity * 10),
        counts_(4 * (mask_ + 1)) {}
  void Add(uint32_t id) {
    const uint32_t least = Estimate(id);
    for (size_t i = 0; i < 4; ++i) {
      uint8_t& count = counts_[At(id, i)];
      if (count == least && count < 15) ++count;
    }
    if (++added_ < period_) return;
    added_ = period_ / 2;
    for (uint8_t& count : counts_) count /= 2;
  }
  uint32_t Estimate(uint32_t id) const {
    uint32_t least = 15;
    for (size_t i = 0; i < 4; ++i) {
      least = std::min<uint32_t>(least, counts_[At(id, i)]);
    }
    return least;
  }

 private:
  size_t At(uint32_t id, size_t i) const {
    constexpr uint64_t kOdd[] = {0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu,
                                 0x165667b19e3779f9u, 0xd6e8feb86659fd93u};
    return i * (mask_ + 1) + (((id + 1) * kOdd[i] >> 20) & mask_);
  }
  size_t mask_, period_, added_ = 0;
  std::vector<uint8_t> counts_;
};

// W-TinyLFU: an LRU window of 1 %; what leaves it must have been used more
// often than the victim of the segmented main part.
class TinyLfu : public Policy {
 public:
  TinyLfu(size_t n, size_t capacity)
      : window_capacity_(std::max<size_t>(1, capacity / 100)),
        main_capacity_(capacity - window_capacity_),
        in_window_(n),
        links_(n),
        window_(&links_),
        main_(n, main_capacity_),
        sketch_(capacity) {}
  bool Access(uint32_t id) override {
    sketch_.Add(id);
    if (main_.Holds(id)) {
      main_.Promote(id);
      return true;
    }
    if (in_window_[id]) {
      window_.Renew(id);
      return true;
    }
    in_window_[id] = 1;
    window_.PushNewest(id);
    if (window_.size() > window_capacity_) Leave(window_.PopOldest());
    return false;
  }

 private:
  void Leave(uint32_t id) {
    in_window_[id] = 0;
    if (main_.size() == main_capacity_) {
      if (sketch_.Estimate(id) <= sketch_.Estimate(main_.Victim())) return;
      main_.PopVictim();
    }
    main_.Admit(id);
  }
  size_t window_capacity_, main_capacity_;
  std::vector<uint8_t> in_window_;
  Links links_;
  List window_;
  Segmented main_;
  Sketch sketch_;
};

// The less recently used of two random rows out.
class TwoRandom : public Policy {
 public:
  TwoRandom(size_t n, size_t capacity)
      : capacity_(capacity), used_(n), at_(n, kNever) {}
  bool Access(uint32_t id) override {
    used_[id] = ++now_;
    if (at_[id] != kNever) return true;
    if (held_.size() < capacity_) {
      at_[id] = static_cast<uint32_t>(held_.size());
      held_.push_back(id);
      return false;
    }
    const uint32_t a = Random(), b = Random();
    const uint32_t place = used_[held_[a]] < used_[held_[b]] ? a : b;
    at_[held_[place]] = kNever;
    held_[place] = id;
    at_[id] = place;
    return false;
  }

 private:
  uint32_t Random() { return static_cast<uint32_t>(rng_() % capacity_); }
  size_t capacity_;
  uint32_t now_ = 0;
  std::vector<uint32_t> used_, at_, held_;
  std::minstd_rand rng_{1};
};

template <typename T, typename... Args>
NamedPolicy Named(const std::string& name, bool every_size, Args... args) {
  return {name, every_size, [=](const Sample& sample, size_t capacity) {
            return std::make_unique<T>(sample.rows.size(), capacity, args...);
          }};
}

}  // namespace

std::vector<NamedPolicy> ListPolicies() {
  return {Named<Queue>("FIFO", false, false),
          Named<Queue>("LRU", true, true),
          Named<SecondChance>("CLOCK", false, false),
          Named<SecondChance>("SIEVE", false, true),
          Named<TwoRandom>("2-random", false),
          Named<Segmented>("SLRU", false),
          Named<S3Fifo>("S3-FIFO", false),
          Named<SecondHit>("LRU, 2nd hit", false, size_t{1}),
          Named<SecondHit>("LRU, 2nd hit, 4x", false, size_t{4}),
          Named<TinyLfu>("W-TinyLFU", true)};
}

}  // namespace ecphory::study
