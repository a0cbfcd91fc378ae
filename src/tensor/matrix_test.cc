#include "tensor/matrix.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tensor/float_codec.h"

namespace ecphory {
namespace {

std::vector<float> Row(const Matrix& matrix, size_t row) {
  std::vector<float> out(matrix.cols);
  DequantizeRow(matrix, row, out.data());
  return out;
}

TEST(Matrix, ReadsPlainFormatsUnaligned) {
  // One byte in front: rows may lie anywhere in a file.
  std::vector<uint8_t> f32(1 + 2 * 3 * 4);
  const float values[] = {1, 2, 3, 4, 5, 6};
  std::memcpy(f32.data() + 1, values, sizeof(values));
  const Matrix a{.format = WeightFormat::kF32,
                 .rows = 2,
                 .cols = 3,
                 .data = f32.data() + 1};
  EXPECT_EQ(12u, a.row_bytes());
  EXPECT_EQ((std::vector<float>{4, 5, 6}), Row(a, 1));

  const uint16_t f16[] = {0x3c00, 0xc000, 0x0001};
  const Matrix b{.format = WeightFormat::kF16,
                 .rows = 1,
                 .cols = 3,
                 .data = reinterpret_cast<const uint8_t*>(f16)};
  EXPECT_EQ((std::vector<float>{1, -2, 0x1p-24f}), Row(b, 0));

  const uint16_t bf16[] = {0x3f80, 0xc000, 0x4049};
  const Matrix c{.format = WeightFormat::kBF16,
                 .rows = 1,
                 .cols = 3,
                 .data = reinterpret_cast<const uint8_t*>(bf16)};
  EXPECT_EQ((std::vector<float>{1, -2, 3.140625f}), Row(c, 0));
}

TEST(Matrix, ReadsQ8Blocks) {
  std::vector<uint8_t> data(2 * 34);
  data[34] = 0x00;  // second block's scale: f16 0.5
  data[35] = 0x38;
  data[36] = 127;
  data[37] = 0x80;  // -128
  const Matrix m{.format = WeightFormat::kQ8_0,
                 .rows = 1,
                 .cols = 64,
                 .data = data.data()};
  const std::vector<float> row = Row(m, 0);
  EXPECT_EQ(68u, m.row_bytes());
  EXPECT_EQ(63.5f, row[32]);
  EXPECT_EQ(-64.0f, row[33]);
  EXPECT_EQ(0.0f, row[0]);
}

TEST(Matrix, MxfpAndReleasedFp4OrderNibblesDifferently) {
  std::vector<uint8_t> mxfp4(17);
  mxfp4[0] = 128;   // scale 2
  mxfp4[1] = 0xa7;  // low 7 = 6, high 10 = -1
  const Matrix a{.format = WeightFormat::kMXFP4,
                 .rows = 1,
                 .cols = 32,
                 .data = mxfp4.data()};
  EXPECT_EQ(12.0f, Row(a, 0)[0]);
  EXPECT_EQ(-2.0f, Row(a, 0)[16]);
  EXPECT_EQ(0.0f, Row(a, 0)[1]);

  const Matrix b{.format = WeightFormat::kFp4Row32,
                 .rows = 1,
                 .cols = 32,
                 .data = mxfp4.data() + 1,
                 .scales = mxfp4.data()};
  EXPECT_EQ(16u, b.row_bytes());
  EXPECT_EQ(12.0f, Row(b, 0)[0]);
  EXPECT_EQ(-2.0f, Row(b, 0)[1]);
}

TEST(Matrix, Fp4ScalesBelongToTheirRowAndBlock) {
  const std::vector<uint8_t> codes(2 * 32, 0x22);  // every value 1
  const std::vector<uint8_t> scales = {127, 128, 129, 130};
  const Matrix m{.format = WeightFormat::kFp4Row32,
                 .rows = 2,
                 .cols = 64,
                 .data = codes.data(),
                 .scales = scales.data()};
  EXPECT_EQ(1.0f, Row(m, 0)[31]);
  EXPECT_EQ(2.0f, Row(m, 0)[32]);
  EXPECT_EQ(4.0f, Row(m, 1)[0]);
  EXPECT_EQ(8.0f, Row(m, 1)[63]);
}

// 70 x 40: three tile rows of two tile columns, the last ones partial.
TEST(Matrix, Fp8TilesMayBePartialAndViewsKeepTheirPhase) {
  const size_t rows = 70;
  const size_t cols = 40;
  const std::vector<uint8_t> codes(rows * cols, 0x38);  // every value 1
  const std::vector<uint8_t> scales = {127, 128, 129, 130, 131, 132};
  const Matrix whole{.format = WeightFormat::kFp8Tile32,
                     .rows = rows,
                     .cols = cols,
                     .data = codes.data(),
                     .scales = scales.data()};
  for (size_t r = 0; r < rows; ++r) {
    const std::vector<float> row = Row(whole, r);
    for (size_t c = 0; c < cols; ++c) {
      const size_t tile = r / 32 * 2 + c / 32;
      ASSERT_EQ(E8M0ToF32(scales[tile]), row[c]) << r << "," << c;
    }
  }
  const Matrix view = whole.RowBlock(20, 40).RowBlock(10, 30);
  EXPECT_EQ(30u, view.first_row);
  for (size_t r = 0; r < view.rows; ++r) {
    EXPECT_EQ(Row(whole, 30 + r), Row(view, r)) << r;
  }
}

TEST(Matrix, ViewsOfEveryFormatSelectTheSameRows) {
  const size_t rows = 7;
  const size_t cols = 256;
  std::vector<uint8_t> data(rows * cols * 4);
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<uint8_t>(i * 37 % 61);  // no NaN in any format
  }
  const std::vector<uint8_t> scales(rows * cols / 32, 127);
  for (const WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBF16,
        WeightFormat::kQ8_0, WeightFormat::kMXFP4, WeightFormat::kQ4_K,
        WeightFormat::kQ2_K, WeightFormat::kIQ2_XXS, WeightFormat::kFp8Tile32,
        WeightFormat::kFp4Row32}) {
    const Matrix whole{.format = format,
                       .rows = rows,
                       .cols = cols,
                       .data = data.data(),
                       .scales = scales.data()};
    EXPECT_EQ(Row(whole, 5), Row(whole.RowBlock(3, 4), 2))
        << WeightFormatName(format);
  }
}

}  // namespace
}  // namespace ecphory
