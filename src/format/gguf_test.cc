#include "format/gguf.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "format/gguf_bytes.h"
#include "io/fault_file.h"
#include "io/test_directory.h"

namespace ecphory {
namespace {

using gguf_bytes::ArrayKey;
using gguf_bytes::Key;
using gguf_bytes::LE;
using gguf_bytes::Parse;
using gguf_bytes::Start;
using gguf_bytes::Str;
using gguf_bytes::Tensor;
using gguf_bytes::U32;
using gguf_bytes::U64;
using gguf_bytes::WithData;

constexpr uint32_t kF32 = 0;

std::shared_ptr<RandomAccessFile> MemoryOf(const std::string& bytes) {
  return MakeMemoryFile(
      "m.gguf", {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

// One key of every scalar type, all with the value 1 or -1.
GgufFile ScalarFile() {
  const std::string one_f32 = LE(1.5f);
  auto file = Parse(Start(0, 12) + Key("u8", GgufType::kU8, LE<uint8_t>(255)) +
                    Key("i8", GgufType::kI8, LE<int8_t>(-1)) +
                    Key("u16", GgufType::kU16, LE<uint16_t>(65535)) +
                    Key("i16", GgufType::kI16, LE<int16_t>(-2)) +
                    Key("u32", GgufType::kU32, U32(UINT32_MAX)) +
                    Key("i32", GgufType::kI32, LE<int32_t>(-3)) +
                    Key("u64", GgufType::kU64, U64(UINT64_MAX)) +
                    Key("i64", GgufType::kI64, LE<int64_t>(INT64_MIN)) +
                    Key("f32", GgufType::kF32, one_f32) +
                    Key("f64", GgufType::kF64, LE(1e-20)) +
                    Key("bool", GgufType::kBool, LE<uint8_t>(1)) +
                    Key("string", GgufType::kString, Str("text")));
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  return std::move(file).value();
}

TEST(GgufFile, EmptyFileHasDefaults) {
  const auto file = Parse(Start(0, 0));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->alignment(), 32u);
  EXPECT_TRUE(file->Keys().empty());
  EXPECT_TRUE(file->index().tensors().empty());
  EXPECT_EQ(file->path(), "m.gguf");
}

TEST(GgufFile, ReadsEveryScalarType) {
  const GgufFile file = ScalarFile();
  EXPECT_EQ(*file.GetUint("u8"), 255u);
  EXPECT_EQ(*file.GetInt("i8"), -1);
  EXPECT_EQ(*file.GetUint("u16"), 65535u);
  EXPECT_EQ(*file.GetInt("i16"), -2);
  EXPECT_EQ(*file.GetUint("u32"), UINT32_MAX);
  EXPECT_EQ(*file.GetInt("i32"), -3);
  EXPECT_EQ(*file.GetUint("u64"), UINT64_MAX);
  EXPECT_EQ(*file.GetInt("i64"), INT64_MIN);
  EXPECT_EQ(*file.GetFloat("f32"), 1.5);
  EXPECT_EQ(*file.GetFloat("f64"), 1e-20);
  EXPECT_EQ(*file.GetBool("bool"), true);
  EXPECT_EQ(*file.GetString("string"), "text");
  EXPECT_EQ(file.Keys(), (std::vector<std::string>{
                             "u8", "i8", "u16", "i16", "u32", "i32", "u64",
                             "i64", "f32", "f64", "bool", "string"}));
}

TEST(GgufFile, GettersConvertOnlyWhatFits) {
  const GgufFile file = ScalarFile();
  EXPECT_EQ(*file.GetInt("u32"), int64_t{UINT32_MAX});
  EXPECT_EQ(*file.GetFloat("u8"), 255.0);
  EXPECT_EQ(*file.GetFloat("i32"), -3.0);
  const Status negative = file.GetUint("i8").status();
  EXPECT_EQ(negative.code(), StatusCode::kCorrupt);
  EXPECT_EQ(negative.message(),
            "m.gguf: key 'i8' holds -1, expected an integer from 0 to 2^64 - "
            "1");
  EXPECT_EQ(file.GetInt("u64").status().code(), StatusCode::kCorrupt);
}

TEST(GgufFile, GettersNameMissingAndWrongKeys) {
  const GgufFile file = ScalarFile();
  const Status missing = file.GetUint("none").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "m.gguf: key 'none' is missing");
  const Status wrong = file.GetString("u32").status();
  EXPECT_EQ(wrong.code(), StatusCode::kCorrupt);
  EXPECT_EQ(wrong.message(),
            "m.gguf: key 'u32' is of type u32, expected a string");
  for (const Status& status :
       {file.GetUint("f32").status(), file.GetUint("bool").status(),
        file.GetInt("string").status(), file.GetFloat("bool").status(),
        file.GetFloat("string").status(), file.GetBool("u8").status(),
        file.GetUintArray("u32").status(), file.GetIntArray("i32").status(),
        file.GetStringArray("string").status()}) {
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.message();
  }
  for (const Status& status :
       {file.GetInt("none").status(), file.GetFloat("none").status(),
        file.GetBool("none").status(), file.GetString("none").status(),
        file.GetUintArray("none").status(), file.GetIntArray("none").status(),
        file.GetStringArray("none").status()}) {
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
  }
}

TEST(GgufFile, ReadsArrays) {
  std::string many;
  for (uint32_t i = 0; i < 5000; ++i) many += U32(i * 3);
  const auto file = Parse(
      Start(0, 6) +
      ArrayKey("u64", GgufType::kU64, 2, U64(9007199254740993u) + U64(1)) +
      ArrayKey("i8", GgufType::kI8, 2, "\xff\x01") +
      ArrayKey("bool", GgufType::kBool, 2, std::string("\0\1", 2)) +
      ArrayKey("strings", GgufType::kString, 2, Str("") + Str("b")) +
      ArrayKey("empty", GgufType::kU32, 0, "") +
      ArrayKey("many", GgufType::kU32, 5000, many));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  // 2^53 + 1 has no double: it must never pass through one.
  EXPECT_EQ(*file->GetUintArray("u64"),
            (std::vector<uint64_t>{9007199254740993u, 1}));
  EXPECT_EQ(*file->GetIntArray("u64"),
            (std::vector<int64_t>{9007199254740993, 1}));
  EXPECT_EQ(*file->GetIntArray("i8"), (std::vector<int64_t>{-1, 1}));
  EXPECT_EQ(file->GetUintArray("i8").status().message(),
            "m.gguf: key 'i8' holds -1, expected an array of integers >= 0");
  EXPECT_EQ(*file->GetStringArray("strings"),
            (std::vector<std::string>{"", "b"}));
  EXPECT_TRUE(file->GetUintArray("empty")->empty());
  EXPECT_EQ(file->GetUint("empty").status().message(),
            "m.gguf: key 'empty' is of type u32 array, expected an integer "
            "from 0 to 2^64 - 1");
  EXPECT_FALSE(file->GetUintArray("bool").ok());
  const auto numbers = file->GetUintArray("many");
  ASSERT_TRUE(numbers.ok());
  for (uint32_t i = 0; i < 5000; ++i) ASSERT_EQ((*numbers)[i], i * 3);
}

TEST(GgufFile, PlacesTensors) {
  const auto file = Parse(WithData(
      Start(2, 1) + Key("general.alignment", GgufType::kU32, U32(128)) +
          Tensor("a", {64, 3}, 8, 128) + Tensor("b", {2, 3, 4, 5}, kF32, 512),
      512 + 480, 128));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->alignment(), 128u);
  EXPECT_EQ(file->data_offset() % 128, 0u);
  const TensorInfo* a = file->index().Find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, DType::kQ8_0);
  EXPECT_EQ(a->shape, (std::vector<uint64_t>{3, 64}));
  EXPECT_EQ(a->offset, file->data_offset() + 128);
  EXPECT_EQ(a->bytes, 3u * 2 * 34);
  const TensorInfo* b = file->index().Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->ShapeString(), "[5, 4, 3, 2]");
  EXPECT_EQ(b->values(), 120u);
  EXPECT_EQ(file->index().Find("c"), nullptr);
}

