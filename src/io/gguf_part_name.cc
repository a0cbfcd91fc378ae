#include "io/gguf_part_name.h"

#include <cstdio>

namespace ecphory {

std::string GgufPartEnding(uint64_t number, uint64_t count) {
  char text[64];
  (void)std::snprintf(text, sizeof(text), "-%05llu-of-%05llu.gguf",
                      static_cast<unsigned long long>(number),
                      static_cast<unsigned long long>(count));
  return text;
}

GgufPartName ParseGgufPartName(const std::string& path) {
  constexpr char kDigits[] = "0123456789";
  constexpr size_t kLength = sizeof("-00002-of-00005.gguf") - 1;
  if (path.size() <= kLength) return {};
  const size_t stem = path.size() - kLength;
  const std::string number = path.substr(stem + 1, 5);
  const std::string count = path.substr(stem + 10, 5);
  if ((number + count).find_first_not_of(kDigits) != std::string::npos ||
      !path.ends_with(GgufPartEnding(std::stoul(number), std::stoul(count)))) {
    return {};
  }
  return {std::stoul(count), path.substr(0, stem)};
}

}  // namespace ecphory
