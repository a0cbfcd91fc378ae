#include "io/table_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "io/make_queue.h"
#include "io/queue_testing.h"
#include "io/small_disk.h"
#include "io/test_directory.h"

namespace ecphory {
namespace {

TEST(TableFile, BothDescriptorsAreTheFileThatWasOpened) {
  TestDirectory dir;
  WriteFile(dir / "f", FileBytes(1, 3 * kTestRead));
  const auto file = *OpenFile(dir / "f");
  // Replaced between the two opens.
  WriteFile(dir / "new", FileBytes(2, 3 * kTestRead));
  std::filesystem::rename(dir / "new", dir / "f");
  ::sync();
  const auto table = OpenTable(dir / "f");
  const auto old = *TableFile::Open(file);
  const ReadMemory memory(kTestRead);
  ASSERT_EQ(::pread(old->buffered(), memory.data(), 1, 77), 1);
  EXPECT_EQ(memory.data()[0], FileByte(1, 77));
  ASSERT_EQ(::pread(table->buffered(), memory.data(), 1, 77), 1);
  EXPECT_EQ(memory.data()[0], FileByte(2, 77));
  if (old->direct() < 0) GTEST_SKIP() << old->direct_refusal();
  EXPECT_TRUE(::fcntl(old->direct(), F_GETFL) & O_DIRECT);
  EXPECT_FALSE(::fcntl(old->buffered(), F_GETFL) & O_DIRECT);
  EXPECT_GE(old->alignment(), 512u);
  ASSERT_EQ(::pread(old->direct(), memory.data(), kTestRead, 0), kTestRead);
  EXPECT_EQ(memory.data()[77], FileByte(1, 77));
  EXPECT_EQ(old->direct_refusal(), "");
}

TEST(TableFile, AFileInMemoryHasNone) {
  const auto table = *TableFile::Open(MakeMemoryFile("mem", FileBytes(0, 10)));
  EXPECT_EQ(table->buffered(), -1);
  EXPECT_EQ(table->direct(), -1);
  EXPECT_EQ(table->alignment(), 1u);
  EXPECT_EQ(table->file_system().name, "memory");
  EXPECT_TRUE(table->CheckSize().ok());
}

TEST(TableFile, ReadsAnyBytesAndLeavesNoneInThePageCache) {
  TestDirectory dir;
  constexpr uint64_t kSize = 40 * kTestRead + 5;
  WriteFile(dir / "f", FileBytes(1, kSize));
  ::sync();
  const auto table = OpenTable(dir / "f");
  ::posix_fadvise(table->buffered(), 0, 0, POSIX_FADV_DONTNEED);
  for (const auto& [offset, size] : {std::pair<uint64_t, size_t>{0, 1},
                                     {4095, 2},
                                     {20 * kTestRead, 9000},
                                     {kSize - 300, 300},
                                     {kSize, 0}}) {
    std::vector<uint8_t> bytes(size);
    const Status status = table->ReadExact(offset, bytes);
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(bytes[i], FileByte(1, offset + i)) << offset;
    }
  }
  std::vector<uint8_t> bytes(2);
  for (const uint64_t offset : {kSize - 1, kSize + 9, UINT64_MAX - 1}) {
    EXPECT_EQ(table->ReadExact(offset, bytes).code(), StatusCode::kCorrupt);
  }
  if (table->direct() < 0) GTEST_SKIP() << table->direct_refusal();
  // The failed reads may have looked at the last pages.
  void* base =
      ::mmap(nullptr, kSize, PROT_READ, MAP_SHARED, table->buffered(), 0);
  ASSERT_NE(base, MAP_FAILED);
  unsigned char resident[41] = {};
  ASSERT_EQ(::mincore(base, kSize, resident), 0);
  ::munmap(base, kSize);
  EXPECT_EQ(std::count_if(resident, resident + 30,
                          [](unsigned char flags) { return flags & 1; }),
            0);
}

TEST(TableFile, ReadsAFileInMemory) {
  const auto table = *TableFile::Open(MakeMemoryFile("mem", FileBytes(0, 10)));
  uint8_t bytes[3];
  ASSERT_TRUE(table->ReadExact(7, bytes).ok());
  EXPECT_EQ(bytes[2], FileByte(0, 9));
  EXPECT_EQ(table->ReadExact(8, bytes).code(), StatusCode::kCorrupt);
}

TEST(TableFile, AMemoryFileSystemRefusesDirectByName) {
  SmallDisk disk(1 << 20);
  if (!disk.mounted()) GTEST_SKIP() << "mounting needs privileges";
  const std::string path = disk.directory() / "f";
  WriteFile(path, FileBytes(0, 20 * kTestRead));
  const auto table = OpenTable(path);
  EXPECT_EQ(table->direct(), -1);
  EXPECT_EQ(table->direct_refusal(), "tmpfs keeps files in memory");
  EXPECT_TRUE(table->file_system().memory);
  for (const IoMode mode :
       {IoMode::kUring, IoMode::kPread, IoMode::kBuffered}) {
    auto made = MakeQueue(mode, {&table, 1}, {.depth = 8, .threads = 2});
    ASSERT_TRUE(made.ok());
    EXPECT_FALSE(made->direct);
    if (mode == IoMode::kBuffered) {
      EXPECT_EQ(made->denied, "");
    } else {
      EXPECT_EQ(made->denied,
                "tmpfs keeps files in memory: read through the page cache");
    }
    const ReadMemory memory(20 * kTestRead);
    const auto reads = RandomReads(0, 20 * kTestRead, 20, memory.data(), 1);
    for (const int32_t result : RunReads(made->queue.get(), reads)) {
      EXPECT_EQ(result, static_cast<int32_t>(kTestRead));
    }
    for (const QueuedRead& read : reads) {
      EXPECT_TRUE(HoldsFileBytes(read, 0, kTestRead));
    }
  }
}

TEST(FileSystem, NamesByMagic) {
  EXPECT_EQ(FileSystemByMagic(0xef53).name, "ext4");
  EXPECT_TRUE(FileSystemByMagic(0x6969).network);
  EXPECT_TRUE(FileSystemByMagic(0x01021994).memory);
  EXPECT_EQ(FileSystemByMagic(0x1234).name, "unknown (0x1234)");
  EXPECT_EQ(FileSystemOf(-1).name, "unknown");
}

}  // namespace
}  // namespace ecphory
