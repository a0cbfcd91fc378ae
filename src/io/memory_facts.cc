#include "io/memory_facts.h"

#include <algorithm>

#include "base/checked_math.h"
#include "io/small_text.h"

namespace ecphory {

namespace {

std::optional<uint64_t> NumberIn(const std::string& path) {
  const auto text = ReadSmallText(path);
  return text ? ParseNumber(*text) : std::nullopt;
}

// What a limit leaves; caches count as used there, so this errs to the low
// side.
std::optional<uint64_t> LeftOf(const std::string& limit_path,
                               const std::string& usage_path) {
  const auto limit = NumberIn(limit_path);  // none: "max"
  const auto usage = NumberIn(usage_path);
  if (!limit || !usage) return std::nullopt;
  return *limit - std::min(*limit, *usage);
}

}  // namespace

std::optional<uint64_t> ParseMemAvailable(std::string_view meminfo) {
  constexpr std::string_view kKey = "MemAvailable:";
  const size_t at = meminfo.find(kKey);
  if (at == std::string_view::npos) return std::nullopt;
  const auto kib = ParseNumber(meminfo.substr(at + kKey.size()));
  uint64_t bytes = 0;
  if (!kib || !CheckedMul(*kib, 1024, &bytes)) return std::nullopt;
  return bytes;
}

std::optional<uint64_t> AvailableMemory(const std::string& root) {
  std::optional<uint64_t> least;
  const auto consider = [&](std::optional<uint64_t> bytes) {
    if (bytes) least = std::min(least.value_or(UINT64_MAX), *bytes);
  };
  if (const auto meminfo = ReadSmallText(root + "/proc/meminfo")) {
    consider(ParseMemAvailable(*meminfo));
  }
  // In a container, the process's own group is the root of what it sees.
  const std::string groups = root + "/sys/fs/cgroup/";
  consider(LeftOf(groups + "memory.max", groups + "memory.current"));
  consider(LeftOf(groups + "memory/memory.limit_in_bytes",
                  groups + "memory/memory.usage_in_bytes"));
  return least;
}

}  // namespace ecphory
