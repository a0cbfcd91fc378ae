// One set of the row cache: which of its 16 places holds what, and which row
// leaves for which. The rows themselves lie behind it in memory.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ecphory::engram {

// All zero bytes is an empty set, so that untouched memory is valid. Whoever
// calls anything but Match() holds the lock.
//
// The policy is S3-FIFO's, in the set alone. Three places are for newcomers,
// the rest is the main part; each is a queue. The oldest newcomer moves on to
// the main part if it was used, else it leaves and its tag is remembered among
// the last 32: when it is read again soon, it goes to the main part at once.
// The oldest of the main part stays, once for each of up to three uses. So rows
// that are read once (most 4-grams) pass through three places in sixteen and
// never push out those that come back. docs/engram-cache.md has the
// measurements: in sets of 16 it keeps as much as over the whole cache, and
// more than the other policies tried.
class alignas(64) RowCacheSet {
 public:
  static constexpr size_t kWays = 16;
  static constexpr int kNewcomers = 3;
  static constexpr size_t kRemembered = 32;
  static constexpr size_t kNone = kWays;

  // A mutex of four bytes; waiting threads sleep.
  void Lock() {
    uint32_t expected = kFree;
    if (lock_.compare_exchange_strong(expected, kHeld,
                                      std::memory_order_acquire)) {
      return;
    }
    while (lock_.exchange(kContended, std::memory_order_acquire) != kFree) {
      lock_.wait(kContended, std::memory_order_relaxed);
    }
  }
  void Unlock() {
    if (lock_.exchange(kFree, std::memory_order_release) == kContended) {
      lock_.notify_one();
    }
  }

  // Bit w: place w may hold a row with this tag. Without the lock a guess only.
  uint32_t Match(uint16_t tag) const {
    uint32_t mask = 0;
    for (size_t i = 0; i < kTagWords; ++i) {
      mask |= MatchWord(tags_[i].load(std::memory_order_relaxed), tag)
              << (4 * i);
    }
    return mask;
  }
  bool Holds(size_t way) const { return (used_ >> way & 1u) != 0; }

  // The row in place `way` was used.
  void Hit(size_t way) {
    if (Uses(way) < kMaxUses) uses_ += 1u << (2 * way);
  }

  // The place for a row that the set does not hold. *evicted: another row
  // leaves it.
  size_t Admit(uint16_t tag, bool* evicted) {
    const bool returns = Forget(tag);
    *evicted = used_ == kAllWays;
    size_t way = static_cast<size_t>(std::countr_one(used_));
    if (*evicted) {
      way = Evict();
    } else if (used_ == 0) {
      order_ = kFirstOrder;
    }
    SetBit(&used_, way, true);
    SetBit(&main_, way, returns);
    uses_ &= ~(kMaxUses << (2 * way));
    SetTag(way, tag);
    MakeNewest(way);
    return way;
  }

 private:
  enum : uint32_t { kFree, kHeld, kContended };
  static constexpr uint16_t kAllWays = 0xffff;
  static constexpr size_t kTagWords = kWays / 4;
  static constexpr size_t kRememberedWords = kRemembered / 4;
  static constexpr uint32_t kMaxUses = 3;
  static constexpr uint64_t kNibbles = 0x1111'1111'1111'1111u;
  static constexpr uint64_t kLanes = 0x0001'0001'0001'0001u;
  // Place 0 newest (lowest four bits), place 15 oldest.
  static constexpr uint64_t kFirstOrder = 0xfedc'ba98'7654'3210u;

  uint32_t Uses(size_t way) const { return uses_ >> (2 * way) & kMaxUses; }
  static void SetBit(uint16_t* mask, size_t way, bool value) {
    const auto bit = static_cast<uint16_t>(1u << way);
    *mask = static_cast<uint16_t>(value ? *mask | bit : *mask & ~bit);
  }

