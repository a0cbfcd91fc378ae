#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace ecphory {

namespace {

constexpr uint32_t kFirstStandIn = 0x100;
constexpr uint32_t kAlphabetEnd = 0x144;  // one past the last stand-in
constexpr int16_t kNoByte = -1;

struct Alphabet {
  std::array<uint16_t, 256> character_of_byte{};
  std::array<int16_t, kAlphabetEnd> byte_of_character{};
};

constexpr bool PrintsInLatin1(uint32_t byte) {
  return (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
}

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.byte_of_character) byte = kNoByte;
  uint32_t stand_in = kFirstStandIn;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t character = PrintsInLatin1(byte) ? byte : stand_in++;
    alphabet.character_of_byte[byte] = static_cast<uint16_t>(character);
    alphabet.byte_of_character[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::string BytesToAlphabet(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    const uint16_t character =
        kAlphabet.character_of_byte[static_cast<uint8_t>(byte)];
    if (character < 0x80) {
      out.push_back(static_cast<char>(character));
    } else {
      out.push_back(static_cast<char>(0xc0 | character >> 6));
      out.push_back(static_cast<char>(0x80 | (character & 0x3f)));
    }
  }
  return out;
}

std::optional<std::string> AlphabetToBytes(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    if (step.kind != Utf8Step::Kind::kCharacter) return std::nullopt;
    if (step.code_point >= kAlphabetEnd) return std::nullopt;
    const int16_t byte = kAlphabet.byte_of_character[step.code_point];
    if (byte == kNoByte) return std::nullopt;
    out.push_back(static_cast<char>(byte));
    text.remove_prefix(step.length);
  }
  return out;
}

}  // namespace ecphory
