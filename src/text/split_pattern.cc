#include "text/split_pattern.h"

#include <cstdint>
#include <cstdio>

#include "base/quote.h"
#include "text/unicode_additions.h"

namespace ecphory {

namespace {

constexpr std::string_view kWhiteSpace = R"(\t-\r\x{85}\p{Z})";
// Control, unassigned and private characters: what is unassigned depends on the
// Unicode version, so \p{C} has no fixed meaning.
constexpr std::string_view kMajorCategories = "LMNPSZ";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsPunctuation(char c) {
  return c > 0x20 && c < 0x7f && !IsDigit(c) && !IsLower(c) &&
         !(c >= 'A' && c <= 'Z');
}

// "L" or "Lu".
bool IsCategory(std::string_view name) {
  if (name.empty() || name.size() > 2) return false;
  if (kMajorCategories.find(name[0]) == std::string_view::npos) return false;
  return name.size() == 1 || IsLower(name[1]);
}

// The members of a general category, to stand between square brackets.
std::string CategorySet(std::string_view name) {
  std::string set = "\\p{" + std::string(name) + "}";
  for (const CategoryRange& range : kNewCharacters) {
    if (!std::string_view(range.category).starts_with(name)) continue;
    char text[32];
    std::snprintf(text, sizeof(text), "\\x{%X}-\\x{%X}", range.first,
                  range.last);
    set += text;
  }
  return set;
}

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where)
      : in_(pattern), where_(where) {}

  Result<std::string> Run() {
    while (at_ < in_.size()) {
      if (in_[at_] == '\\') {
        ECPHORY_RETURN_IF_ERROR(Escape());
      } else if (in_class_) {
        ECPHORY_RETURN_IF_ERROR(ClassMember());
      } else {
        ECPHORY_RETURN_IF_ERROR(Ordinary());
      }
    }
    if (in_class_) return Refuse(in_.size(), "'[' without ']'");
    return out_;
  }

 private:
  Status Escape() {
    if (at_ + 1 == in_.size()) return Refuse(at_, "'\\' at the end");
    const char letter = in_[at_ + 1];
    switch (letter) {
      case 's': return Set(2, kWhiteSpace, false);
      case 'S': return Set(2, kWhiteSpace, true);
      case 'd': return Set(2, CategorySet("Nd"), false);
      case 'D': return Set(2, CategorySet("Nd"), true);
      case 'p': return Property(false);
      case 'P': return Property(true);
      case 'r':
      case 'n':
      case 't': return Copy(2);
      default: break;
    }
    if (IsPunctuation(letter)) return Copy(2);
    return Refuse(at_, "escape " + Quoted(in_.substr(at_, 2)));
  }

  Status Property(bool negated) {
    const std::string_view rest = in_.substr(at_);
    const size_t close = rest.find('}');
    if (close == std::string_view::npos || !rest.substr(2).starts_with("{") ||
        !IsCategory(rest.substr(3, close - 3))) {
      return Refuse(at_, "property " + Quoted(rest.substr(0, 8)) +
                             " (general categories such as \\p{L} or \\p{Lu} "
                             "can be used)");
    }
    return Set(close + 1, CategorySet(rest.substr(3, close - 3)), negated);
  }

  // Replaces `length` bytes of the pattern by a set of characters.
  Status Set(size_t length, std::string_view members, bool negated) {
    if (in_class_ && negated) {
      return Refuse(at_, "negated " + Quoted(in_.substr(at_, length)) +
                             " inside a class");
    }
    if (!in_class_) out_ += negated ? "[^" : "[";
    out_ += members;
    if (!in_class_) out_ += "]";
    at_ += length;
    return Status::Ok();
  }

  Status ClassMember() {
    const std::string_view rest = in_.substr(at_);
    if (rest[0] == '[') return Refuse(at_, "'[' inside a class");
    if (rest.starts_with("&&")) return Refuse(at_, "'&&' inside a class");
    if (rest[0] == ']') in_class_ = false;
    return Copy(1);
  }

  Status Ordinary() {
    switch (in_[at_]) {
      case '[': return OpenClass();
      case '(': return Group();
      case '{': return Repeat();
      case '^':
      case '$': return Refuse(at_, "anchor '^' or '$'");
      default: return Copy(1);
    }
  }

  Status OpenClass() {
    in_class_ = true;
    const std::string_view rest = in_.substr(at_);
    const size_t length = rest.starts_with("[^") ? 2 : 1;
    if (rest.substr(length).starts_with("]")) {
      return Refuse(at_, "']' as the first character of a class");
    }
    return Copy(length);
  }

  Status Group() {
    const std::string_view rest = in_.substr(at_);
    for (const std::string_view known :
         {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"}) {
      if (rest.starts_with(known)) return Copy(known.size());
    }
    if (rest.starts_with("(?") || rest.starts_with("(*")) {
      return Refuse(at_, "group " + Quoted(rest.substr(0, 4)));
    }
    return Copy(1);
  }

  // {n}, {n,} or {n,m}; what may follow it differs between the libraries.
  Status Repeat() {
    size_t end = at_ + 1;
    while (end < in_.size() && IsDigit(in_[end])) ++end;
    const bool has_minimum = end > at_ + 1;
    if (end < in_.size() && in_[end] == ',') ++end;
    while (end < in_.size() && IsDigit(in_[end])) ++end;
    const bool closed = end < in_.size() && in_[end] == '}';
    if (!has_minimum || !closed) return Refuse(at_, "'{' that is no repeat");
    const std::string_view after = in_.substr(end + 1, 1);
    if (after == "+" || after == "?") {
      return Refuse(at_, "'+' or '?' after a repeat count");
    }
    return Copy(end + 1 - at_);
  }

  Status Copy(size_t length) {
    out_ += in_.substr(at_, length);
    at_ += length;
    return Status::Ok();
  }

  Status Refuse(size_t offset, const std::string& what) const {
    return Unsupported(
        "%s: byte %zu: %s has no agreed meaning between regular-expression "
        "libraries; write the pattern without it",
        where_.c_str(), offset, what.c_str());
  }

  std::string_view in_;
  const std::string& where_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

Result<std::string> ToPcre2Pattern(std::string_view pattern,
                                   const std::string& where) {
  return Translator(pattern, where).Run();
}

}  // namespace ecphory
