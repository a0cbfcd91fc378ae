#include "memory.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace ecphory::cli {

namespace {

// Bytes of a line such as "VmHWM:     1234 kB" when it has this key.
void Take(const std::string& line, const char* key, uint64_t* bytes) {
  const size_t length = std::strlen(key);
  if (line.compare(0, length, key) != 0) return;
  *bytes = std::strtoull(line.c_str() + length, nullptr, 10) * 1024;
}

}  // namespace

MemoryUse ReadMemoryUse() {
  MemoryUse use;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    Take(line, "VmHWM:", &use.peak_bytes);
    Take(line, "RssAnon:", &use.anonymous_bytes);
    Take(line, "RssFile:", &use.file_bytes);
  }
  return use;
}

}  // namespace ecphory::cli
