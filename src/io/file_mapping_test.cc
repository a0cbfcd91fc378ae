#include <gtest/gtest.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/test_directory.h"

namespace ecphory {
namespace {

// File offsets of `path` that this process has mapped, from the kernel's list.
std::vector<std::pair<uint64_t, uint64_t>> MappedRanges(
    const std::string& path) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(path) == std::string::npos) continue;
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t offset = 0;
    EXPECT_EQ(std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64,
                          &begin, &end, &offset),
              3)
        << line;
    ranges.emplace_back(offset, offset + (end - begin));
  }
  return ranges;
}

class FileMappingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    page_ = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    data_.resize(8 * page_ + 100);
    for (size_t i = 0; i < data_.size(); ++i) data_[i] = (i * 131 + i / 256);
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(data_.data()),
               static_cast<std::streamsize>(data_.size()));
  }

  TestDirectory dir_;
  const std::string path_ = dir_ / "weights";
  uint64_t page_ = 0;
  std::vector<uint8_t> data_;
};

TEST_F(FileMappingTest, ShowsTheRequestedBytes) {
  for (const uint64_t offset :
       {uint64_t{0}, uint64_t{1}, page_ - 1, page_, 3 * page_ + 7, 8 * page_}) {
    const uint64_t size = std::min<uint64_t>(2 * page_, data_.size() - offset);
    const auto mapping = FileMapping::Map(path_, offset, size);
    ASSERT_TRUE(mapping.ok()) << mapping.status().ToString();
    const auto bytes = (*mapping)->bytes();
    ASSERT_EQ(bytes.size(), size);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), data_.begin() + offset));
  }
}

TEST_F(FileMappingTest, NeverMapsPagesOutsideTheRange) {
  // A page-aligned table at [3, 6) pages stays out when all else is mapped.
  const uint64_t table_begin = 3 * page_;
  const uint64_t table_end = 6 * page_;
  const auto before = FileMapping::Map(path_, 10, table_begin - 10);
  const auto after =
      FileMapping::Map(path_, table_end, data_.size() - table_end);
  ASSERT_TRUE(before.ok() && after.ok());
  uint64_t mapped = 0;
  for (const auto& [begin, end] : MappedRanges(path_)) {
    EXPECT_TRUE(end <= table_begin || begin >= table_end)
        << begin << ".." << end;
    mapped += end - begin;
  }
  EXPECT_EQ(mapped, 6 * page_);
}

TEST_F(FileMappingTest, UnmapsWhenDestroyed) {
  {
    const auto mapping = FileMapping::Map(path_, 0, page_);
    ASSERT_TRUE(mapping.ok());
    EXPECT_EQ(MappedRanges(path_).size(), 1u);
  }
  EXPECT_TRUE(MappedRanges(path_).empty());
}

TEST_F(FileMappingTest, RefusesRangesOutsideTheFile) {
  const auto past = FileMapping::Map(path_, 8 * page_, 101);
  EXPECT_EQ(past.status().code(), StatusCode::kCorrupt);
  EXPECT_NE(past.status().message().find(path_), std::string::npos);
  EXPECT_EQ(FileMapping::Map(path_, UINT64_MAX, 2).status().code(),
            StatusCode::kCorrupt);
  EXPECT_EQ(FileMapping::Map(dir_ / "none", 0, 1).status().code(),
            StatusCode::kNotFound);
}

TEST_F(FileMappingTest, EmptyRangeIsFine) {
  const auto mapping = FileMapping::Map(path_, data_.size(), 0);
  ASSERT_TRUE(mapping.ok());
  EXPECT_TRUE((*mapping)->bytes().empty());
}

}  // namespace
}  // namespace ecphory
