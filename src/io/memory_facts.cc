#include "io/memory_facts.h"

#include <algorithm>
#include <cstring>

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

// Pages of files in a group's memory.stat, which it gives back under pressure.
uint64_t FilePages(const std::string& stat_path) {
  const auto text = ReadSmallText(stat_path);
  uint64_t pages = 0;
  for (const char* key : {"inactive_file ", "active_file "}) {
    const size_t at =
        text ? ("\n" + *text).find(std::string("\n") + key) : std::string::npos;
    if (at == std::string::npos) continue;
    pages += ParseNumber(std::string_view(*text).substr(at + std::strlen(key)))
                 .value_or(0);
  }
  return pages;
}

// Least of what the machine and each kind of control group leave.
// `file_pages`: count these as left.
std::optional<uint64_t> LeastLeft(const std::string& root, bool file_pages) {
  std::optional<uint64_t> least;
  const auto consider = [&](std::optional<uint64_t> bytes,
                            const std::string& stat) {
    if (bytes && file_pages && !stat.empty()) *bytes += FilePages(stat);
    if (bytes) least = std::min(least.value_or(UINT64_MAX), *bytes);
  };
  if (const auto meminfo = ReadSmallText(root + "/proc/meminfo")) {
    consider(ParseMemAvailable(*meminfo), "");
  }
  // In a container, the process's own group is the root of what it sees.
  const std::string groups = root + "/sys/fs/cgroup/";
  consider(LeftOf(groups + "memory.max", groups + "memory.current"),
           groups + "memory.stat");
  consider(LeftOf(groups + "memory/memory.limit_in_bytes",
                  groups + "memory/memory.usage_in_bytes"),
           groups + "memory/memory.stat");
  return least;
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
  return LeastLeft(root, /*file_pages=*/false);
}

std::optional<uint64_t> AttainableMemory(const std::string& root) {
  return LeastLeft(root, /*file_pages=*/true);
}

}  // namespace ecphory
