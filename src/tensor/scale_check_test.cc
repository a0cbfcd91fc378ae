#include "tensor/scale_check.h"

#include <gtest/gtest.h>

#include <vector>

namespace ecphory {
namespace {

struct Case {
  WeightFormat format;
  size_t at;      // a byte of the second block ...
  uint8_t value;  // ... that breaks it
};

TEST(ScaleCheck, FindsTheRowOfEachKindOfScale) {
  for (const Case& c : {Case{WeightFormat::kQ8_0, 34 + 1, 0x7c},
                        Case{WeightFormat::kMXFP4, 17, 255},
                        Case{WeightFormat::kQ4_K, 144 + 1, 0xfe},
                        Case{WeightFormat::kQ4_K, 144 + 3, 0x7c},
                        Case{WeightFormat::kQ2_K, 84 + 81, 0x7e},
                        Case{WeightFormat::kQ2_K, 84 + 83, 0xfc},
                        Case{WeightFormat::kIQ2_XXS, 66 + 1, 0x7c}}) {
    Matrix m{.format = c.format, .rows = 3, .cols = 512};
    std::vector<uint8_t> data(4 * m.row_bytes(), 0x55);
    m.data = data.data();
    EXPECT_EQ(std::nullopt, FirstRowWithBrokenScale(m));
    data[2 * m.row_bytes() + c.at] = c.value;
    EXPECT_EQ(2u, FirstRowWithBrokenScale(m)) << WeightFormatName(c.format);
    m.first_row = 1;
    EXPECT_EQ(1u, FirstRowWithBrokenScale(m)) << WeightFormatName(c.format);
    m.rows = 1;
    EXPECT_EQ(std::nullopt, FirstRowWithBrokenScale(m));
  }
}

// Codes may be anything, and plain floats have no scales.
TEST(ScaleCheck, CodesAreNotScales) {
  for (const WeightFormat format :
       {WeightFormat::kQ8_0, WeightFormat::kMXFP4, WeightFormat::kF32,
        WeightFormat::kF16, WeightFormat::kFp8Tile32}) {
    Matrix m{.format = format, .rows = 1, .cols = 32};
    std::vector<uint8_t> data(m.row_bytes(), 0xff);
    data[0] = data[1] = 0x3c;
    m.data = data.data();
    EXPECT_EQ(std::nullopt, FirstRowWithBrokenScale(m));
  }
}

}  // namespace
}  // namespace ecphory
