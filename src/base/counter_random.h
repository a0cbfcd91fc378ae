// Random bytes that follow from a key and a position, so that any part of a
// large file can be made alone, on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace ecphory {

// The step of splitmix64's counter.
inline constexpr uint64_t kRandomStep = 0x9e3779b97f4a7c15;

// The finishing step of splitmix64: every bit of x reaches every bit.
constexpr uint64_t MixBits(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// A key of its own for each name (FNV-1a under the seed).
constexpr uint64_t NamedKey(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return MixBits(MixBits(seed + kRandomStep) ^ hash);
}

// splitmix64: the words of one key.
class RandomWords {
 public:
  explicit RandomWords(uint64_t key) : key_(key) {}
  uint64_t Next() {
    const uint64_t word = MixBits(key_);
    key_ += kRandomStep;
    return word;
  }

 private:
  uint64_t key_;
};

// A word of eight such bytes, for maps of all bytes at once.
constexpr uint64_t EightOf(uint8_t byte) {
  return uint64_t{0x0101010101010101} * byte;
}

// Fills `out` with map(word) for the words of `key`, eight bytes each, the last
// one cut. Little-endian.
template <typename Map>
void FillRandom(uint64_t key, std::span<uint8_t> out, const Map& map) {
  RandomWords words(key);
  size_t at = 0;
  for (; at + 8 <= out.size(); at += 8) {
    const uint64_t word = map(words.Next());
    std::memcpy(out.data() + at, &word, 8);
  }
  if (at == out.size()) return;
  const uint64_t word = map(words.Next());
  std::memcpy(out.data() + at, &word, out.size() - at);
}

}  // namespace ecphory
