#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "format/gguf_bytes.h"
#include "io/file_size_limit.h"
#include "io/small_disk.h"
#include "io/test_directory.h"

namespace ecphory {
namespace {

using Bytes = std::vector<uint8_t>;

// Hands out `bytes` in pieces of at most `piece` bytes.
GgufWriter::Producer Producer(Bytes bytes, size_t piece = SIZE_MAX) {
  return [bytes = std::move(bytes), piece](const GgufWriter::Sink& sink) {
    std::span<const uint8_t> rest(bytes);
    while (!rest.empty()) {
      const size_t count = std::min(piece, rest.size());
      ECPHORY_RETURN_IF_ERROR(sink(rest.first(count)));
      rest = rest.subspan(count);
    }
    return Status::Ok();
  };
}

Bytes Pattern(size_t size) {
  Bytes bytes(size);
  std::iota(bytes.begin(), bytes.end(), 1);
  return bytes;
}

Result<GgufFile> ParseFile(const std::string& path) {
  ECPHORY_ASSIGN_OR_RETURN(const auto file, OpenFile(path));
  return GgufFile::Parse(file);
}

Bytes TensorData(const std::string& path, const TensorInfo& tensor) {
  const auto file = OpenFile(path);
  EXPECT_TRUE(file.ok());
  Bytes bytes(tensor.bytes);
  EXPECT_TRUE((*file)->ReadExact(tensor.offset, bytes).ok());
  return bytes;
}

// A writer with one F32 tensor of `values` zeros.
GgufWriter OneTensor(uint64_t values) {
  GgufWriter writer(32);
  EXPECT_TRUE(writer
                  .AddTensor("t", DType::kF32, {values},
                             Producer(Bytes(4 * values), 1 << 20))
                  .ok());
  return writer;
}

TEST(GgufWriter, KeysComeBackUnchanged) {
  TestDirectory dir;
  GgufWriter writer(16384);
  writer.AddString("general.architecture", "deepseek41");
  writer.AddUint32("u32", UINT32_MAX);
  writer.AddInt32("i32", -7);
  writer.AddUint64("u64", UINT64_MAX);
  writer.AddFloat32("f32", 1e-20f);
  writer.AddBool("yes", true);
  writer.AddBool("no", false);
  writer.AddUint32Array("u32s", {0, 1, UINT32_MAX});
  writer.AddInt32Array("i32s", {INT32_MIN, 0});
  // 2^53 + 1 and 2^63 - 1 have no double.
  writer.AddUint64Array("u64s", {9007199254740993u, INT64_MAX});
  writer.AddStringArray("strings", {"", "a", std::string("\0\xff", 2)});
  ASSERT_TRUE(writer.WriteTo(dir / "f", {}).ok());

  const auto file = ParseFile(dir / "f");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->alignment(), 16384u);
  EXPECT_EQ(file->Keys().front(), "general.alignment");
  EXPECT_EQ(file->Keys().size(), 12u);
  EXPECT_EQ(*file->GetString("general.architecture"), "deepseek41");
  EXPECT_EQ(*file->GetUint("u32"), UINT32_MAX);
  EXPECT_EQ(*file->GetInt("i32"), -7);
  EXPECT_EQ(*file->GetUint("u64"), UINT64_MAX);
  EXPECT_EQ(static_cast<float>(*file->GetFloat("f32")), 1e-20f);
  EXPECT_TRUE(*file->GetBool("yes"));
  EXPECT_FALSE(*file->GetBool("no"));
  EXPECT_EQ(*file->GetUintArray("u32s"),
            (std::vector<uint64_t>{0, 1, UINT32_MAX}));
  EXPECT_EQ(*file->GetIntArray("i32s"), (std::vector<int64_t>{INT32_MIN, 0}));
  EXPECT_EQ(*file->GetUintArray("u64s"),
            (std::vector<uint64_t>{9007199254740993u, INT64_MAX}));
  EXPECT_EQ(*file->GetStringArray("strings"),
            (std::vector<std::string>{"", "a", std::string("\0\xff", 2)}));
}

TEST(GgufWriter, TensorsComeBackPaddedAndInOrder) {
  TestDirectory dir;
  GgufWriter writer(128);
  ASSERT_TRUE(writer
                  .AddTensor("a", DType::kQ8_0, {3, 64},
                             Producer(Pattern(3 * 2 * 34), 7))
                  .ok());
  ASSERT_TRUE(
      writer.AddTensor("b", DType::kF32, {2, 3, 4, 5}, Producer(Pattern(480)))
          .ok());
  ASSERT_TRUE(
      writer.AddTensor("table", DType::kI8, {5, 264}, Producer(Pattern(1320)))
          .ok());
  ASSERT_TRUE(writer.WriteTo(dir / "f", {}).ok());

  const auto file = ParseFile(dir / "f");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const auto& tensors = file->index().tensors();
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].shape, (std::vector<uint64_t>{3, 64}));
  EXPECT_EQ(tensors[1].shape, (std::vector<uint64_t>{2, 3, 4, 5}));
  EXPECT_EQ(tensors[2].dtype, DType::kI8);
  for (const TensorInfo& tensor : tensors) {
    EXPECT_EQ(tensor.offset % 128, 0u);
    EXPECT_EQ(TensorData(dir / "f", tensor), Pattern(tensor.bytes));
  }
  // The last tensor is padded as well, and nothing follows.
  const uint64_t size = file->index().files()[0].size;
  EXPECT_EQ(size, tensors[2].offset + 1408);
  EXPECT_EQ(size, writer.FileBytes());
}

