#include "utf8.h"

#include <algorithm>
#include <cstddef>

#include "output.h"

namespace ecphory::cli {

namespace {

// Bytes of the well-formed character at the beginning of `bytes`; 0 if none.
size_t Utf8Length(std::string_view bytes) {
  const auto at = [&](size_t i) {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0u;
  };
  const unsigned lead = at(0);
  if (lead < 0x80) return 1;
  const size_t length = lead < 0xC2   ? 0
                        : lead < 0xE0 ? 2
                        : lead < 0xF0 ? 3
                        : lead < 0xF5 ? 4
                                      : 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong =
      (lead == 0xE0 && at(1) < 0xA0) || (lead == 0xF0 && at(1) < 0x90);
  const bool surrogate = lead == 0xED && at(1) >= 0xA0;
  const bool too_large = lead == 0xF4 && at(1) >= 0x90;
  return overlong || surrogate || too_large ? 0 : length;
}

// Of one character, or of a byte that is none. U+0080 to U+009F are control
// characters, U+2028 to U+202E and
// U+2066 to U+2069 break lines or turn the writing direction.
bool IsPrintable(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return lead >= 0x20 && lead < 0x7F;
  const bool control =
      lead == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
  const bool separator =
      character >= "\xE2\x80\xA8" && character <= "\xE2\x80\xAE";
  const bool isolate =
      character >= "\xE2\x81\xA6" && character <= "\xE2\x81\xA9";
  return !control && !separator && !isolate;
}

}  // namespace

bool IsUtf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t length = Utf8Length(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

std::string OneLine(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const size_t length = std::max<size_t>(Utf8Length(text), 1);
    const std::string_view character = text.substr(0, length);
    text.remove_prefix(length);
    if (IsPrintable(character)) {
      line += character;
      continue;
    }
    for (const char c : character) {
      line += Format("\\x%02x", static_cast<unsigned char>(c));
    }
  }
  return line;
}

}  // namespace ecphory::cli
