#include "trace/conditions.h"

#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <vector>

#include "io/file.h"

namespace ecphory::trace {

namespace {

// One call's answer is a byte a page: 256 KiB.
constexpr uint64_t kStepBytes = uint64_t{1} << 30;

Result<uint64_t> ResidentPages(const uint8_t* begin, uint64_t bytes,
                               uint64_t page, const std::string& path) {
  const uint64_t pages = (bytes + page - 1) / page;
  std::vector<unsigned char> state(pages);
  // The kernel's interface takes the mapping as writable; it writes nothing.
  void* const address = const_cast<uint8_t*>(begin);
  if (::mincore(address, bytes, state.data()) != 0) {
    return ErrnoError(errno, "%s: mincore", path.c_str());
  }
  return static_cast<uint64_t>(std::count_if(
      state.begin(), state.end(), [](unsigned char s) { return s & 1; }));
}

}  // namespace

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) != 0 || colon == line.npos) continue;
    return line.substr(colon + 2);
  }
  return "";
}

uint64_t MemoryBytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page = ::sysconf(_SC_PAGESIZE);
  if (pages < 0 || page < 0) return 0;
  return static_cast<uint64_t>(pages) * static_cast<uint64_t>(page);
}

std::string SystemName() {
  utsname name{};
  if (::uname(&name) != 0) return "";
  return std::string(name.sysname) + " " + name.release + " " + name.machine;
}

Result<uint64_t> ResidentBytes(const std::string& path, uint64_t offset,
                               uint64_t bytes) {
  if (bytes == 0) return uint64_t{0};
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t first = offset / page * page;  // mincore wants whole pages
  ECPHORY_ASSIGN_OR_RETURN(
      const auto mapping,
      FileMapping::Map(path, first, bytes + (offset - first)));
  const auto all = mapping->bytes();
  uint64_t resident = 0;
  for (uint64_t at = 0; at < all.size(); at += kStepBytes) {
    ECPHORY_ASSIGN_OR_RETURN(
        const uint64_t pages,
        ResidentPages(all.data() + at,
                      std::min<uint64_t>(kStepBytes, all.size() - at), page,
                      path));
    resident += pages * page;
  }
  return std::min(resident, bytes);
}

}  // namespace ecphory::trace
