#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "ecphory/partial_files.h"
#include "io/file.h"
#include "io/file_size_limit.h"
#include "io/small_disk.h"
#include "io/test_directory.h"

namespace ecphory {
namespace {

using Names = std::vector<std::string>;

std::span<const uint8_t> Span(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string Read(const std::string& path) {
  const auto text = ReadWholeFile(path, 1 << 30);
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  return text.ok() ? *text : "";
}

TEST(AtomicFileWriter, AppearsOnlyAtCommit) {
  TestDirectory dir;
  auto writer = AtomicFileWriter::Create(dir / "out");
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Write(Span("abc")).ok());
  ASSERT_TRUE((*writer)->WriteZeros(2).ok());
  EXPECT_EQ((*writer)->size(), 5u);
  EXPECT_NE(dir.List(), Names{"out"});
  ASSERT_TRUE((*writer)->Commit().ok());
  EXPECT_EQ(dir.List(), Names{"out"});
  writer->reset();
  EXPECT_EQ(Read(dir / "out"), std::string("abc\0\0", 5));
}

TEST(AtomicFileWriter, KeepsOrderAcrossItsBuffer) {
  TestDirectory dir;
  auto writer = AtomicFileWriter::Create(dir / "out");
  ASSERT_TRUE(writer.ok());
  std::string expected;
  // Sizes around the buffer: small ones collect, large ones pass through.
  for (const size_t size :
       {1u, 1000u, (1u << 20) - 1, 1u << 20, 3u, (5u << 20) + 1, 7u}) {
    const std::string piece(size,
                            static_cast<char>('a' + expected.size() % 26));
    ASSERT_TRUE((*writer)->Write(Span(piece)).ok());
    expected += piece;
  }
  ASSERT_TRUE((*writer)->WriteZeros(10000).ok());
  expected += std::string(10000, '\0');
  ASSERT_TRUE((*writer)->Commit().ok());
  EXPECT_EQ(Read(dir / "out"), expected);
}

TEST(AtomicFileWriter, WithoutCommitTheOldFileStays) {
  TestDirectory dir;
  {
    auto writer = AtomicFileWriter::Create(dir / "out");
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Write(Span("old")).ok());
    ASSERT_TRUE((*writer)->Commit().ok());
  }
  {
    auto writer = AtomicFileWriter::Create(dir / "out");
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->WriteZeros(3 << 20).ok());
  }
  EXPECT_EQ(dir.List(), Names{"out"});
  EXPECT_EQ(Read(dir / "out"), "old");
}

TEST(AtomicFileWriter, TwoWritersOfOnePathDoNotMix) {
  TestDirectory dir;
  auto a = AtomicFileWriter::Create(dir / "out");
  auto b = AtomicFileWriter::Create(dir / "out");
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_TRUE((*a)->Write(Span("aa")).ok());
  ASSERT_TRUE((*b)->Write(Span("b")).ok());
  ASSERT_TRUE((*a)->Commit().ok());
  ASSERT_TRUE((*b)->Commit().ok());
  EXPECT_EQ(Read(dir / "out"), "b");
  EXPECT_EQ(dir.List(), Names{"out"});
}

TEST(AtomicFileWriter, RefusesWhatARenameWouldDestroy) {
  TestDirectory dir;
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  for (const std::string& path : {dir / "fifo", dir.path()}) {
    const auto writer = AtomicFileWriter::Create(path);
    EXPECT_EQ(writer.status().code(), StatusCode::kInvalidArgument) << path;
  }
  EXPECT_EQ(AtomicFileWriter::Create(dir / "no/such/out").status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(dir.List(), Names{"fifo"});
}

TEST(AtomicFileWriter, FileSizeLimitIsResourceExhausted) {
  TestDirectory dir;
  {
    auto writer = AtomicFileWriter::Create(dir / "out");
    ASSERT_TRUE(writer.ok());
    const FileSizeLimit limit(256 << 10);
    const Status status = (*writer)->WriteZeros(4 << 20);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find(dir / "out"), std::string::npos)
        << status.message();
  }
  EXPECT_TRUE(dir.List().empty());
}

TEST(AtomicFileWriter, FullDiskIsResourceExhausted) {
  const SmallDisk disk(256 << 10);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk needs root";
  const TestDirectory& dir = disk.directory();
  {
    auto writer = AtomicFileWriter::Create(dir / "out");
    ASSERT_TRUE(writer.ok());
    const Status status = (*writer)->WriteZeros(4 << 20);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find("No space left"), std::string::npos)
        << status.message();
  }
  EXPECT_TRUE(dir.List().empty());
  const auto free_bytes = FreeDiskBytes(dir / "out");
  ASSERT_TRUE(free_bytes.ok());
  EXPECT_LE(*free_bytes, 256u << 10);
}

}  // namespace
}  // namespace ecphory
