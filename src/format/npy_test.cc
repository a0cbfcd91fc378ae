#include "format/npy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/little_endian.h"
#include "io/file.h"
#include "io/file_size_limit.h"
#include "io/test_directory.h"

namespace ecphory {
namespace {

std::string Npy(const std::string& header, const std::string& data,
                char version = 1) {
  std::string out = "\x93NUMPY";
  out += version;
  out += '\0';
  if (version == 1) {
    AppendLE(static_cast<uint16_t>(header.size()), &out);
  } else {
    AppendLE(static_cast<uint32_t>(header.size()), &out);
  }
  return out + header + data;
}

std::string Header(const std::string& dtype, const std::string& shape) {
  return "{'descr': '" + dtype +
         "', 'fortran_order': False, 'shape': " + shape + ", }\n";
}

Result<NpyArray> Parse(const std::string& bytes) {
  return ParseNpy(
      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "x.npy");
}

template <typename T>
std::string Data(std::initializer_list<T> values) {
  std::string out;
  for (const T value : values) AppendLE(value, &out);
  return out;
}

TEST(Npy, ReadsEveryIntegerType) {
  const std::vector<std::pair<const char*, std::string>> rows = {
      {"|i1", Data<int8_t>({-1, 2})},  {"|u1", Data<uint8_t>({255, 2})},
      {"<i2", Data<int16_t>({-1, 2})}, {"<u2", Data<uint16_t>({65535, 2})},
      {"<i4", Data<int32_t>({-1, 2})}, {"<u4", Data<uint32_t>({~0u, 2})},
      {"<i8", Data<int64_t>({-1, 2})}, {"<u8", Data<uint64_t>({7, 2})},
      {"|b1", Data<uint8_t>({1, 0})},
  };
  const std::vector<int64_t> first = {-1,         255, -1, 65535, -1,
                                      4294967295, -1,  7,  1};
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto array =
        Parse(Npy(Header(rows[i].first, "(2,)"), rows[i].second));
    ASSERT_TRUE(array.ok()) << array.status().ToString();
    EXPECT_EQ(array->count(), 2u);
    const auto values = array->AsInt64();
    ASSERT_TRUE(values.ok()) << rows[i].first;
    EXPECT_EQ((*values)[0], first[i]) << rows[i].first;
    EXPECT_FALSE(array->AsFloat().ok());
  }
}

TEST(Npy, RefusesIntegersThatDoNotFit) {
  const auto array =
      Parse(Npy(Header("<u8", "(1,)"), Data<uint64_t>({uint64_t{1} << 63})));
  ASSERT_TRUE(array.ok());
  EXPECT_EQ(array->AsInt64().status().code(), StatusCode::kInvalidArgument);
}

TEST(Npy, ReadsFloats) {
  const auto single = Parse(Npy(Header("<f4", "(1, 2)"), Data({1.5f, -2.0f})));
  ASSERT_TRUE(single.ok()) << single.status().ToString();
  EXPECT_EQ(single->shape, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(*single->AsFloat(), (std::vector<float>{1.5f, -2.0f}));
  EXPECT_FALSE(single->AsInt64().ok());
  const auto wide = Parse(Npy(Header("<f8", "()"), Data({0.1}), 2));
  ASSERT_TRUE(wide.ok()) << wide.status().ToString();
  EXPECT_TRUE(wide->shape.empty());
  EXPECT_EQ(*wide->AsFloat(), std::vector<float>{0.1f});
}

TEST(Npy, AcceptsOtherSpellingsOfTheHeader) {
  const auto array = Parse(
      Npy("{ \"shape\":(2),'fortran_order':False,'descr':\"|u1\" }   ", "ab"));
  ASSERT_TRUE(array.ok()) << array.status().ToString();
  EXPECT_EQ(array->count(), 2u);
}

TEST(Npy, NamesEveryDefect) {
  using enum StatusCode;
  const std::string data8(8, 'x');
  const struct {
    std::string bytes;
    StatusCode code;
    const char* fragment;
  } rows[] = {
      {"", kCorrupt, "not an .npy file"},
      {"\x93NUMPY\x01", kCorrupt, "not an .npy file"},
      {std::string("PK\x03\x04") + std::string(60, 'x'), kCorrupt,
       "not an .npy file"},
      {Npy(Header("<f4", "(2,)"), data8, 3), kUnsupported, ".npy version 3"},
      {Npy(Header("<f4", "(2,)"), "").substr(0, 30), kCorrupt,
       "header of 58 bytes, only 20 follow"},
      {Npy(Header("<f4", "(2,)"), "1234567"), kCorrupt,
       "<f4 [2] takes 8 bytes, 7 are stored"},
      {Npy(Header("<f4", "(2,)"), "123456789"), kCorrupt, "9 are stored"},
      {Npy(Header(">f4", "(2,)"), data8), kUnsupported, "dtype '>f4'"},
      {Npy(Header("<c8", "(1,)"), data8), kUnsupported, "dtype '<c8'"},
      {Npy(Header("|O", "(1,)"), data8), kUnsupported, "dtype '|O'"},
      {Npy(Header("<f4", "(4611686018427387904, 4)"), data8), kCorrupt,
       "is too large"},
      {Npy(Header("<f4", "(99999999999999999999,)"), data8), kCorrupt,
       "expected a tuple of sizes"},
      {Npy(Header("<f4", "(-2,)"), data8), kCorrupt, "a tuple of sizes"},
      {Npy(Header("<f4", "[2]"), data8), kCorrupt, "a tuple of sizes"},
      {Npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2,)}", data8),
       kUnsupported, "fortran_order True"},
      {Npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", data8),
       kCorrupt, "expected False"},
      {Npy("{'descr': '<f4', 'shape': (2,)}", data8), kCorrupt, "lacks"},
      {Npy("{'descr': '<f4', 'descr': '<f4'}", data8), kCorrupt,
       "'descr' appears twice"},
      {Npy("{'color': 'red'}", data8), kCorrupt, "unknown key 'color'"},
      {Npy("{'descr': '<f4'", data8), kCorrupt, "expected ',' or '}'"},
      {Npy("{'descr", data8), kCorrupt, "expected a key"},
      {Npy("", data8), kCorrupt, "expected '{'"},
      {Npy(Header("<f4", "(2,)") + "x", data8), kCorrupt, "nothing more"},
  };
  for (const auto& row : rows) {
    const auto array = Parse(row.bytes);
    ASSERT_FALSE(array.ok()) << row.fragment;
    const std::string& message = array.status().message();
    EXPECT_EQ(array.status().code(), row.code) << message;
    EXPECT_NE(message.find(row.fragment), std::string::npos) << message;
    EXPECT_EQ(message.rfind("x.npy: ", 0), 0u) << message;
  }
}

