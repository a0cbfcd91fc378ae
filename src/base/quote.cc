#include "base/quote.h"

#include <cstdio>

namespace ecphory {

namespace {

// Long enough for any real tensor name, short enough for a terminal line.
constexpr size_t kMaxQuotedBytes = 96;

bool IsPlain(unsigned char c) {
  return c >= 0x20 && c < 0x7f && c != '\'' && c != '\\';
}

}  // namespace

std::string Quoted(std::string_view name) {
  std::string out = "'";
  for (const unsigned char c : name.substr(0, kMaxQuotedBytes)) {
    if (IsPlain(c)) {
      out.push_back(static_cast<char>(c));
      continue;
    }
    char escaped[8];
    std::snprintf(escaped, sizeof(escaped), "\\x%02x", c);
    out += escaped;
  }
  out += "'";
  if (name.size() > kMaxQuotedBytes) {
    out += "... (" + std::to_string(name.size()) + " bytes)";
  }
  return out;
}

}  // namespace ecphory
