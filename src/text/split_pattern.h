// Split patterns: the dialect of tokenizer.json, rewritten for PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "ecphory/status.h"

namespace ecphory {

// The reference tokenizer matches with Oniguruma and Unicode 16. This keeps the
// constructs that mean the same in both libraries and spells out the rest:
//   \s, \S   the White_Space characters (PCRE2 has U+180E too)
//   \d, \D   general category Nd
//   \p{..}   general categories, with the characters of newer Unicode versions
//            that the installed PCRE2 may not know, so that ids do not depend
//            on the machine
// Anything that the two read differently (\w, \b, anchors, nested classes,
// recursion, verbs...) is refused by name, never guessed. `where` names the
// pattern in errors.
Result<std::string> ToPcre2Pattern(std::string_view pattern,
                                   const std::string& where);

}  // namespace ecphory