TEST(GgufLimits, AreNamed) {
  const std::string keys = Key("a", GgufType::kU8, LE<uint8_t>(1)) +
                           Key("b", GgufType::kString, Str("0123456789"));
  const std::string bytes =
      WithData(Start(1, 2) + keys + Tensor("t", {8}, kF32, 0), 32);
  ASSERT_TRUE(Parse(bytes).ok());
  const auto refusal = [&](GgufLimits limits) {
    const auto parsed = Parse(bytes, limits);
    EXPECT_EQ(parsed.status().code(), StatusCode::kUnsupported);
    return parsed.status().message();
  };
  GgufLimits limits;
  limits.max_keys = 1;
  EXPECT_EQ(refusal(limits), "m.gguf: 2 keys, at most 1 are supported");
  limits = {};
  limits.max_tensors = 0;
  EXPECT_EQ(refusal(limits), "m.gguf: 1 tensors, at most 0 are supported");
  limits = {};
  limits.max_string_bytes = 9;
  const auto parsed = Parse(bytes, limits);
  EXPECT_EQ(parsed.status().message(),
            "m.gguf: key 'b': a string has 10 bytes, at most 9 are allowed");
}

TEST(GgufLimits, EndTheHeader) {
  const std::string bytes =
      WithData(Start(2, 0) + Tensor("a", {1, 1, 1, 1}, kF32, 0) +
                   Tensor("b", {1, 1, 1, 1}, kF32, 32),
               64);
  GgufLimits limits;
  limits.max_metadata_bytes = 120;
  const auto parsed = Parse(bytes, limits);
  EXPECT_EQ(parsed.status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(parsed.status().message(),
            "m.gguf: tensor 'b': metadata reaches past the limit of 120 bytes");
}

TEST(GgufLimits, CountDecodedMemory) {
  // 64 KiB of bytes become 512 KiB when widened.
  const std::string bytes =
      Start(0, 1) + ArrayKey("a", GgufType::kU8, 65536, std::string(65536, 1));
  GgufLimits limits;
  limits.max_metadata_bytes = 100000;
  const auto parsed = Parse(bytes, limits);
  EXPECT_EQ(parsed.status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(parsed.status().message(),
            "m.gguf: key 'a': metadata takes more than 100000 bytes of memory");
}

TEST(GgufFile, IoErrorsComeThrough) {
  const std::string bytes = WithData(
      Start(1, 1) +
          ArrayKey("a", GgufType::kU8, 1 << 20, std::string(1 << 20, 'x')) +
          Tensor("t", {8}, kF32, 0),
      32);
  for (const uint64_t bad : {0u, 70000u, 1u << 20}) {
    FaultPlan plan;
    plan.bad_begin = bad;
    plan.bad_end = bad + 1;
    const auto parsed = GgufFile::Parse(MakeFaultFile(MemoryOf(bytes), plan));
    EXPECT_EQ(parsed.status().code(), StatusCode::kIoError) << bad;
  }
  FaultPlan plan;
  plan.truncated_at = 1000;
  const auto parsed = GgufFile::Parse(MakeFaultFile(MemoryOf(bytes), plan));
  EXPECT_EQ(parsed.status().code(), StatusCode::kCorrupt);
}

TEST(GgufFile, ReadsTheHeaderOnlyEvenOfHugeFiles) {
  TestDirectory dir;
  const uint64_t table = uint64_t{5} << 30;
  const std::string header =
      Start(2, 0) + Tensor("t", {8}, kF32, 0) + Tensor("far", {8}, kF32, table);
  const int fd = ::open((dir / "f").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, header.data(), header.size()),
            static_cast<ssize_t>(header.size()));
  ASSERT_EQ(::ftruncate(fd, static_cast<off_t>(table + 1024)), 0);
  ::close(fd);
  const auto file = OpenFile(dir / "f");
  ASSERT_TRUE(file.ok());
  const auto counted = MakeFaultFile(*file, {});
  const auto parsed = GgufFile::Parse(counted);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->index().Find("far")->offset, parsed->data_offset() + table);
  EXPECT_LE(counted->bytes_read(), 64u << 10);
}

}  // namespace
}  // namespace ecphory
