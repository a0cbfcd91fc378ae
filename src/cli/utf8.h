// Whether bytes are text.
#pragma once

#include <string_view>

namespace ecphory::cli {

// Well-formed UTF-8: no overlong forms, surrogates or values above U+10FFFF.
bool IsUtf8(std::string_view bytes);

}  // namespace ecphory::cli
