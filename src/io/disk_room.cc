#include "io/disk_room.h"

#include "base/size_text.h"
#include "io/file.h"

namespace ecphory {

Status CheckDiskRoom(const std::string& path, uint64_t bytes) {
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t free_bytes, FreeDiskBytes(path));
  if (free_bytes >= bytes) return {};
  return ResourceExhausted(
      "%s: needs %s, the disk has %s free; make room or give another output "
      "path",
      path.c_str(), SizeText(bytes).c_str(), SizeText(free_bytes).c_str());
}

}  // namespace ecphory