  // Four lanes of 16 bits at once. No carry leaves a lane, so every bit is
  // exact.
  static uint32_t MatchWord(uint64_t word, uint16_t tag) {
    constexpr uint64_t kLow = 0x7fff * kLanes;
    const uint64_t x = word ^ tag * kLanes;
    const uint64_t equal = ~(((x & kLow) + kLow) | x | kLow);
    // Bits 15, 31, 47, 63 to bits 0..3.
    return static_cast<uint32_t>((equal >> 15) * 0x1000'2000'4000'8000u >> 60) &
           15u;
  }

  uint16_t Tag(size_t way) const {
    return static_cast<uint16_t>(
        tags_[way / 4].load(std::memory_order_relaxed) >> (16 * (way % 4)));
  }
  void SetTag(size_t way, uint16_t tag) {
    std::atomic<uint64_t>& word = tags_[way / 4];
    word.store(WithLane(word.load(std::memory_order_relaxed), way % 4, tag),
               std::memory_order_relaxed);
  }
  static uint64_t WithLane(uint64_t word, size_t lane, uint16_t value) {
    const size_t shift = 16 * lane;
    return (word & ~(uint64_t{0xffff} << shift)) | uint64_t{value} << shift;
  }

  // The four bits of `way` go to the low end of order_; those before it move up
  // by one.
  void MakeNewest(size_t way) {
    const uint64_t x = order_ ^ way * kNibbles;
    const uint64_t zero = (x - kNibbles) & ~x & (8 * kNibbles);
    const int end = std::countr_zero(zero) + 1;  // the lowest bit is exact
    const uint64_t up_to = end == 64 ? ~uint64_t{0} : (uint64_t{1} << end) - 1;
    order_ = (order_ & ~up_to) | ((order_ << 4 | way) & up_to);
  }
  // Of the places in `mask`, which is not empty.
  size_t Oldest(uint16_t mask) const {
    for (int shift = 60;; shift -= 4) {
      const size_t way = order_ >> shift & 15;
      if ((mask >> way & 1u) != 0) return way;
    }
  }

  // The set is full. Every round takes a use from a row or moves a newcomer on,
  // so it ends.
  size_t Evict() {
    for (;;) {
      const auto newcomers = static_cast<uint16_t>(~main_);
      const bool from_newcomers =
          std::popcount(newcomers) >= kNewcomers || main_ == 0;
      const size_t way = Oldest(from_newcomers ? newcomers : main_);
      if (Uses(way) == 0) {
        if (from_newcomers) Remember(Tag(way));
        return way;
      }
      if (from_newcomers) {
        uses_ &= ~(kMaxUses << (2 * way));
        SetBit(&main_, way, true);
      } else {
        uses_ -= 1u << (2 * way);
      }
      MakeNewest(way);
    }
  }

  void Remember(uint16_t tag) {
    uint64_t& word = remembered_[next_ / 4 % kRememberedWords];
    word = WithLane(word, next_ % 4, tag);
    next_ = static_cast<uint16_t>((next_ + 1) % kRemembered);
  }
  // Whether `tag` was remembered.
  bool Forget(uint16_t tag) {
    for (uint64_t& word : remembered_) {
      const uint32_t mask = MatchWord(word, tag);
      if (mask == 0) continue;
      const auto lane = static_cast<size_t>(std::countr_zero(mask));
      word = WithLane(word, lane, 0);
      return tag != 0;
    }
    return false;
  }

  std::atomic<uint32_t> lock_;
  uint32_t uses_;   // two bits a place
  uint64_t order_;  // places by age, four bits each
  std::atomic<uint64_t> tags_[kTagWords];
  uint16_t used_;  // bit w: place w holds a row
  uint16_t main_;  // bit w: it is in the main part
  uint16_t next_;  // place of the next remembered tag
  alignas(64) uint64_t remembered_[kRememberedWords];  // tags, 0: none
};
static_assert(sizeof(RowCacheSet) == 128);

}  // namespace ecphory::engram