TEST(GgufWriter, AgreesWithHandMadeBytes) {
  using namespace gguf_bytes;  // NOLINT: the builders' names are the point
  TestDirectory dir;
  GgufWriter writer(32);
  writer.AddUint64Array("m", {3, uint64_t{1} << 60});
  ASSERT_TRUE(
      writer.AddTensor("t", DType::kI32, {2, 5}, Producer(Bytes(40, 0x11)))
          .ok());
  ASSERT_TRUE(writer.WriteTo(dir / "f", {}).ok());
  const auto written = ReadWholeFile(dir / "f", 1 << 20);
  ASSERT_TRUE(written.ok());
  const std::string expected =
      WithData(Start(1, 2) + Key("general.alignment", GgufType::kU32, U32(32)) +
                   ArrayKey("m", GgufType::kU64, 2,
                            U64(3) + U64(uint64_t{1} << 60)) +
                   Tensor("t", {5, 2}, 26, 0),
               40) +
      std::string(24, '\0');
  EXPECT_EQ(*written, expected);
}

TEST(GgufWriter, RefusesWhatGgufCannotHold) {
  GgufWriter writer(32);
  const auto add = [&](const std::string& name, DType dtype,
                       std::vector<uint64_t> shape) {
    return writer.AddTensor(name, dtype, std::move(shape), Producer({}));
  };
  EXPECT_EQ(add("t", DType::kF32, {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(add("t", DType::kF32, {1, 1, 1, 1, 1}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(add("t", DType::kF32, {3, 0}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(add("t", DType::kF8E4M3, {32}).code(), StatusCode::kUnsupported);
  EXPECT_EQ(add("t", DType::kQ8_0, {33}).code(), StatusCode::kCorrupt);
  EXPECT_EQ(add("t", DType::kI8, {UINT64_MAX}).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(add("", DType::kF32, {1}).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(add("t", DType::kF32, {1}).ok());
  const Status twice = add("t", DType::kF32, {1});
  EXPECT_EQ(twice.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(twice.message().find("tensor 't'"), std::string::npos);
}

TEST(GgufWriter, ReportsProgressToTheEnd) {
  TestDirectory dir;
  const GgufWriter writer = OneTensor(8 << 20);  // 32 MiB
  std::vector<uint64_t> seen;
  ASSERT_TRUE(writer
                  .WriteTo(dir / "f",
                           [&](uint64_t done, uint64_t total) {
                             EXPECT_EQ(total, writer.FileBytes());
                             seen.push_back(done);
                             return true;
                           })
                  .ok());
  EXPECT_GE(seen.size(), 4u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), writer.FileBytes());
}

TEST(GgufWriter, CancelLeavesTheOldFile) {
  TestDirectory dir;
  ASSERT_TRUE(OneTensor(8).WriteTo(dir / "f", {}).ok());
  const auto before = ReadWholeFile(dir / "f", 1 << 20);
  int calls = 0;
  const Status status = OneTensor(8 << 20).WriteTo(
      dir / "f", [&](uint64_t, uint64_t) { return ++calls < 2; });
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(dir.List(), std::vector<std::string>{"f"});
  EXPECT_EQ(*ReadWholeFile(dir / "f", 1 << 20), *before);
}

TEST(GgufWriter, ProducersMustDeliverExactly) {
  TestDirectory dir;
  for (const size_t bytes : {31u, 33u}) {
    GgufWriter writer(32);
    ASSERT_TRUE(
        writer.AddTensor("t", DType::kF32, {8}, Producer(Bytes(bytes))).ok());
    const Status status = writer.WriteTo(dir / "f", {});
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_NE(status.message().find("tensor 't'"), std::string::npos);
  }
  GgufWriter writer(32);
  ASSERT_TRUE(writer
                  .AddTensor("t", DType::kF32, {8},
                             [](const GgufWriter::Sink&) {
                               return Corrupt("source is damaged");
                             })
                  .ok());
  EXPECT_EQ(writer.WriteTo(dir / "f", {}).message(), "source is damaged");
  EXPECT_TRUE(dir.List().empty());
}

TEST(GgufWriter, LeavesNothingBehindWhenWritingFails) {
  TestDirectory dir;
  const FileSizeLimit limit(1 << 20);
  const Status status = OneTensor(1 << 20).WriteTo(dir / "f", {});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(dir.List().empty());
}

TEST(GgufWriter, ChecksTheDiskFirst) {
  const SmallDisk disk(256 << 10);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk needs root";
  bool started = false;
  GgufWriter writer(32);
  ASSERT_TRUE(writer
                  .AddTensor("t", DType::kF32, {1 << 20},
                             [&](const GgufWriter::Sink&) {
                               started = true;
                               return Status::Ok();
                             })
                  .ok());
  const Status status = writer.WriteTo(disk.directory() / "f", {});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("needs 4.2 MB (4194"), std::string::npos)
      << status.message();
  EXPECT_FALSE(started);
  EXPECT_TRUE(disk.directory().List().empty());
  EXPECT_TRUE(OneTensor(1024).WriteTo(disk.directory() / "f", {}).ok());
}

}  // namespace
}  // namespace ecphory
