#include "format/strict_json.h"

#include <exception>

namespace ecphory {

Status StrictJsonHandler::Parse(std::string_view text) {
  // The parser takes a NUL for the end of its input and would ignore the rest.
  const size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    return Corrupt("not valid JSON: NUL at byte %zu", nul);
  }
  try {
    if (nlohmann::json::sax_parse(text.begin(), text.end(), this)) {
      return Status::Ok();
    }
  } catch (const std::exception& exception) {
    return Corrupt("JSON cannot be read: %s", exception.what());
  }
  return Corrupt("%s", error_.c_str());
}

bool StrictJsonHandler::parse_error(size_t position, const std::string&,
                                    const nlohmann::json::exception&) {
  return Fail("not valid JSON at byte " + std::to_string(position));
}

}  // namespace ecphory
