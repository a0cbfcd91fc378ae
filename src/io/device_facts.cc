#include "io/device_facts.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "io/small_text.h"

namespace ecphory {

namespace {

namespace fs = std::filesystem;

// Mappers on mappers on disks; deeper is a loop.
constexpr int kMaxDepth = 8;

uint64_t NumberAt(const fs::path& path) {
  const auto text = ReadSmallText(path.string());
  return text ? ParseNumber(*text).value_or(0) : 0;
}

bool StartsWith(const std::string& text, const char* prefix) {
  return text.rfind(prefix, 0) == 0;
}

// Hypervisors report such disks as spinning or not at all alike.
bool IsVirtual(const std::string& name, const std::string& model) {
  if (StartsWith(name, "vd") || StartsWith(name, "xvd")) return true;
  for (const char* maker :
       {"QEMU", "VBOX", "Virtual", "VMware", "Amazon Elastic", "PersistentDisk",
        "EphemeralDisk", "MSFT"}) {
    if (model.find(maker) != std::string::npos) return true;
  }
  return false;
}

bool IsNetwork(const std::string& name) {
  return StartsWith(name, "nbd") || StartsWith(name, "rbd") ||
         StartsWith(name, "drbd");
}

bool IsMemory(const std::string& name) {
  return StartsWith(name, "zram") || StartsWith(name, "ram") ||
         StartsWith(name, "pmem");
}

DeviceKind KindOf(const fs::path& disk, const std::string& model) {
  const std::string name = disk.filename().string();
  if (IsMemory(name)) return DeviceKind::kMemory;
  if (IsNetwork(name)) return DeviceKind::kNetwork;
  if (IsVirtual(name, model)) return DeviceKind::kVirtual;
  const auto rotational = ReadSmallText((disk / "queue/rotational").string());
  if (rotational == "0") return DeviceKind::kSsd;
  if (rotational == "1") return DeviceKind::kSpinning;
  return DeviceKind::kUnknown;
}

int Slowness(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kMemory: return 0;
    case DeviceKind::kSsd: return 1;
    case DeviceKind::kVirtual: return 2;
    case DeviceKind::kUnknown: return 3;
    case DeviceKind::kNetwork: return 4;
    case DeviceKind::kSpinning: return 5;
  }
  return 3;
}

std::vector<fs::path> Slaves(const fs::path& disk) {
  std::vector<fs::path> slaves;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(disk / "slaves", error)) {
    slaves.push_back(fs::weakly_canonical(entry.path(), error));
  }
  std::sort(slaves.begin(), slaves.end());
  return slaves;
}

DeviceFacts DiskFacts(fs::path disk, int depth) {
  std::error_code error;
  // A partition's directory lies in its disk's.
  if (fs::exists(disk / "partition", error)) disk = disk.parent_path();
  DeviceFacts facts;
  facts.device = disk.filename().string();
  facts.model = ReadSmallText((disk / "device/model").string()).value_or("");
  facts.model.erase(facts.model.find_last_not_of(' ') + 1);
  facts.kind = KindOf(disk, facts.model);
  facts.sector_bytes =
      static_cast<uint32_t>(NumberAt(disk / "queue/logical_block_size"));
  facts.queue_requests = NumberAt(disk / "queue/nr_requests");
  if (depth == kMaxDepth) return facts;

  std::optional<DeviceFacts> slowest;
  for (const fs::path& slave : Slaves(disk)) {
    DeviceFacts below = DiskFacts(slave, depth + 1);
    if (!slowest || Slowness(below.kind) > Slowness(slowest->kind)) {
      slowest = std::move(below);
    }
  }
  if (slowest) {
    facts.kind = slowest->kind;
    facts.device += " on " + slowest->device;
    facts.model = slowest->model;
    facts.queue_requests = slowest->queue_requests;
  }
  return facts;
}

}  // namespace

const char* DeviceKindName(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kUnknown: return "unknown";
    case DeviceKind::kSsd: return "SSD";
    case DeviceKind::kSpinning: return "spinning disk";
    case DeviceKind::kVirtual: return "virtual disk";
    case DeviceKind::kNetwork: return "network";
    case DeviceKind::kMemory: return "memory";
  }
  return "unknown";
}

DeviceFacts BlockDeviceFacts(const std::string& root, uint32_t major,
                             uint32_t minor) {
  const fs::path link = fs::path(root) / "sys/dev/block" /
                        (std::to_string(major) + ":" + std::to_string(minor));
  std::error_code error;
  const fs::path disk = fs::canonical(link, error);
  DeviceFacts facts;
  if (!error) facts = DiskFacts(disk, 0);
  facts.file_system = "unknown";
  return facts;
}

DeviceFacts DeviceFactsOf(const TableFile& file) {
  DeviceFacts facts;
  struct stat info;
  const FileSystemKind& system = file.file_system();
  const bool local = !system.network && !system.memory;
  if (local && ::fstat(file.buffered(), &info) == 0) {
    facts = BlockDeviceFacts("/", major(info.st_dev), minor(info.st_dev));
  }
  if (system.network) facts.kind = DeviceKind::kNetwork;
  if (system.memory) facts.kind = DeviceKind::kMemory;
  facts.file_system = system.name;
  return facts;
}

std::string DescribeDevice(const DeviceFacts& facts) {
  std::string text = facts.file_system;
  if (!facts.device.empty()) text += " on " + facts.device;
  text += std::string(" (") + DeviceKindName(facts.kind);
  if (facts.kind == DeviceKind::kUnknown) text += " kind of disk";
  if (!facts.model.empty()) text += ", " + facts.model;
  if (facts.sector_bytes != 0) {
    text += ", " + std::to_string(facts.sector_bytes) + "-byte sectors";
  }
  return text + ")";
}

}  // namespace ecphory
