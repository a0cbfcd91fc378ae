#include "utf8.h"

#include <cstddef>

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

}  // namespace

bool IsUtf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t length = Utf8Length(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

}  // namespace ecphory::cli
