// Bytes that are text, and text that is safe to show.
#pragma once

#include <string>
#include <string_view>

namespace ecphory::cli {

// `text` safe for one line of a terminal: control characters (also those of
// Unicode) and bytes that form no character become \xNN.
std::string OneLine(std::string_view text);

// Well-formed UTF-8: no overlong forms, surrogates or values above U+10FFFF.
bool IsUtf8(std::string_view bytes);

}  // namespace ecphory::cli