TEST(Npy, RoundTrips) {
  TestDirectory dir;
  const std::vector<float> floats = {0.0f, -0.0f, 1e-45f, INFINITY, 3.5f, 6.0f};
  ASSERT_TRUE(WriteNpyF32(dir / "f", floats, {2, 3}).ok());
  const auto f = ReadNpy(dir / "f", 1 << 20);
  ASSERT_TRUE(f.ok()) << f.status().ToString();
  EXPECT_EQ(f->shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(*f->AsFloat(), floats);

  const std::vector<int32_t> ints = {INT32_MIN, -1, INT32_MAX};
  ASSERT_TRUE(WriteNpyI32(dir / "i", ints, {3}).ok());
  const auto i = ReadNpy(dir / "i", 1 << 20);
  ASSERT_TRUE(i.ok()) << i.status().ToString();
  EXPECT_EQ(*i->AsInt64(), (std::vector<int64_t>{INT32_MIN, -1, INT32_MAX}));

  ASSERT_TRUE(WriteNpyU8(dir / "u", {}, {0, 7}).ok());
  const auto u = ReadNpy(dir / "u", 1 << 20);
  ASSERT_TRUE(u.ok()) << u.status().ToString();
  EXPECT_EQ(u->count(), 0u);
}

TEST(Npy, WritesAnAlignedVersion1Header) {
  TestDirectory dir;
  const std::vector<float> values = {1.0f};
  ASSERT_TRUE(WriteNpyF32(dir / "f", values, {1, 1}).ok());
  const auto text = ReadWholeFile(dir / "f", 1 << 20);
  ASSERT_TRUE(text.ok());
  ASSERT_EQ(text->size(), 128u + 4);
  EXPECT_EQ(text->substr(0, 10), std::string("\x93NUMPY\x01\0\x76\0", 10));
  EXPECT_EQ(text->find("{'descr': '<f4', 'fortran_order': False, "
                       "'shape': (1, 1, ), }"),
            10u);
  EXPECT_EQ((*text)[127], '\n');
}

TEST(Npy, WriterRefusesAWrongShape) {
  TestDirectory dir;
  const std::vector<float> values = {1.0f, 2.0f};
  EXPECT_EQ(WriteNpyF32(dir / "f", values, {3}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(dir.List().empty());
}

TEST(Npy, WriterLeavesNothingBehindOnAFullDisk) {
  TestDirectory dir;
  const std::vector<float> values(1 << 20);
  const FileSizeLimit limit(64 << 10);
  EXPECT_EQ(WriteNpyF32(dir / "f", values, {values.size()}).code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(dir.List().empty());
}

TEST(Npy, ReadsTheGoldenArrays) {
  const std::string golden = std::string(ECPHORY_TEST_DATA) + "/golden/";
  const auto decode =
      ReadNpy(golden + "engram_release/e2m1_decode.npy", 1 << 20);
  ASSERT_TRUE(decode.ok()) << decode.status().ToString();
  EXPECT_EQ((*decode->AsFloat())[7], 6.0f);
  const auto map = ReadNpy(golden + "v41/A/token_map.npy", 1 << 20);
  ASSERT_TRUE(map.ok()) << map.status().ToString();
  EXPECT_EQ(map->dtype, "<i4");
  EXPECT_EQ(ReadNpy(golden + "v41/A/token_map.npy", 10).status().code(),
            StatusCode::kUnsupported);
}

}  // namespace
}  // namespace ecphory
