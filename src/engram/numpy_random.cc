#include "engram/numpy_random.h"

#include <array>
#include <bit>

#include "base/check.h"

namespace ecphory::engram {

namespace {

using uint128 = unsigned __int128;

uint128 Join(uint64_t high, uint64_t low) {
  return (static_cast<uint128>(high) << 64) | low;
}

// SeedSequence: spreads a seed over a pool of four words, then draws any number
// of words from the pool.
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) {
    const std::array<uint32_t, kPool> entropy = {
        static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 0, 0};
    for (size_t i = 0; i < kPool; ++i) pool_[i] = Absorb(entropy[i]);
    for (size_t from = 0; from < kPool; ++from) {
      for (size_t to = 0; to < kPool; ++to) {
        if (from != to) pool_[to] = Mix(pool_[to], Absorb(pool_[from]));
      }
    }
  }

  uint64_t Next64() {
    const uint64_t low = Next32();
    return (static_cast<uint64_t>(Next32()) << 32) | low;
  }

 private:
  static constexpr size_t kPool = 4;

  static uint32_t FoldHigh(uint32_t x) { return x ^ (x >> 16); }

  static uint32_t Mix(uint32_t x, uint32_t y) {
    return FoldHigh(0xca01f9ddu * x - 0x4973f715u * y);
  }

  // Multiplies by a constant that changes with every call.
  static uint32_t Hash(uint32_t x, uint32_t* constant, uint32_t multiplier) {
    x ^= *constant;
    *constant *= multiplier;
    return FoldHigh(x * *constant);
  }

  uint32_t Absorb(uint32_t x) {
    return Hash(x, &absorb_constant_, 0x931e8875u);
  }

  uint32_t Next32() {
    const uint32_t word = pool_[drawn_++ % kPool];
    return Hash(word, &draw_constant_, 0x58f38dedu);
  }

  std::array<uint32_t, kPool> pool_{};
  uint32_t absorb_constant_ = 0x43b0d7e5u;
  uint32_t draw_constant_ = 0x8b51f9ddu;
  size_t drawn_ = 0;
};

}  // namespace

NumpyGenerator::NumpyGenerator(uint64_t seed) {
  SeedSequence sequence(seed);
  std::array<uint64_t, 4> words;
  for (uint64_t& word : words) word = sequence.Next64();
  increment_ = (Join(words[2], words[3]) << 1) | 1;
  Step();
  state_ += Join(words[0], words[1]);
  Step();
}

void NumpyGenerator::Step() {
  state_ = state_ * Join(0x2360ed051fc65da4u, 0x4385df649fccf645u) + increment_;
}

uint64_t NumpyGenerator::Next64() {
  Step();
  const uint64_t folded =
      static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
  return std::rotr(folded, static_cast<int>(state_ >> 122));
}

uint32_t NumpyGenerator::Next32() {
  if (has_high_half_) {
    has_high_half_ = false;
    return high_half_;
  }
  const uint64_t both = Next64();
  has_high_half_ = true;
  high_half_ = static_cast<uint32_t>(both >> 32);
  return static_cast<uint32_t>(both);
}

uint64_t NumpyGenerator::Integer(uint64_t bound) {
  ECPHORY_CHECK(bound >= 1 && bound <= uint64_t{1} << 63);
  if (bound == 1) return 0;  // takes nothing from the generator
  return bound <= uint64_t{1} << 32 ? Bounded32(bound) : Bounded64(bound);
}

// Lemire's method: the high word of random * bound, redrawn while the low word
// lies in the remainder that would favour some results.
uint64_t NumpyGenerator::Bounded32(uint64_t bound) {
  const uint64_t remainder = (uint64_t{1} << 32) % bound;
  uint64_t product;
  do {
    product = Next32() * bound;
  } while (static_cast<uint32_t>(product) < remainder);
  return product >> 32;
}

uint64_t NumpyGenerator::Bounded64(uint64_t bound) {
  const uint64_t remainder = (0 - bound) % bound;  // 2^64 mod bound
  uint128 product;
  do {
    product = static_cast<uint128>(Next64()) * bound;
  } while (static_cast<uint64_t>(product) < remainder);
  return static_cast<uint64_t>(product >> 64);
}

}  // namespace ecphory::engram
