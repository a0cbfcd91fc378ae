// GPT-2's byte alphabet, in which byte-level vocabularies are written: bytes
// that print in Latin-1 stand for themselves, the other 68 for U+0100, U+0101…
// in byte order (so a space is U+0120).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ecphory {

std::string BytesToAlphabet(std::string_view bytes);

// Nothing when `text` holds a character outside the alphabet.
std::optional<std::string> AlphabetToBytes(std::string_view text);

}  // namespace ecphory
