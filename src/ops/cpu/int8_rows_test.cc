#include "ops/cpu/int8_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ops/cpu/testing.h"

namespace ecphory {
namespace {

class Int8RowsTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { SetCpuTargetForTest(GetParam()); }
  void TearDown() override { SetCpuTargetForTest(0); }
};
INSTANTIATE_TEST_SUITE_P(Targets, Int8RowsTest,
                         testing::ValuesIn(CpuTargetsForTest()),
                         [](const auto& target) {
                           return std::string(
                               CpuTargetNameForTest(target.param));
                         });

constexpr size_t kRows = 5;

// The products of equal tokens whose rounded inputs were written over `fill`.
std::vector<float> Products(const Matrix& weight, const std::vector<float>& x,
                            size_t tokens, uint8_t fill) {
  const size_t bytes = Int8RowBytes(weight.cols);
  std::vector<uint8_t> memory(tokens * bytes + 64, fill);
  const size_t misaligned = reinterpret_cast<uintptr_t>(memory.data()) % 64;
  std::vector<uint8_t*> rounded;
  std::vector<float> y(tokens * kRows);
  std::vector<float*> out;
  for (size_t t = 0; t < tokens; ++t) {
    rounded.push_back(memory.data() + (64 - misaligned) % 64 + t * bytes);
    RoundRowToInt8(weight.format, x.data(), weight.cols, rounded.back());
    out.push_back(y.data() + t * kRows);
  }
  Int8MatmulRows(weight,
                 {.y = out.data(), .tokens = tokens, .x8 = rounded.data()}, 0,
                 kRows);
  return y;
}

// Not every part of a rounded input is written for every format, and kernels
// read more than belongs to a group.
TEST_P(Int8RowsTest, WhatWasInMemoryBeforeCountsForNothing) {
  for (const WeightFormat format :
       {WeightFormat::kQ8_0, WeightFormat::kMXFP4, WeightFormat::kFp4Row32,
        WeightFormat::kQ4_K, WeightFormat::kQ2_K, WeightFormat::kIQ2_XXS}) {
    for (size_t cols = BlockValues(format); cols <= 1280;
         cols += BlockValues(format)) {
      Matrix weight{.format = format, .rows = kRows, .cols = cols};
      const std::vector<uint8_t> data(kRows * weight.row_bytes(), 0x35);
      const std::vector<uint8_t> scales(kRows * cols, 0x75);
      weight.data = data.data();
      weight.scales = scales.data();
      std::vector<float> x(cols);
      for (size_t i = 0; i < cols; ++i) {
        x[i] = std::sin(static_cast<float>(i));
      }
      for (const size_t tokens : {1, 2, 9}) {
        const std::vector<float> clean = Products(weight, x, tokens, 0);
        EXPECT_TRUE(std::all_of(clean.begin(), clean.end(),
                                [](float v) { return std::isfinite(v); }));
        const std::vector<float> same = Products(weight, x, tokens, 0xff);
        EXPECT_EQ(std::memcmp(clean.data(), same.data(),
                              clean.size() * sizeof(float)),
                  0)
            << WeightFormatName(format) << ", " << cols << " columns, "
            << tokens << " tokens";
      }
    }
  }
}

}  // namespace
}  // namespace ecphory
