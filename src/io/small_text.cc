#include "io/small_text.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "io/unique_fd.h"

namespace ecphory {

std::optional<std::string> ReadSmallText(const std::string& path) {
  constexpr size_t kMost = 64 << 10;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return std::nullopt;
  std::string text(kMost, '\0');
  size_t size = 0;
  while (size < kMost) {
    const ssize_t got = ::read(fd.get(), text.data() + size, kMost - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::optional<uint64_t> ParseNumber(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t");
  if (start == std::string_view::npos) return std::nullopt;
  text.remove_prefix(start);
  uint64_t number = 0;
  const auto result =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ec != std::errc()) return std::nullopt;
  return number;
}

}  // namespace ecphory
