#include "io/memory_facts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "io/small_text.h"
#include "io/test_directory.h"

namespace ecphory {
namespace {

void Put(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(
      std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(ParseMemAvailable, FindsItsLine) {
  EXPECT_EQ(ParseMemAvailable("MemTotal: 9 kB\nMemAvailable:   1234 kB\n"),
            1234u * 1024);
  EXPECT_FALSE(ParseMemAvailable("MemTotal: 9 kB\n"));
  EXPECT_FALSE(ParseMemAvailable("MemAvailable: much"));
  EXPECT_FALSE(ParseMemAvailable("MemAvailable: 99999999999999999999 kB"));
  EXPECT_FALSE(ParseMemAvailable("MemAvailable: 18446744073709551615 kB"));
  EXPECT_FALSE(ParseMemAvailable("MemAvailable:"));
}

TEST(AvailableMemory, TheLeastOfMachineAndGroup) {
  TestDirectory root;
  EXPECT_FALSE(AvailableMemory(root.path()));
  Put(root / "proc/meminfo", "MemAvailable: 1000 kB\n");
  EXPECT_EQ(AvailableMemory(root.path()), 1000u * 1024);
  Put(root / "sys/fs/cgroup/memory.max", "max\n");
  Put(root / "sys/fs/cgroup/memory.current", "4096\n");
  EXPECT_EQ(AvailableMemory(root.path()), 1000u * 1024);
  Put(root / "sys/fs/cgroup/memory.max", "104096\n");
  EXPECT_EQ(AvailableMemory(root.path()), 100000u);
  Put(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", "500\n");
  Put(root / "sys/fs/cgroup/memory/memory.usage_in_bytes", "600\n");
  EXPECT_EQ(AvailableMemory(root.path()), 0u);
  EXPECT_TRUE(AvailableMemory().has_value());
}

// A group's page cache is in its count, but not in its way.
TEST(AttainableMemory, FilePagesOfAGroupAreFree) {
  TestDirectory root;
  Put(root / "proc/meminfo", "MemAvailable: 1000000 kB\n");
  Put(root / "sys/fs/cgroup/memory.max", "100000\n");
  Put(root / "sys/fs/cgroup/memory.current", "90000\n");
  EXPECT_EQ(AttainableMemory(root.path()), 10000u);
  Put(root / "sys/fs/cgroup/memory.stat",
      "anon 5\nfile 80000\nactive_file 30000\ninactive_file 40000\n");
  EXPECT_EQ(AttainableMemory(root.path()), 80000u);
  EXPECT_EQ(AvailableMemory(root.path()), 10000u);
  EXPECT_GE(*AttainableMemory(), *AvailableMemory());
}

TEST(SmallText, ReadsFilesOfUnknownSize) {
  TestDirectory dir;
  Put(dir / "f", "ext4\n\n");
  EXPECT_EQ(ReadSmallText(dir / "f"), "ext4");
  EXPECT_FALSE(ReadSmallText(dir / "none"));
  EXPECT_FALSE(ReadSmallText(dir.path()));
  EXPECT_TRUE(ReadSmallText("/proc/self/stat").has_value());
  EXPECT_EQ(ParseNumber(" 12kB"), 12u);
  EXPECT_FALSE(ParseNumber(""));
  EXPECT_FALSE(ParseNumber("-3"));
}

}  // namespace
}  // namespace ecphory
