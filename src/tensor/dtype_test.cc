#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <string>

namespace ecphory {
namespace {

TEST(DType, KnowsGgmlIdsAndSizes) {
  const struct {
    uint32_t id;
    DType dtype;
    uint32_t block_values;
    uint32_t block_bytes;
  } kCases[] = {
      {0, DType::kF32, 1, 4},      {1, DType::kF16, 1, 2},
      {30, DType::kBF16, 1, 2},    {8, DType::kQ8_0, 32, 34},
      {39, DType::kMXFP4, 32, 17}, {2, DType::kQ4_0, 32, 18},
      {3, DType::kQ4_1, 32, 20},   {12, DType::kQ4_K, 256, 144},
      {10, DType::kQ2_K, 256, 84}, {16, DType::kIQ2_XXS, 256, 66},
      {24, DType::kI8, 1, 1},      {25, DType::kI16, 1, 2},
      {26, DType::kI32, 1, 4},     {27, DType::kI64, 1, 8},
      {28, DType::kF64, 1, 8},
  };
  for (const auto& c : kCases) {
    ASSERT_TRUE(DTypeFromGgml(c.id).ok()) << c.id;
    EXPECT_EQ(c.dtype, *DTypeFromGgml(c.id)) << c.id;
    EXPECT_EQ(c.id, *DTypeToGgml(c.dtype));
    EXPECT_EQ(c.block_values, GetDTypeInfo(c.dtype).block_values) << c.id;
    EXPECT_EQ(c.block_bytes, GetDTypeInfo(c.dtype).block_bytes) << c.id;
  }
}

TEST(DType, RefusesOtherGgmlIdsByName) {
  const Status q6k = DTypeFromGgml(14).status();
  EXPECT_EQ(StatusCode::kUnsupported, q6k.code());
  EXPECT_NE(std::string::npos, q6k.message().find("Q6_K"));
  EXPECT_EQ(StatusCode::kUnsupported,
            DTypeFromGgml(0xffffffffu).status().code());
  EXPECT_EQ(StatusCode::kUnsupported,
            DTypeToGgml(DType::kF8E4M3).status().code());
}

TEST(DType, ReadsSafetensorsNames) {
  EXPECT_EQ(DType::kF8E4M3, *DTypeFromSafetensors("F8_E4M3"));
  EXPECT_EQ(DType::kF8E8M0, *DTypeFromSafetensors("F8_E8M0"));
  EXPECT_EQ(DType::kBF16, *DTypeFromSafetensors("BF16"));
  EXPECT_EQ(DType::kBool, *DTypeFromSafetensors("BOOL"));
  for (const char* name : {"Q8_0", "f32", "", "F32 "}) {
    EXPECT_FALSE(DTypeFromSafetensors(name).ok()) << name;
  }
  const std::string huge(1 << 20, 'x');
  EXPECT_LT(DTypeFromSafetensors(huge).status().message().size(), 100u);
}

TEST(DType, BytesAreWholeBlocksAndChecked) {
  EXPECT_EQ(34u, *DTypeBytes(DType::kQ8_0, 32));
  EXPECT_EQ(0u, *DTypeBytes(DType::kQ8_0, 0));
  EXPECT_EQ(StatusCode::kCorrupt, DTypeBytes(DType::kQ8_0, 33).status().code());
  EXPECT_EQ(StatusCode::kOutOfRange,
            DTypeBytes(DType::kF64, uint64_t{1} << 61).status().code());
}

}  // namespace
}  // namespace ecphory
