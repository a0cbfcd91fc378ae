#include "io/file_system.h"

#include <sys/vfs.h>

#include <cinttypes>
#include <cstdio>

namespace ecphory {

namespace {

enum class Place : uint8_t { kLocal, kNetwork, kMemory };

struct Known {
  uint64_t magic;
  const char* name;
  Place place;
};

// Numbers from statfs(2) and linux/magic.h.
constexpr Known kKnown[] = {
    {0xef53, "ext4", Place::kLocal},
    {0x58465342, "xfs", Place::kLocal},
    {0x9123683e, "btrfs", Place::kLocal},
    {0xf2f52010, "f2fs", Place::kLocal},
    {0xca451a4e, "bcachefs", Place::kLocal},
    {0x2fc12fc1, "zfs", Place::kLocal},
    {0x52654973, "reiserfs", Place::kLocal},
    {0x3153464a, "jfs", Place::kLocal},
    {0x4d44, "vfat", Place::kLocal},
    {0x2011bab0, "exfat", Place::kLocal},
    {0x5346544e, "ntfs", Place::kLocal},
    {0x7366746e, "ntfs3", Place::kLocal},
    {0x9660, "iso9660", Place::kLocal},
    {0x73717368, "squashfs", Place::kLocal},
    {0xe0f5e1e2, "erofs", Place::kLocal},
    {0x794c7630, "overlay", Place::kLocal},
    {0xf15f, "ecryptfs", Place::kLocal},
    {0x65735546, "fuse", Place::kLocal},
    {0x01021994, "tmpfs", Place::kMemory},
    {0x858458f6, "ramfs", Place::kMemory},
    {0x958458f6, "hugetlbfs", Place::kMemory},
    {0x6969, "nfs", Place::kNetwork},
    {0x517b, "smb", Place::kNetwork},
    {0xff534d42, "cifs", Place::kNetwork},
    {0xfe534d42, "smb2", Place::kNetwork},
    {0x01021997, "9p", Place::kNetwork},
    {0x00c36400, "ceph", Place::kNetwork},
    {0x0bd00bd0, "lustre", Place::kNetwork},
    {0x47504653, "gpfs", Place::kNetwork},
    {0x19830326, "beegfs", Place::kNetwork},
    {0x5346414f, "afs", Place::kNetwork},
    {0x7461636f, "ocfs2", Place::kNetwork},
    {0x01161970, "gfs2", Place::kNetwork},
};

}  // namespace

FileSystemKind FileSystemByMagic(uint64_t magic) {
  for (const Known& known : kKnown) {
    if (known.magic != magic) continue;
    return {known.name, known.place == Place::kNetwork,
            known.place == Place::kMemory};
  }
  char name[40];
  std::snprintf(name, sizeof(name), "unknown (0x%" PRIx64 ")", magic);
  return {name, false, false};
}

FileSystemKind FileSystemOf(int descriptor) {
  struct statfs info;
  if (::fstatfs(descriptor, &info) != 0) return {"unknown", false, false};
  // f_type is signed and narrower than 64 bits on some systems.
  return FileSystemByMagic(static_cast<uint32_t>(info.f_type));
}

}  // namespace ecphory
