#include "npy.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "file_text.h"

namespace ecphory::cli {
namespace {

class NpyTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "npy_test_XXXXXX";
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) { return directory_ + "/" + name; }
  std::string Save(const std::string& bytes) {
    std::ofstream(Path("in.npy"), std::ios::binary) << bytes;
    return Path("in.npy");
  }
  size_t FilesInDirectory() {
    using std::filesystem::directory_iterator;
    return static_cast<size_t>(
        std::distance(directory_iterator(directory_), directory_iterator()));
  }

  std::string directory_;
};

// A version 1 file, padded as NumPy pads it.
std::string Npy(const std::string& descr, const std::string& shape,
                const std::string& data) {
  std::string header = "{'descr': '" + descr +
                       "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00", 8) + std::string("\x76\x00", 2) +
         header + "\n" + data;
}

TEST_F(NpyTest, ReadsEveryWidth) {
  using V = std::vector<int64_t>;
  const std::string ff(8, '\xFF');
  const auto read = [&](const std::string& descr, const std::string& data) {
    Result<V> values = ReadNpyInts(Save(Npy(descr, "1,", data)));
    EXPECT_TRUE(values.ok()) << values.status().ToString();
    return values.ok() ? values->at(0) : 0;
  };
  EXPECT_EQ(read("|u1", ff.substr(0, 1)), 255);
  EXPECT_EQ(read("|i1", ff.substr(0, 1)), -1);
  EXPECT_EQ(read("|b1", "\x01"), 1);
  EXPECT_EQ(read("<u2", ff.substr(0, 2)), 65535);
  EXPECT_EQ(read("<i2", ff.substr(0, 2)), -1);
  EXPECT_EQ(read("<i4", std::string("\x01\x02\x00\x00", 4)), 513);
  EXPECT_EQ(read("<i8", ff), -1);
}

TEST_F(NpyTest, ReadsLengths) {
  const std::string three("\x01\x02\x03", 3);
  EXPECT_EQ(ReadNpyInts(Save(Npy("|u1", "3,", three)))->size(), 3u);
  EXPECT_EQ(ReadNpyInts(Save(Npy("|u1", "1, 3", three)))->size(), 3u);
  EXPECT_EQ(ReadNpyInts(Save(Npy("|u1", "0,", "")))->size(), 0u);
}

struct BadFile {
  const char* name;
  std::string bytes;
  StatusCode code;
  const char* message;
};

TEST_F(NpyTest, RefusesDamagedAndForeignFiles) {
  const std::string data(3, '\0');
  const std::string good = Npy("|u1", "3,", data);
  const BadFile rows[] = {
      {"empty", "", StatusCode::kCorrupt, "magic"},
      {"magic only", good.substr(0, 6), StatusCode::kCorrupt, "magic"},
      {"other magic", "PK" + good.substr(2), StatusCode::kCorrupt, "magic"},
      {"version 9", std::string(good).replace(6, 1, "\x09"),
       StatusCode::kUnsupported, "version 9"},
      {"cut header", good.substr(0, 60), StatusCode::kCorrupt, "longer"},
      {"cut data", good.substr(0, good.size() - 1), StatusCode::kCorrupt,
       "2 bytes of data, expected 3"},
      {"more data", good + "x", StatusCode::kCorrupt, "4 bytes of data"},
      {"floats", Npy("<f4", "3,", data), StatusCode::kUnsupported, "'<f4'"},
      {"big-endian", Npy(">i4", "3,", data), StatusCode::kUnsupported, "'>i4'"},
      {"two dimensions", Npy("|u1", "3, 1", data), StatusCode::kUnsupported,
       "(3, 1)"},
      {"two sequences", Npy("|u1", "11, 3", data), StatusCode::kUnsupported,
       "(11, 3)"},
      {"three dimensions", Npy("|u1", "1, 1, 3", data),
       StatusCode::kUnsupported, "(1, 1, 3)"},
      {"no dimension", Npy("|u1", "", "x"), StatusCode::kUnsupported, "()"},
      {"huge length", Npy("<i8", "2305843009213693952,", ""),
       StatusCode::kCorrupt, "0 bytes of data"},
      {"no descr", std::string(good).replace(12, 5, "xxxxx"),
       StatusCode::kCorrupt, "'descr'"},
  };
  for (const BadFile& row : rows) {
    const Status status = ReadNpyInts(Save(row.bytes)).status();
    EXPECT_EQ(status.code(), row.code) << row.name << ": " << status.ToString();
    EXPECT_NE(status.message().find(row.message), std::string::npos)
        << row.name << ": " << status.ToString();
  }
  EXPECT_EQ(ReadNpyInts(Path("missing.npy")).status().code(),
            StatusCode::kNotFound);
}

