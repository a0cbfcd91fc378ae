#include "trace/format.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "text/utf8.h"

namespace ecphory::trace {

namespace {

bool IsWide(uint32_t c) {
  return (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) ||
         (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0xFE30 && c <= 0xFE6F) || (c >= 0xFF00 && c <= 0xFF60) ||
         (c >= 0xFFE0 && c <= 0xFFE6) || (c >= 0x1F300 && c <= 0x1FAFF) ||
         (c >= 0x20000 && c <= 0x3FFFD);
}

bool IsMark(uint32_t c) {
  return (c >= 0x0300 && c <= 0x036F) || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0xFE00 && c <= 0xFE0F);
}

// Characters that break a line, turn the writing direction or cannot be seen.
bool IsControl(uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

void AppendHex(std::string_view bytes, std::string* out) {
  for (const char c : bytes) *out += Print("\\x%02x", static_cast<uint8_t>(c));
}

void AppendHtml(const Utf8Step& step, std::string_view bytes,
                std::string* out) {
  if (step.kind != Utf8Step::Kind::kCharacter) {
    *out += kReplacementCharacter;
    return;
  }
  const uint32_t c = step.code_point;
  if (c == '&') {
    *out += "&amp;";
  } else if (c == '<') {
    *out += "&lt;";
  } else if (c == '>') {
    *out += "&gt;";
  } else if (c == '"') {
    *out += "&quot;";
  } else if (c == '\'') {
    *out += "&#39;";
  } else if (c < 0x20 && c != '\n' && c != '\t') {
    *out += Print("&#x%x;", 0x2400 + c);
  } else if (c == 0x7F) {
    *out += "&#x2421;";
  } else if (IsControl(c) && c != '\n' && c != '\t') {
    *out += kReplacementCharacter;
  } else {
    *out += bytes;
  }
}

}  // namespace

std::string Print(const char* format, ...) {
  va_list args;
  va_start(args, format);
  va_list measure;
  va_copy(measure, args);
  const int length = std::vsnprintf(nullptr, 0, format, measure);
  va_end(measure);
  std::string text(static_cast<size_t>(length), '\0');
  // One more byte than the string holds: its own terminator.
  std::vsnprintf(text.data(), text.size() + 1, format, args);
  va_end(args);
  return text;
}

std::string Grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, ",");
  return text;
}

std::string Bytes(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(units)) {
    bytes /= 1000;
    ++unit;
  }
  return Print(unit == 0 ? "%.0f %s" : "%.3g %s", bytes, units[unit]);
}

std::string QuotePiece(std::string_view bytes) {
  std::string quoted = "\"";
  while (!bytes.empty()) {
    const Utf8Step step = NextUtf8(bytes);
    const bool whole = step.kind == Utf8Step::Kind::kCharacter;
    const std::string_view character = bytes.substr(0, whole ? step.length : 1);
    bytes.remove_prefix(character.size());
    if (!whole || IsControl(step.code_point)) {
      if (character == "\n") {
        quoted += "\\n";
      } else if (character == "\t") {
        quoted += "\\t";
      } else {
        AppendHex(character, &quoted);
      }
    } else {
      if (character == "\"" || character == "\\") quoted += '\\';
      quoted += character;
    }
  }
  return quoted + "\"";
}

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    const bool whole = step.kind == Utf8Step::Kind::kCharacter;
    text.remove_prefix(whole ? step.length : 1);
    if (whole && IsMark(step.code_point)) continue;
    width += whole && IsWide(step.code_point) ? 2 : 1;
  }
  return width;
}

std::string WrapItems(const std::string& prefix,
                      const std::vector<std::string>& items, size_t width) {
  const size_t indent = DisplayWidth(prefix);
  std::string text = prefix;
  size_t column = indent;
  bool first = true;
  for (const std::string& item : items) {
    const size_t wide = DisplayWidth(item);
    if (!first && column + 2 + wide > width) {
      text += "\n" + std::string(indent, ' ');
      column = indent;
      first = true;
    }
    if (!first) text += "  ";
    column += wide + (first ? 0 : 2);
    text += item;
    first = false;
  }
  return text + "\n";
}

std::string EscapeHtml(std::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    const size_t length =
        step.kind == Utf8Step::Kind::kCharacter ? step.length : 1;
    AppendHtml(step, text.substr(0, length), &escaped);
    text.remove_prefix(length);
  }
  return escaped;
}

bool IsWholeUtf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Step step = NextUtf8(bytes);
    if (step.kind != Utf8Step::Kind::kCharacter) return false;
    bytes.remove_prefix(step.length);
  }
  return true;
}

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) hex += Print("%02x", static_cast<uint8_t>(c));
  return hex;
}

std::string EscapeScript(std::string_view json) {
  std::string escaped;
  for (const char c : json) {
    if (c == '<') {
      escaped += "\\u003c";
    } else if (c == '>') {
      escaped += "\\u003e";
    } else if (c == '&') {
      escaped += "\\u0026";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string WholeCharacters(std::string_view text, size_t begin, size_t end) {
  // A character has at most four bytes: one that holds `begin` starts at most
  // three before it.
  size_t at = begin - std::min<size_t>(begin, 3);
  std::string characters;
  while (at < end && at < text.size()) {
    const Utf8Step step = NextUtf8(text.substr(at));
    const bool whole = step.kind == Utf8Step::Kind::kCharacter;
    const size_t length = whole ? step.length : 1;
    if (whole && at + length > begin) characters += text.substr(at, length);
    at += length;
  }
  return characters;
}

}  // namespace ecphory::trace
