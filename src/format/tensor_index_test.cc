#include "format/tensor_index.h"

#include <gtest/gtest.h>

#include <string>

namespace ecphory {
namespace {

TensorInfo Bytes(const std::string& name, size_t file, uint64_t offset,
                 uint64_t bytes) {
  return {name, DType::kU8, {bytes}, file, offset, bytes};
}

TEST(TensorBytes, CountsBlocksAndScalars) {
  const auto bytes = [](DType dtype, std::vector<uint64_t> shape) {
    return *TensorBytes(dtype, shape);
  };
  EXPECT_EQ(bytes(DType::kF32, {}), 4u);
  EXPECT_EQ(bytes(DType::kF32, {2, 3}), 24u);
  EXPECT_EQ(bytes(DType::kF32, {2, 0}), 0u);
  EXPECT_EQ(bytes(DType::kMXFP4, {3, 64}), 3u * 2 * 17);
  // The released Engram table: 384,006,168 rows of 264 bytes.
  EXPECT_EQ(bytes(DType::kI8, {384006168, 264}), 101377628352u);
}

TEST(TensorBytes, RefusesPartialBlocksAndOverflow) {
  const auto status = [](DType dtype, std::vector<uint64_t> shape) {
    return TensorBytes(dtype, shape).status();
  };
  // 48 x 2 values are three blocks, but no row is whole blocks.
  EXPECT_EQ(status(DType::kQ8_0, {2, 48}).code(), StatusCode::kCorrupt);
  EXPECT_EQ(status(DType::kQ8_0, {}).code(), StatusCode::kCorrupt);
  EXPECT_EQ(status(DType::kU8, {UINT64_MAX, 2}).code(), StatusCode::kCorrupt);
  EXPECT_EQ(status(DType::kF64, {UINT64_MAX / 4}).code(), StatusCode::kCorrupt);
}

TEST(TensorIndex, FindsTensorsAcrossFiles) {
  TensorIndex index;
  EXPECT_EQ(index.AddFile({"a", 10}), 0u);
  EXPECT_EQ(index.AddFile({"b", 10}), 1u);
  ASSERT_TRUE(index.Add(Bytes("x", 0, 0, 10)).ok());
  ASSERT_TRUE(index.Add(Bytes("y", 1, 0, 5)).ok());
  ASSERT_TRUE(index.Add(Bytes("z", 1, 5, 5)).ok());
  ASSERT_TRUE(index.Finish().ok());
  EXPECT_EQ(index.Find("z")->offset, 5u);
  EXPECT_EQ(index.Find("w"), nullptr);
}

TEST(TensorIndex, RefusesRangesOutsideTheFile) {
  TensorIndex index;
  index.AddFile({"a", 10});
  EXPECT_TRUE(index.Add(Bytes("end", 0, 10, 0)).ok());
  const Status past = index.Add(Bytes("x", 0, 1, 10));
  EXPECT_EQ(past.code(), StatusCode::kCorrupt);
  EXPECT_EQ(past.message(),
            "a: tensor 'x': 10 bytes at offset 1 reach past the end of the "
            "file (10 bytes); is the file complete?");
  EXPECT_FALSE(index.Add(Bytes("x", 0, UINT64_MAX, 1)).ok());
  EXPECT_EQ(index.Find("x"), nullptr);
}

TEST(TensorIndex, RefusesSizesThatDoNotFitTheShape) {
  TensorIndex index;
  index.AddFile({"a", 100});
  TensorInfo tensor = Bytes("x", 0, 0, 10);
  tensor.bytes = 9;
  EXPECT_EQ(index.Add(tensor).message(),
            "a: tensor 'x': U8 [10] takes 10 bytes, 9 are stored");
}

TEST(TensorIndex, RefusesDuplicates) {
  TensorIndex index;
  index.AddFile({"a", 10});
  index.AddFile({"b", 10});
  ASSERT_TRUE(index.Add(Bytes("x", 0, 0, 1)).ok());
  EXPECT_EQ(index.Add(Bytes("x", 1, 0, 1)).message(),
            "b: tensor 'x': appears twice (first in a)");
}

TEST(TensorIndex, FinishFindsOverlapsInEachFile) {
  TensorIndex index;
  index.AddFile({"a", 100});
  index.AddFile({"b", 100});
  ASSERT_TRUE(index.Add(Bytes("x", 0, 20, 10)).ok());
  ASSERT_TRUE(index.Add(Bytes("other file", 1, 20, 10)).ok());
  ASSERT_TRUE(index.Add(Bytes("empty", 0, 25, 0)).ok());
  ASSERT_TRUE(index.Add(Bytes("before", 0, 0, 20)).ok());
  ASSERT_TRUE(index.Finish().ok());
  ASSERT_TRUE(index.Add(Bytes("y", 0, 29, 1)).ok());
  const Status overlap = index.Finish();
  EXPECT_EQ(overlap.code(), StatusCode::kCorrupt);
  EXPECT_EQ(overlap.message(),
            "a: tensors 'x' (10 bytes at 20) and 'y' (at 29) overlap");
}

}  // namespace
}  // namespace ecphory