TEST_F(NpyTest, WritesWhatItReads) {
  auto writer = NpyWriter::Create(Path("out.npy"), NpyType::kI32, {});
  ASSERT_TRUE(writer.ok());
  const int32_t values[] = {1, -2, 3};
  ASSERT_TRUE((*writer)->AppendRows(values, 2).ok());
  ASSERT_TRUE((*writer)->AppendRows(values + 2, 1).ok());
  EXPECT_FALSE(std::filesystem::exists(Path("out.npy")));
  ASSERT_TRUE((*writer)->Commit().ok());
  EXPECT_EQ(*ReadNpyInts(Path("out.npy")), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(FilesInDirectory(), 1u);
}

TEST_F(NpyTest, WritesRowsWithTheirShape) {
  auto writer = NpyWriter::Create(Path("out.npy"), NpyType::kF32, {2, 3});
  ASSERT_TRUE(writer.ok());
  const float values[12] = {};
  ASSERT_TRUE((*writer)->AppendRows(values, 2).ok());
  ASSERT_TRUE((*writer)->Commit().ok());
  const std::string bytes = *ReadFileText(Path("out.npy"), 4096);
  EXPECT_EQ(bytes.size(), 256u + sizeof(values));
  EXPECT_NE(bytes.find("'<f4', 'fortran_order': False, 'shape': (2, 2, 3,)"),
            std::string::npos);
  EXPECT_EQ(bytes[255], '\n');
}

TEST_F(NpyTest, WidensRowsAlreadyWritten) {
  auto writer = NpyWriter::Create(Path("out.npy"), NpyType::kI32, {0});
  ASSERT_TRUE(writer.ok());
  const int32_t values[] = {1, 2, 3, 4, 5, 6, 7};
  ASSERT_TRUE((*writer)->AppendRows(values, 1).ok());  // a row of nothing
  ASSERT_TRUE((*writer)->Widen(2).ok());
  ASSERT_TRUE((*writer)->AppendRows(values, 2).ok());
  ASSERT_TRUE((*writer)->Widen(3).ok());
  ASSERT_TRUE((*writer)->AppendRows(values + 4, 1).ok());
  ASSERT_TRUE((*writer)->Commit().ok());
  const std::string bytes = *ReadFileText(Path("out.npy"), 4096);
  EXPECT_NE(bytes.find("'shape': (4, 3,)"), std::string::npos);
  const int32_t expected[] = {-1, -1, -1, 1, 2, -1, 3, 4, -1, 5, 6, 7};
  ASSERT_EQ(bytes.size(), 256u + sizeof(expected));
  EXPECT_EQ(std::memcmp(bytes.data() + 256, expected, sizeof(expected)), 0);
}

TEST_F(NpyTest, LeavesNothingWithoutCommit) {
  {
    auto writer = NpyWriter::Create(Path("out.npy"), NpyType::kU8, {});
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(FilesInDirectory(), 1u);
  }
  EXPECT_EQ(FilesInDirectory(), 0u);
}

TEST_F(NpyTest, NeverReplacesADevice) {
  EXPECT_EQ(NpyWriter::Create("/dev/null", NpyType::kU8, {}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(NpyWriter::Create(directory_, NpyType::kU8, {}).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ecphory::cli
