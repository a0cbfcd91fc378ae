#include "engram/row_decode.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "engram/row_decode_testing.h"
#include "tensor/float_codec.h"

namespace ecphory::engram {
namespace {

constexpr TableCodec kCodecs[] = {
    TableCodec::kRow264, TableCodec::kReleasedPair, TableCodec::kBf16,
    TableCodec::kQ8_0,   TableCodec::kQ4_0,         TableCodec::kQ4_1};

// Runs on every vector target of this processor.
class RowDecode : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { SetRowDecodeTargetForTest(GetParam()); }
  void TearDown() override { SetRowDecodeTargetForTest(0); }
};
INSTANTIATE_TEST_SUITE_P(Targets, RowDecode,
                         testing::ValuesIn(RowDecodeTargetsForTest()),
                         [](const auto& target) {
                           return RowDecodeTargetNameForTest(target.param);
                         });

// Holds both fast forms to the definition. `row` and `scales` are copied to
// heap blocks of their exact size, so that sanitizers see a read outside.
testing::AssertionResult SameAsPlain(TableCodec codec,
                                     const std::vector<uint8_t>& row,
                                     const std::vector<uint8_t>& scales,
                                     size_t width) {
  std::vector<float> expected(width), f32(width, -1.0f);
  std::vector<uint16_t> bf16(width + 1, 0x1234);
  f32.push_back(-77);
  const bool ok =
      DecodeTableRow(codec, row.data(), scales.data(), width, expected.data());
  const bool f32_ok =
      DecodeTableRowFast(codec, row.data(), scales.data(), width, f32.data());
  const bool bf16_ok =
      DecodeTableRowFast(codec, row.data(), scales.data(), width, bf16.data());
  if (f32_ok != ok || bf16_ok != ok) {
    return testing::AssertionFailure()
           << TableCodecName(codec) << ": plain " << ok << ", fp32 " << f32_ok
           << ", bf16 " << bf16_ok;
  }
  if (f32[width] != -77 || bf16[width] != 0x1234) {
    return testing::AssertionFailure() << "wrote past the row";
  }
  for (size_t i = 0; ok && i < width; ++i) {
    if (F32Bits(f32[i]) != F32Bits(expected[i]) ||
        bf16[i] != F32ToBF16(expected[i])) {
      return testing::AssertionFailure()
             << TableCodecName(codec) << " value " << i << " of " << width
             << ": " << f32[i] << " and " << BF16ToF32(bf16[i]) << ", expected "
             << expected[i];
    }
  }
  return testing::AssertionSuccess();
}

// One code in an otherwise harmless block, at every place: the vectors' lanes.
TEST_P(RowDecode, EveryCodeWithEveryScale) {
  for (int scale = 0; scale < 256; ++scale) {
    for (int code = 0; code < 256; ++code) {
      const size_t width = 32 * (1 + static_cast<size_t>(code % 3));
      std::vector<uint8_t> row(width, 0x38);
      row[static_cast<size_t>(code * 7 + scale) % width] =
          static_cast<uint8_t>(code);
      row[static_cast<size_t>(code * 5 + scale + 1) % width] =
          static_cast<uint8_t>(code);
      const std::vector<uint8_t> scales(width / 32,
                                        static_cast<uint8_t>(scale));
      ASSERT_TRUE(SameAsPlain(TableCodec::kReleasedPair, row, scales, width))
          << "code " << code << ", scale " << scale;
    }
  }
}

// All 256 codes of a row at once, and each block with a scale of its own.
TEST_P(RowDecode, AllCodesInARowWithNeighbouringScales) {
  for (int scale = 0; scale < 256; ++scale) {
    for (size_t turn = 0; turn < 32; turn += 5) {
      std::vector<uint8_t> row(256), scales(8);
      for (size_t i = 0; i < 256; ++i) {
        const uint8_t code = static_cast<uint8_t>(i + turn);
        row[i] = (code & 0x7f) == 0x7f ? 0 : code;
      }
      for (size_t i = 0; i < 8; ++i) {
        scales[i] = static_cast<uint8_t>(scale + static_cast<int>(i * turn));
      }
      ASSERT_TRUE(SameAsPlain(TableCodec::kReleasedPair, row, scales, 256));
      row.insert(row.end(), scales.begin(), scales.end());
      ASSERT_TRUE(SameAsPlain(TableCodec::kRow264, row, {}, 256));
    }
  }
}

TEST_P(RowDecode, ANaNCodeAnywhereIsFound) {
  for (size_t width = 32; width <= 256; width += 32) {
    const std::vector<uint8_t> scales(width / 32, 127);
    for (size_t i = 0; i < width; ++i) {
      for (uint8_t code : {0x7f, 0xff}) {
        std::vector<uint8_t> row(width, 0x7e);
        row[i] = code;
        std::vector<float> f32(width);
        std::vector<uint16_t> bf16(width);
        EXPECT_FALSE(DecodeTableRowFast(TableCodec::kReleasedPair, row.data(),
                                        scales.data(), width, f32.data()));
        EXPECT_FALSE(DecodeTableRowFast(TableCodec::kReleasedPair, row.data(),
                                        scales.data(), width, bf16.data()));
      }
    }
  }
}

TEST_P(RowDecode, RandomRowsOfEveryCodecAndWidth) {
  std::mt19937 rng(1);
  for (TableCodec codec : kCodecs) {
    for (size_t width = 32; width <= 416; width += 32) {
      for (int trial = 0; trial < 60; ++trial) {
        std::vector<uint8_t> row(TableRowBytes(codec, width));
        std::vector<uint8_t> scales(TableScaleBytes(codec, width));
        // Of the bits that make numbers infinite one is clear in most trials.
        const uint32_t mask = trial % 4 == 0 ? 0xff : 0xbf;
        for (uint8_t& byte : row) byte = static_cast<uint8_t>(rng() & mask);
        for (uint8_t& byte : scales) byte = static_cast<uint8_t>(rng() % 250);
        ASSERT_TRUE(SameAsPlain(codec, row, scales, width)) << width;
      }
    }
  }
}

// Every f16 scale with codes at both ends of their range and in between.
TEST_P(RowDecode, EveryF16Scale) {
  std::mt19937 rng(2);
  for (TableCodec codec :
       {TableCodec::kQ8_0, TableCodec::kQ4_0, TableCodec::kQ4_1}) {
    for (uint32_t scale = 0; scale < 0x10000; ++scale) {
      std::vector<uint8_t> row(TableRowBytes(codec, 32));
      for (uint8_t& byte : row) byte = static_cast<uint8_t>(rng());
      row[3] = static_cast<uint8_t>(row[3] & 0xbf);  // a finite m of Q4_1
      std::memcpy(row.data(), &scale, 2);
      ASSERT_TRUE(SameAsPlain(codec, row, {}, 32)) << "scale " << scale;
    }
  }
}

TEST_P(RowDecode, EveryBf16Value) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const size_t width = 32 * (1 + bits % 3);
    std::vector<uint8_t> row(2 * width, 0x11);
    std::memcpy(row.data() + 2 * (bits * 7 % width), &bits, 2);
    ASSERT_TRUE(SameAsPlain(TableCodec::kBf16, row, {}, width)) << bits;
  }
}

// Any alignment, as rows lie in a sector.
TEST_P(RowDecode, OddAddresses) {
  std::mt19937 rng(3);
  for (TableCodec codec : kCodecs) {
    std::vector<uint8_t> row(TableRowBytes(codec, 160) + 1);
    for (uint8_t& byte : row) byte = static_cast<uint8_t>(rng() & 0x3f);
    const std::vector<uint8_t> scales(6, 120);
    std::vector<float> expected(160), out(160);
    ASSERT_TRUE(DecodeTableRow(codec, row.data() + 1, scales.data() + 1, 160,
                               expected.data()));
    ASSERT_TRUE(DecodeTableRowFast(codec, row.data() + 1, scales.data() + 1,
                                   160, out.data()));
    EXPECT_EQ(out, expected) << TableCodecName(codec);
  }
}

}  // namespace
}  // namespace ecphory::engram
