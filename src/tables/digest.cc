#define XXH_INLINE_ALL
#include "tables/digest.h"

#include <xxhash.h>

namespace ecphory::tables {

struct Digest::State {
  XXH3_state_t xxh3;
};

Digest::Digest() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->xxh3);
}

Digest::~Digest() = default;

void Digest::Add(std::span<const uint8_t> bytes) {
  XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

uint64_t Digest::value() const { return XXH3_64bits_digest(&state_->xxh3); }

uint64_t Digest::Of(std::span<const uint8_t> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint64_t Digest::Of(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

std::string Hex(uint64_t digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = 0; i < text.size(); ++i) {
    text[text.size() - 1 - i] = kDigits[digest >> (4 * i) & 15];
  }
  return text;
}

std::optional<uint64_t> ParseHex(std::string_view text) {
  if (text.size() != 16) return {};
  uint64_t value = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'a' || c > 'f')) return {};
    value = value << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return value;
}

}  // namespace ecphory::tables
