#include "io/device_facts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "io/queue_testing.h"
#include "io/test_directory.h"

namespace ecphory {
namespace {

namespace fs = std::filesystem;

// A sysfs of our own.
class FakeSys {
 public:
  // A disk with a number, e.g. Add("8:0", "pci0/block/sda", {...}).
  void Add(const std::string& number, const std::string& place,
           const std::vector<std::pair<std::string, std::string>>& files) {
    const fs::path disk = fs::path(root_.path()) / "sys/devices" / place;
    fs::create_directories(disk);
    for (const auto& [name, text] : files) {
      fs::create_directories((disk / name).parent_path());
      std::ofstream(disk / name) << text << "\n";
    }
    const fs::path links = fs::path(root_.path()) / "sys/dev/block";
    fs::create_directories(links);
    fs::create_symlink("../../devices/" + place, links / number);
  }
  void AddSlave(const std::string& place, const std::string& slave) {
    const fs::path slaves =
        fs::path(root_.path()) / "sys/devices" / place / "slaves";
    fs::create_directories(slaves);
    fs::create_symlink(fs::path(root_.path()) / "sys/devices" / slave,
                       slaves / fs::path(slave).filename());
  }
  DeviceFacts Facts(uint32_t major, uint32_t minor) const {
    return BlockDeviceFacts(root_.path(), major, minor);
  }

 private:
  TestDirectory root_;
};

TEST(DeviceFacts, DiskAndPartition) {
  FakeSys sys;
  sys.Add("259:0", "pci0/nvme/nvme0n1",
          {{"queue/rotational", "0"},
           {"queue/logical_block_size", "4096"},
           {"queue/nr_requests", "1023"},
           {"device/model", "Fast Disk 2000     "}});
  sys.Add("259:1", "pci0/nvme/nvme0n1/nvme0n1p1", {{"partition", "1"}});
  for (const uint32_t minor : {0u, 1u}) {
    const DeviceFacts facts = sys.Facts(259, minor);
    EXPECT_EQ(facts.kind, DeviceKind::kSsd);
    EXPECT_EQ(facts.device, "nvme0n1");
    EXPECT_EQ(facts.model, "Fast Disk 2000");
    EXPECT_EQ(facts.sector_bytes, 4096u);
    EXPECT_EQ(facts.queue_requests, 1023u);
  }
}

TEST(DeviceFacts, KindsOfDisk) {
  FakeSys sys;
  sys.Add("8:0", "a/sda", {{"queue/rotational", "1"}});
  sys.Add("8:16", "a/sdb",
          {{"queue/rotational", "1"}, {"device/model", "QEMU HARDDISK"}});
  sys.Add("254:0", "b/vda", {{"queue/rotational", "1"}});
  sys.Add("43:0", "virtual/nbd0", {{"queue/rotational", "0"}});
  sys.Add("253:0", "virtual/zram0", {{"queue/rotational", "0"}});
  sys.Add("8:32", "a/sdc", {});
  sys.Add("8:48", "a/sdd",
          {{"queue/rotational", "?"}, {"queue/logical_block_size", "many"}});
  EXPECT_EQ(sys.Facts(8, 0).kind, DeviceKind::kSpinning);
  EXPECT_EQ(sys.Facts(8, 16).kind, DeviceKind::kVirtual);
  EXPECT_EQ(sys.Facts(254, 0).kind, DeviceKind::kVirtual);
  EXPECT_EQ(sys.Facts(43, 0).kind, DeviceKind::kNetwork);
  EXPECT_EQ(sys.Facts(253, 0).kind, DeviceKind::kMemory);
  EXPECT_EQ(sys.Facts(8, 32).kind, DeviceKind::kUnknown);
  EXPECT_EQ(sys.Facts(8, 48).kind, DeviceKind::kUnknown);
  EXPECT_EQ(sys.Facts(8, 48).sector_bytes, 0u);
  EXPECT_EQ(sys.Facts(9, 9).device, "");
  EXPECT_EQ(DescribeDevice(sys.Facts(9, 9)), "unknown (unknown kind of disk)");
}

TEST(DeviceFacts, ThroughMappersTheSlowestDiskCounts) {
  FakeSys sys;
  sys.Add("8:0", "a/sda", {{"queue/rotational", "1"}});
  sys.Add("8:1", "a/sda/sda1", {{"partition", "1"}});
  sys.Add("259:0", "a/nvme0n1", {{"queue/rotational", "0"}});
  sys.Add("9:0", "virtual/md0", {{"queue/logical_block_size", "512"}});
  sys.AddSlave("virtual/md0", "a/nvme0n1");
  sys.AddSlave("virtual/md0", "a/sda/sda1");
  sys.Add("253:0", "virtual/dm-0",
          {{"queue/rotational", "0"}, {"queue/logical_block_size", "4096"}});
  sys.AddSlave("virtual/dm-0", "virtual/md0");
  const DeviceFacts facts = sys.Facts(253, 0);
  EXPECT_EQ(facts.kind, DeviceKind::kSpinning);
  EXPECT_EQ(facts.device, "dm-0 on md0 on sda");
  EXPECT_EQ(facts.sector_bytes, 4096u);
}

TEST(DeviceFacts, ALoopOfMappersEnds) {
  FakeSys sys;
  sys.Add("253:0", "virtual/dm-0", {});
  sys.AddSlave("virtual/dm-0", "virtual/dm-0");
  EXPECT_EQ(sys.Facts(253, 0).kind, DeviceKind::kUnknown);
}

TEST(DeviceFacts, OfThisMachine) {
  TestDirectory dir;
  WriteFile(dir / "f", FileBytes(0, 5000));
  const DeviceFacts facts = DeviceFactsOf(*OpenTable(dir / "f"));
  EXPECT_NE(facts.file_system, "");
  const DeviceFacts memory =
      DeviceFactsOf(**TableFile::Open(MakeMemoryFile("mem", FileBytes(0, 10))));
  EXPECT_EQ(DescribeDevice(memory), "memory (memory)");
}

}  // namespace
}  // namespace ecphory
