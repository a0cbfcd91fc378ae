// Models in several GGUF files.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "format/gguf_bytes.h"
#include "format/gguf_parts_testing.h"
#include "io/test_directory.h"

namespace ecphory {
namespace {

using gguf_bytes::Key;
using gguf_bytes::LE;
using gguf_bytes::PartKeys;
using gguf_bytes::Start;
using gguf_bytes::Str;
using gguf_bytes::Tensor;
using gguf_bytes::U32;
using gguf_bytes::WithData;

class GgufPartsTest : public ::testing::Test {
 protected:
  // Four tensors of a value each, in 3 parts.
  void SetUp() override {
    std::string bytes =
        Start(4, 1) + Key("name", GgufType::kString, Str("whole"));
    for (const char* name : {"a", "b", "c", "d"}) {
      bytes += Tensor(name, {1}, 0, 32 * static_cast<uint64_t>(*name - 'a'));
    }
    Write("whole.gguf", WithData(bytes, 4 * 32));
    first_ = gguf_bytes::WriteParts(directory_ / "whole.gguf",
                                    directory_ / "model", 3);
  }

  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(directory_ / name, std::ios::binary) << bytes;
  }
  // A part with a tensor and these keys, as part 2 of 3.
  void WriteSecond(const std::string& keys, uint64_t count,
                   const std::string& tensor = "x") {
    Write("model-00002-of-00003.gguf",
          WithData(Start(1, count) + keys + Tensor(tensor, {1}, 0, 0), 32));
  }
  std::string Part(int number) const {
    return directory_ /
           ("model-0000" + std::to_string(number) + "-of-00003.gguf");
  }
  void ExpectError(const std::string& path, StatusCode code,
                   const std::string& message) {
    const auto file = GgufFile::Open(path);
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.status().code(), code);
    EXPECT_NE(file.status().message().find(message), std::string::npos)
        << file.status().message();
  }

  TestDirectory directory_;
  std::string first_;
};

TEST_F(GgufPartsTest, AreReadAsOne) {
  const auto file = GgufFile::Open(first_);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->path(), first_);
  EXPECT_EQ(*file->GetString("name"), "whole");
  ASSERT_EQ(file->index().files().size(), 3u);
  ASSERT_EQ(file->index().tensors().size(), 4u);
  const std::string expected[] = {Part(2), Part(3), Part(2), Part(3)};
  for (size_t i = 0; i < 4; ++i) {
    const TensorInfo* tensor =
        file->index().Find(std::string(1, static_cast<char>('a' + i)));
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(file->index().files()[tensor->file].path, expected[i]);
  }
  EXPECT_EQ(*GgufParts(*file),
            (std::vector<std::string>{Part(1), Part(2), Part(3)}));
}

TEST_F(GgufPartsTest, OneFileIsItsOnlyPart) {
  const std::string path = directory_ / "whole.gguf";
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*GgufParts(*file), std::vector<std::string>{path});
  // gguf-split writes its keys where all fits in one file, too.
  Write("one.gguf", Start(0, 3) + PartKeys(0, 1, 0));
  EXPECT_TRUE(GgufFile::Open(directory_ / "one.gguf").ok());
}

TEST_F(GgufPartsTest, TheFirstIsWanted) {
  ExpectError(
      Part(2), StatusCode::kInvalidArgument,
      Part(2) + ": part 2 of 3 of a model; give the first part, " + Part(1));
  std::filesystem::rename(Part(3), directory_ / "last.gguf");
  ExpectError(directory_ / "last.gguf", StatusCode::kInvalidArgument,
              "part 3 of 3 of a model; give the first part");
  std::filesystem::rename(Part(1), directory_ / "first.gguf");
  ExpectError(directory_ / "first.gguf", StatusCode::kInvalidArgument,
              "expected a name that ends in -00001-of-00003.gguf");
}

TEST_F(GgufPartsTest, AMissingPartIsNamed) {
  std::filesystem::remove(Part(3));
  ExpectError(first_, StatusCode::kNotFound,
              Part(3) + ": missing, part 3 of 3 of " + first_);
}

TEST_F(GgufPartsTest, ADamagedPartIsNamed) {
  std::filesystem::resize_file(Part(2), 40);
  ExpectError(first_, StatusCode::kCorrupt, Part(2) + ": ");
}

TEST_F(GgufPartsTest, PartsOfAnotherModelAreRefused) {
  std::filesystem::copy_file(Part(3), Part(2),
                             std::filesystem::copy_options::overwrite_existing);
  ExpectError(first_, StatusCode::kCorrupt,
              Part(2) + ": key 'split.no' holds 2, expected 1 as in its name");
  WriteSecond(PartKeys(1, 4, 4), 3);
  ExpectError(first_, StatusCode::kCorrupt,
              Part(2) +
                  ": keys 'split.no' 1 and 'split.count' 4, expected one "
                  "of 3 parts");
  WriteSecond("", 0);
  ExpectError(first_, StatusCode::kNotFound,
              Part(2) + ": key 'split.count' is missing");
  WriteSecond(PartKeys(1, 3, 4), 3);
  ExpectError(first_, StatusCode::kCorrupt,
              first_ +
                  ": key 'split.tensors.count' holds 4, its 3 parts have "
                  "3 tensors");
  WriteSecond(PartKeys(1, 3, 4), 3, "b");
  ExpectError(first_, StatusCode::kCorrupt,
              "tensor 'b': appears twice (first in " + Part(2));
}

TEST_F(GgufPartsTest, KeysThatMakeNoSenseAreRefused) {
  const auto keys = [&](const std::string& own, uint64_t count) {
    Write("model-00001-of-00003.gguf", Start(0, count) + own);
    return first_;
  };
  ExpectError(keys(Key("split.count", GgufType::kU32, U32(3)), 1),
              StatusCode::kNotFound, "key 'split.no' is missing");
  ExpectError(keys(PartKeys(3, 3, 4), 3), StatusCode::kCorrupt,
              "keys 'split.no' 3 and 'split.count' 3, expected one of 3 parts");
  ExpectError(keys(Key("split.count", GgufType::kU32, U32(100'000)), 1),
              StatusCode::kCorrupt, "holds 100000, expected at most 99999");
  ExpectError(keys(Key("split.count", GgufType::kI32, LE<int32_t>(-1)), 1),
              StatusCode::kCorrupt, "key 'split.count' holds -1");
  ExpectError(keys(Key("split.count", GgufType::kString, Str("3")), 1),
              StatusCode::kCorrupt, "key 'split.count' is of type string");
}

TEST_F(GgufPartsTest, LimitsAreOfTheWhole) {
  EXPECT_TRUE(GgufFile::Open(first_, {.max_tensors = 4}).ok());
  const auto file = GgufFile::Open(first_, {.max_tensors = 3});
  EXPECT_EQ(file.status().message(),
            Part(3) + ": more than 3 tensors with the parts before it");
}

}  // namespace
}  // namespace ecphory
