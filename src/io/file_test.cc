#include "io/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>
#include <vector>

#include "io/fault_file.h"
#include "io/read_fully.h"
#include "io/test_directory.h"

namespace ecphory {
namespace {

std::vector<uint8_t> Bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

void Put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST(PosixFile, ReadsAtAnyOffset) {
  TestDirectory dir;
  Put(dir / "f", "0123456789");
  const auto file = OpenFile(dir / "f");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ((*file)->size(), 10u);
  EXPECT_EQ((*file)->path(), dir / "f");
  std::vector<uint8_t> out(4);
  ASSERT_TRUE((*file)->ReadExact(6, out).ok());
  EXPECT_EQ(out, Bytes("6789"));
  EXPECT_TRUE((*file)->ReadExact(10, {}).ok());
}

TEST(PosixFile, ReadPastTheEndNamesFileAndRange) {
  TestDirectory dir;
  Put(dir / "f", "0123456789");
  const auto file = OpenFile(dir / "f");
  ASSERT_TRUE(file.ok());
  std::vector<uint8_t> out(4);
  const Status status = (*file)->ReadExact(7, out);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_EQ(status.message(), dir / "f" +
                                  ": 4 bytes at offset 7 reach past the end "
                                  "(10 bytes)");
  EXPECT_EQ((*file)->ReadExact(UINT64_MAX - 1, out).code(),
            StatusCode::kCorrupt);
}

TEST(PosixFile, FileThatShrankAfterOpenIsCorrupt) {
  TestDirectory dir;
  Put(dir / "f", "0123456789");
  const auto file = OpenFile(dir / "f");
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(::truncate((dir / "f").c_str(), 5), 0);
  std::vector<uint8_t> out(8);
  const Status status = (*file)->ReadExact(0, out);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("ends at byte 5, 3 more"), std::string::npos)
      << status.message();
}

TEST(PosixFile, OnlyRegularFilesOpen) {
  TestDirectory dir;
  EXPECT_EQ(OpenFile(dir / "missing").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(OpenFile(dir.path()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenFile("/dev/zero").status().code(),
            StatusCode::kInvalidArgument);
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(OpenFile(dir / "fifo").status().code(),
            StatusCode::kInvalidArgument);
}

TEST(PosixFile, ReadsBeyondFourGigabytesOfASparseFile) {
  TestDirectory dir;
  const uint64_t offset = (uint64_t{1} << 32) + 12345;
  const int fd = ::open((dir / "f").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::pwrite(fd, "far", 3, static_cast<off_t>(offset)), 3);
  ::close(fd);
  const auto file = OpenFile(dir / "f");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->size(), offset + 3);
  std::vector<uint8_t> out(5);
  ASSERT_TRUE((*file)->ReadExact(offset - 2, out).ok());
  EXPECT_EQ(out, Bytes(std::string("\0\0far", 5)));
  // The same offset taken modulo 2^32 holds zeros.
  ASSERT_TRUE((*file)->ReadExact(12343, out).ok());
  EXPECT_EQ(out, std::vector<uint8_t>(5, 0));

  const auto mapping = FileMapping::Map(dir / "f", offset - 1, 4);
  ASSERT_TRUE(mapping.ok());
  EXPECT_EQ(std::memcmp((*mapping)->bytes().data(), "\0far", 4), 0);
}

// Stands in for pread: gives out scripted results, 'x' for every byte read.
struct ScriptedRead {
  struct Step {
    ssize_t count;
    int error;
  };
  mutable std::deque<Step> steps;
  mutable std::vector<uint64_t> offsets;

  ssize_t operator()(uint8_t* bytes, size_t count, uint64_t offset) const {
    const Step step = steps.front();
    steps.pop_front();
    offsets.push_back(offset);
    errno = step.error;
    if (step.count > 0) {
      std::memset(bytes, 'x', std::min<size_t>(count, step.count));
    }
    return step.count;
  }
};

TEST(ReadFully, ContinuesShortReadsAndRetriesEintr) {
  ScriptedRead read{{{3, 0}, {-1, EINTR}, {1, 0}, {-1, EINTR}, {6, 0}}, {}};
  std::vector<uint8_t> out(10);
  ASSERT_TRUE(ReadFully("f", 100, out, read).ok());
  EXPECT_EQ(out, std::vector<uint8_t>(10, 'x'));
  EXPECT_EQ(read.offsets, (std::vector<uint64_t>{100, 103, 103, 104, 104}));
}

TEST(ReadFully, ReportsEndOfFileAndErrors) {
  std::vector<uint8_t> out(10);
  const Status early =
      ReadFully("f", 100, out, ScriptedRead{{{3, 0}, {0, 0}}, {}});
  EXPECT_EQ(early.code(), StatusCode::kCorrupt);
  EXPECT_EQ(early.message(), "f: ends at byte 103, 7 more bytes expected");
  const Status failed =
      ReadFully("f", 100, out, ScriptedRead{{{3, 0}, {-1, EIO}}, {}});
  EXPECT_EQ(failed.code(), StatusCode::kIoError);
  EXPECT_EQ(failed.message(), "f: cannot read: Input/output error");
}

TEST(MemoryFile, CopiesAndChecksRanges) {
  std::vector<uint8_t> bytes = Bytes("abcdef");
  const auto file = MakeMemoryFile("mem", bytes);
  bytes[0] = 'z';
  std::vector<uint8_t> out(6);
  ASSERT_TRUE(file->ReadExact(0, out).ok());
  EXPECT_EQ(out, Bytes("abcdef"));
  const Status status = file->ReadExact(3, std::span(out).first(4));
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("mem: 4 bytes at offset 3"),
            std::string::npos);
}

TEST(FaultFile, FailsByRange) {
  FaultPlan plan;
  plan.bad_begin = 4;
  plan.bad_end = 6;
  const auto file =
      MakeFaultFile(MakeMemoryFile("mem", Bytes("0123456789")), plan);
  std::vector<uint8_t> out(2);
  EXPECT_TRUE(file->ReadExact(2, out).ok());
  EXPECT_EQ(file->ReadExact(3, out).code(), StatusCode::kIoError);
  EXPECT_EQ(file->ReadExact(5, out).code(), StatusCode::kIoError);
  EXPECT_TRUE(file->ReadExact(6, out).ok());
  EXPECT_EQ(file->reads(), 4u);
  EXPECT_EQ(file->bytes_read(), 4u);
}

TEST(FaultFile, FailsByNumber) {
  FaultPlan plan;
  plan.fail_read = 1;
  const auto inner = MakeMemoryFile("mem", Bytes("0123456789"));
  std::vector<uint8_t> out(2);
  const auto once = MakeFaultFile(inner, plan);
  EXPECT_TRUE(once->ReadExact(0, out).ok());
  EXPECT_EQ(once->ReadExact(0, out).code(), StatusCode::kIoError);
  EXPECT_TRUE(once->ReadExact(0, out).ok());

  plan.fail_from_then_on = true;
  const auto dead = MakeFaultFile(inner, plan);
  EXPECT_TRUE(dead->ReadExact(0, out).ok());
  EXPECT_EQ(dead->ReadExact(0, out).code(), StatusCode::kIoError);
  EXPECT_EQ(dead->ReadExact(0, out).code(), StatusCode::kIoError);
}

TEST(FaultFile, LosesItsTail) {
  FaultPlan plan;
  plan.truncated_at = 5;
  const auto file =
      MakeFaultFile(MakeMemoryFile("mem", Bytes("0123456789")), plan);
  std::vector<uint8_t> out(2);
  EXPECT_EQ(file->size(), 10u);
  EXPECT_TRUE(file->ReadExact(3, out).ok());
  EXPECT_EQ(file->ReadExact(4, out).code(), StatusCode::kCorrupt);
}

TEST(ReadWholeFile, RefusesMoreThanItsLimit) {
  TestDirectory dir;
  Put(dir / "f", "0123456789");
  const auto text = ReadWholeFile(dir / "f", 10);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, "0123456789");
  const auto refused = ReadWholeFile(dir / "f", 9);
  EXPECT_EQ(refused.status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(ReadWholeFile(dir / "none", 9).status().code(),
            StatusCode::kNotFound);
}

TEST(FreeDiskBytes, WorksForFilesThatDoNotExistYet) {
  TestDirectory dir;
  const auto here = FreeDiskBytes(dir.path());
  ASSERT_TRUE(here.ok());
  const auto planned = FreeDiskBytes(dir / "new.gguf");
  ASSERT_TRUE(planned.ok());
  EXPECT_GT(*planned, 0u);
  EXPECT_TRUE(FreeDiskBytes("new-file-in-the-current-directory").ok());
  EXPECT_EQ(FreeDiskBytes(dir / "no/such/file").status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace ecphory
