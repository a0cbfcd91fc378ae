#include "tensor/mxfp4_rows.h"

#include <gtest/gtest.h>

#include <vector>

namespace ecphory {
namespace {

// Every code at every place of a block, and every scale that is a number.
TEST(Mxfp4Rows, HoldTheSameValues) {
  constexpr size_t kRows = 255, kCols = 96, kBlocks = kCols / 32;
  std::vector<uint8_t> blocks(kRows * kBlocks * kMxfp4BlockBytes);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const size_t block = i / kMxfp4BlockBytes, at = i % kMxfp4BlockBytes;
    const size_t scale = block / kBlocks;
    blocks[i] = static_cast<uint8_t>(at == 0 ? scale : (i * 37 + i / 251));
  }
  // One byte more than there is, which stays as it is.
  std::vector<uint8_t> codes(kRows * kCols / 2 + 1, 0xcd);
  std::vector<uint8_t> scales(kRows * kBlocks + 1, 0xcd);
  SplitMxfp4(blocks.data(), kRows * kBlocks, codes.data(), scales.data());
  EXPECT_EQ(0xcd, codes.back());
  EXPECT_EQ(0xcd, scales.back());
  const Matrix stored{.format = WeightFormat::kMXFP4,
                      .rows = kRows,
                      .cols = kCols,
                      .data = blocks.data()};
  const Matrix split{.format = DeviceFormat(stored.format),
                     .rows = kRows,
                     .cols = kCols,
                     .data = codes.data(),
                     .scales = scales.data()};
  std::vector<float> expected(kCols), actual(kCols);
  for (size_t row = 0; row < kRows; ++row) {
    DequantizeRow(stored, row, expected.data());
    DequantizeRow(split, row, actual.data());
    EXPECT_EQ(expected, actual) << "row " << row;
  }
}

}  // namespace
}  // namespace ecphory
