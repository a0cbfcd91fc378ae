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
// The policy. Rows are counted twice: those in the set in four bits each, and
// all that were missed in a small sketch. A row that finds the set full is
// compared with the least used row, the least recently used among equals, and
// takes its place unless it was asked for less often. All counts are halved
// every kHalvingPeriod requests, so that old merits fade.
class alignas(64) RowCacheSet {
 public:
  static constexpr size_t kWays = 16;
  static constexpr uint32_t kHalvingPeriod = 16 * kWays;
  static constexpr int kRefused = -1;

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
    for (size_t i = 0; i < kWords; ++i) {
      mask |= MatchWord(tags_[i].load(std::memory_order_relaxed), tag)
              << (4 * i);
    }
    return mask;
  }

  // The row in place `way` was asked for.
  void Hit(size_t way) {
    if (Count(uses_, way) < kMaxCount) uses_ += uint64_t{1} << (4 * way);
    MoveToFront(way);
    Tick();
  }

  // A row that is not here was asked for; `sketch` are some bits of its hash.
  void Miss(uint8_t sketch) {
    uint64_t& word = sketch_[sketch / 16 % kSketchWords];
    if (Count(word, sketch % 16) < kMaxCount) {
      word += uint64_t{1} << (4 * (sketch % 16));
    }
    Tick();
  }

  // The place for a row that was missed, or kRefused. *evicted: another row
  // leaves it.
  int Admit(uint16_t tag, uint8_t sketch, bool* evicted) {
    const uint64_t count =
        Count(sketch_[sketch / 16 % kSketchWords], sketch % 16);
    *evicted = false;
    size_t way = static_cast<size_t>(std::countr_one(used_));
    if (way >= kWays) {
      way = Victim();
      if (count < Count(uses_, way)) return kRefused;
      *evicted = true;
    } else if (used_ == 0) {
      order_ = kFirstOrder;
    }
    used_ = static_cast<uint16_t>(used_ | 1u << way);
    uses_ = (uses_ & ~(uint64_t{15} << (4 * way))) | count << (4 * way);
    SetTag(way, tag);
    MoveToFront(way);
    return static_cast<int>(way);
  }

  bool Holds(size_t way) const { return (used_ >> way & 1u) != 0; }

 private:
  enum : uint32_t { kFree, kHeld, kContended };
  static constexpr size_t kWords = kWays / 4;
  static constexpr size_t kSketchWords = 8;
  static constexpr uint64_t kMaxCount = 15;
  static constexpr uint64_t kOnes = 0x1111'1111'1111'1111u;
  static constexpr uint64_t kLanes = 0x0001'0001'0001'0001u;
  // Place 0 in front (lowest four bits), place 15 at the end.
  static constexpr uint64_t kFirstOrder = 0xfedc'ba98'7654'3210u;

  static uint64_t Count(uint64_t word, size_t nibble) {
    return word >> (4 * nibble) & 15;
  }

  // Four lanes of 16 bits at once. A lane is equal when its difference is zero;
  // no borrow crosses lanes, so every bit is exact.
  static uint32_t MatchWord(uint64_t word, uint16_t tag) {
    constexpr uint64_t kLow = 0x7fff * kLanes;
    const uint64_t x = word ^ tag * kLanes;
    const uint64_t equal = ~(((x & kLow) + kLow) | x | kLow);
    // Bits 15, 31, 47, 63 to bits 0..3.
    return static_cast<uint32_t>((equal >> 15) * 0x1000'2000'4000'8000u >> 60) &
           15u;
  }

  void SetTag(size_t way, uint16_t tag) {
    std::atomic<uint64_t>& word = tags_[way / 4];
    const size_t shift = 16 * (way % 4);
    const uint64_t others =
        word.load(std::memory_order_relaxed) & ~(uint64_t{0xffff} << shift);
    word.store(others | uint64_t{tag} << shift, std::memory_order_relaxed);
  }

  // The four bits of `way` go to the low end of order_; those before it move up
  // by one.
  void MoveToFront(size_t way) {
    const uint64_t x = order_ ^ way * kOnes;
    const uint64_t zero = (x - kOnes) & ~x & (8 * kOnes);  // lowest is exact
    const int end = std::countr_zero(zero) + 1;
    const uint64_t up_to = end == 64 ? ~uint64_t{0} : (uint64_t{1} << end) - 1;
    order_ = (order_ & ~up_to) | ((order_ << 4 | way) & up_to);
  }

  // Least used; of equals the one least recently used.
  size_t Victim() const {
    uint64_t least = kMaxCount + 1;
    size_t victim = 0;
    for (int i = kWays - 1; i >= 0; --i) {
      const size_t way = Count(order_, static_cast<size_t>(i));
      const uint64_t uses = Count(uses_, way);
      if (uses >= least) continue;
      least = uses;
      victim = way;
    }
    return victim;
  }

  void Tick() {
    if (++sketch_age_ < kHalvingPeriod) return;
    sketch_age_ = 1;
    uses_ = uses_ >> 1 & 7 * kOnes;
    for (uint64_t& word : sketch_) word = word >> 1 & 7 * kOnes;
  }

  std::atomic<uint32_t> lock_;
  uint16_t used_;        // bit w: place w holds a row
  uint16_t sketch_age_;  // requests since the counts were halved
  uint64_t order_;       // places, most recently used first, four bits each
  uint64_t uses_;        // four bits a place
  std::atomic<uint64_t> tags_[kWords];
  alignas(64) uint64_t sketch_[kSketchWords];  // four bits a counter
};
static_assert(sizeof(RowCacheSet) == 128);

}  // namespace ecphory::engram
