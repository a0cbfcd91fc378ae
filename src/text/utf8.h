// Strict UTF-8, one character at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ecphory {

inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";

struct Utf8Step {
  enum class Kind {
    kCharacter,
    kIncomplete,  // all of the text is a proper prefix of some character
    kInvalid,     // no character begins with these bytes; length is 1
  };
  Kind kind;
  uint32_t code_point;  // kCharacter only
  size_t length;        // bytes
};

// Looks at the start of `text`, which must not be empty. Surrogates, overlong
// forms and values above U+10FFFF are invalid.
Utf8Step NextUtf8(std::string_view text);

// Replaces each byte that is no part of a whole character by U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);

// `text` with each invalid byte replaced by U+FFFD, and the way back to the
// original lengths. Valid text is not copied.
class ValidUtf8 {
 public:
  // `text` must outlive this object.
  explicit ValidUtf8(std::string_view text);
  ValidUtf8(const ValidUtf8&) = delete;
  ValidUtf8& operator=(const ValidUtf8&) = delete;

  std::string_view text() const { return text_; }
  // The length in the original text of `part`, a view into text() that cuts no
  // character.
  size_t OriginalLength(std::string_view part) const;

 private:
  std::string replaced_;         // only when something was invalid
  std::vector<size_t> offsets_;  // of the replacements, ascending
  std::string_view text_;
};

}  // namespace ecphory
