// What lies under a file: the block device and what kind of disk it is.
#pragma once

#include <cstdint>
#include <string>

#include "ecphory/status.h"
#include "io/table_file.h"

namespace ecphory {

enum class DeviceKind : uint8_t {
  kUnknown,
  kSsd,
  kSpinning,  // random reads take milliseconds
  kVirtual,   // a virtual machine's disk: the host decides how fast it is
  kNetwork,
  kMemory,
};

// "unknown", "SSD", "spinning disk", "virtual disk", "network", "memory".
const char* DeviceKindName(DeviceKind kind);

struct DeviceFacts {
  std::string file_system;  // "ext4"; "unknown" at worst
  DeviceKind kind = DeviceKind::kUnknown;
  std::string device;  // "nvme0n1", "vda", "dm-0 on sda"; empty when unknown
  std::string model;   // as the disk calls itself, often empty
  uint32_t sector_bytes = 0;    // logical block size; 0 when unknown
  uint64_t queue_requests = 0;  // the kernel's queue for it; 0 when unknown
};

// Of an open file; what cannot be found out stays unknown.
DeviceFacts DeviceFactsOf(const TableFile& file);

// The same of a block device by number, from the sysfs under `root` (tests).
// Looks through partitions, device-mapper and md; of several disks the slowest
// kind counts.
DeviceFacts BlockDeviceFacts(const std::string& root, uint32_t major,
                             uint32_t minor);

// "ext4 on vda (virtual disk, 512-byte sectors)", one line for people.
std::string DescribeDevice(const DeviceFacts& facts);

}  // namespace ecphory
