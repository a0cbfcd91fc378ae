#include "text/token_map.h"

#include <utf8proc.h>

#include <unordered_map>

#include "text/utf8.h"

namespace ecphory {

namespace {

using CodePoints = std::u32string;

// NFD(NFKC(text)), which is NFKD(text).
Result<CodePoints> Decompose(std::string_view utf8) {
  constexpr auto kOptions = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  // A character becomes up to 18; most stay one.
  std::vector<utf8proc_int32_t> buffer(utf8.size() * 2);
  for (;;) {
    const auto capacity = static_cast<utf8proc_ssize_t>(buffer.size());
    const utf8proc_ssize_t count = utf8proc_decompose(
        reinterpret_cast<const utf8proc_uint8_t*>(utf8.data()),
        static_cast<utf8proc_ssize_t>(utf8.size()), buffer.data(), capacity,
        kOptions);
    if (count < 0) {
      return InvalidArgument("text: cannot be normalised: %s",
                             utf8proc_errmsg(count));
    }
    if (count <= capacity)
      return CodePoints(buffer.begin(), buffer.begin() + count);
    buffer.resize(static_cast<size_t>(count));
  }
}

bool IsMark(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return true;
    default: return false;
  }
}

// Decomposed text holds no U+0130, the one character whose full lower-case
// mapping is more than one character.
char32_t ToLower(char32_t c) {
  return static_cast<char32_t>(
      utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

bool IsBlank(char32_t c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// Unicode White_Space.
bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

CodePoints Fold(const CodePoints& decomposed) {
  CodePoints out;
  bool after_blank = false;
  for (const char32_t c : decomposed) {
    if (IsMark(c)) continue;
    const bool blank = IsBlank(c);
    if (!blank) out.push_back(ToLower(c));
    if (blank && !after_blank) out.push_back(' ');
    after_blank = blank;
  }
  return out;
}

void Strip(CodePoints* text) {
  if (*text == U" ") return;
  while (!text->empty() && IsWhiteSpace(text->back())) text->pop_back();
  size_t begin = 0;
  while (begin < text->size() && IsWhiteSpace((*text)[begin])) ++begin;
  text->erase(0, begin);
}

std::string ToUtf8(const CodePoints& text) {
  std::string out;
  for (const char32_t c : text) {
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t length =
        utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
    out.append(reinterpret_cast<const char*>(bytes),
               static_cast<size_t>(length));
  }
  return out;
}

// What two tokens must have in common to share a compressed id.
Result<std::string> Key(const Tokenizer& tokenizer, int32_t id) {
  const std::string text = ReplaceInvalidUtf8(tokenizer.TokenBytes(id));
  if (text.find(kReplacementCharacter) != std::string::npos) {
    return std::string(tokenizer.TokenString(id));
  }
  ECPHORY_ASSIGN_OR_RETURN(std::string normal, NormalizeForTokenMap(text));
  return normal.empty() ? text : normal;
}

}  // namespace

Result<std::vector<int32_t>> BuildTokenMap(const Tokenizer& tokenizer) {
  std::unordered_map<std::string, int32_t> ids;
  std::vector<int32_t> map;
  map.reserve(tokenizer.vocab_size());
  for (size_t id = 0; id < tokenizer.vocab_size(); ++id) {
    ECPHORY_ASSIGN_OR_RETURN(std::string key,
                             Key(tokenizer, static_cast<int32_t>(id)));
    const auto next = static_cast<int32_t>(ids.size());
    map.push_back(ids.emplace(std::move(key), next).first->second);
  }
  return map;
}

Result<std::string> NormalizeForTokenMap(std::string_view utf8) {
  ECPHORY_ASSIGN_OR_RETURN(const CodePoints decomposed, Decompose(utf8));
  CodePoints text = Fold(decomposed);
  Strip(&text);
  return ToUtf8(text);
}

}  // namespace ecphory
