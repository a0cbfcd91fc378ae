#include "ops/table_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "ops/testing.h"

namespace ecphory {
namespace {

constexpr TableCodec kCodecs[] = {
    TableCodec::kRow264, TableCodec::kReleasedPair, TableCodec::kBf16,
    TableCodec::kQ8_0,   TableCodec::kQ4_0,         TableCodec::kQ4_1};

// Rows one behind the other, and their scales likewise.
struct Table {
  Table(TableCodec the_codec, size_t the_width, size_t the_count)
      : codec(the_codec),
        width(the_width),
        count(the_count),
        rows(count * row_bytes()),
        scales(count * scale_bytes()) {}

  size_t row_bytes() const { return TableRowBytes(codec, width); }
  size_t scale_bytes() const { return TableScaleBytes(codec, width); }
  uint8_t* row(size_t i) { return rows.data() + i * row_bytes(); }
  uint8_t* scales_of(size_t i) { return scales.data() + i * scale_bytes(); }
  bool Decode(size_t i, float* x) {
    return DecodeTableRow(codec, row(i), scales_of(i), width, x);
  }
  TableRows From() const {
    return {.codec = codec,
            .rows = rows.data(),
            .row_stride = row_bytes(),
            .scales = scale_bytes() == 0 ? nullptr : scales.data(),
            .scale_stride = scale_bytes()};
  }

  TableCodec codec;
  size_t width, count;
  std::vector<uint8_t> rows, scales;
};

class TableRowsTest : public OpTest {
 protected:
  // The values, and whether all rows were whole.
  bool Decode(const TableRows& from, size_t count, size_t width, float* x) {
    const auto broken = std::make_unique<uint32_t>(0);
    ops().decode_rows({.from = from,
                       .count = count,
                       .width = width,
                       .x = x,
                       .broken = broken.get()},
                      Pool(1 + count % 3));
    EXPECT_LE(*broken, 1u);
    return *broken == 0;
  }
  // Whole rows give the values of the definition, together and by number, and
  // each broken one is found alone.
  void ExpectAsDefined(Table table);
};
ECPHORY_INSTANTIATE_OP_TEST(TableRowsTest);

void TableRowsTest::ExpectAsDefined(Table table) {
  const size_t width = table.width;
  std::vector<float> expected, one(width);
  std::vector<uint64_t> whole, broken;
  for (size_t i = 0; i < table.count; ++i) {
    const bool ok = table.Decode(i, one.data());
    (ok ? whole : broken).push_back(i);
    if (ok) expected.insert(expected.end(), one.begin(), one.end());
  }
  TableRows from = table.From();
  std::vector<float> all(table.count * width);
  EXPECT_EQ(Decode(from, table.count, width, all.data()), broken.empty());
  GuardedArray<float> x(expected.size());
  from.numbers = whole.data();
  EXPECT_TRUE(Decode(from, whole.size(), width, x.data()));
  EXPECT_TRUE(SameBits(expected, x)) << TableCodecName(table.codec);
  for (size_t i = 0; i < whole.size(); ++i) {
    ASSERT_TRUE(std::equal(x.data() + i * width, x.data() + (i + 1) * width,
                           all.data() + whole[i] * width))
        << TableCodecName(table.codec) << " row " << whole[i];
  }
  for (const uint64_t& row : broken) {
    from.numbers = &row;
    EXPECT_FALSE(Decode(from, 1, width, one.data()))
        << TableCodecName(table.codec) << " row " << row;
  }
}

// One code in an otherwise harmless block, at every place: the lanes of
// vectors.
TEST_P(TableRowsTest, EveryCodeWithEveryScale) {
  for (const size_t width : {32, 64, 96}) {
    Table table(TableCodec::kReleasedPair, width, 0x10000);
    for (size_t i = 0; i < table.count; ++i) {
      const size_t code = i % 256, scale = i / 256;
      std::memset(table.row(i), 0x38, width);
      table.row(i)[(code * 7 + scale) % width] = static_cast<uint8_t>(code);
      std::memset(table.scales_of(i), static_cast<int>(scale),
                  table.scale_bytes());
    }
    ExpectAsDefined(std::move(table));
  }
}

TEST_P(TableRowsTest, ANaNCodeAnywhereIsFound) {
  for (size_t width = 32; width <= 256; width += 32) {
    Table table(TableCodec::kRow264, width, 2 * width);
    for (size_t i = 0; i < table.count; ++i) {
      std::memset(table.row(i), 0x7e, width);
      std::memset(table.row(i) + width, 127, width / 32);
      table.row(i)[i / 2] = i % 2 == 0 ? 0x7f : 0xff;
    }
    ExpectAsDefined(std::move(table));
  }
}

TEST_P(TableRowsTest, RandomRowsOfEveryCodecAndWidth) {
  std::mt19937 rng(1);
  for (const TableCodec codec : kCodecs) {
    for (size_t width = 32; width <= 416; width += 32) {
      Table table(codec, width, 60);
      for (size_t i = 0; i < table.count; ++i) {
        // Of the bits that make numbers infinite one is clear in most rows.
        const uint32_t mask = i % 4 == 0 ? 0xff : 0xbf;
        for (size_t b = 0; b < table.row_bytes(); ++b) {
          table.row(i)[b] = static_cast<uint8_t>(rng() & mask);
        }
        for (size_t b = 0; b < table.scale_bytes(); ++b) {
          table.scales_of(i)[b] = static_cast<uint8_t>(rng() % 250);
        }
      }
      ExpectAsDefined(std::move(table));
    }
  }
}

// Every f16 scale with codes at both ends of their range and in between.
TEST_P(TableRowsTest, EveryF16Scale) {
  std::mt19937 rng(2);
  for (const TableCodec codec :
       {TableCodec::kQ8_0, TableCodec::kQ4_0, TableCodec::kQ4_1}) {
    Table table(codec, 32, 0x10000);
    for (uint8_t& byte : table.rows) byte = static_cast<uint8_t>(rng());
    for (size_t i = 0; i < table.count; ++i) {
      const uint16_t scale = static_cast<uint16_t>(i);
      table.row(i)[3] &= 0xbf;  // a finite m of Q4_1
      std::memcpy(table.row(i), &scale, sizeof(scale));
    }
    ExpectAsDefined(std::move(table));
  }
}

TEST_P(TableRowsTest, EveryBf16Value) {
  Table table(TableCodec::kBf16, 96, 0x10000);
  std::memset(table.rows.data(), 0x11, table.rows.size());
  for (size_t i = 0; i < table.count; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    std::memcpy(table.row(i) + 2 * (i * 7 % table.width), &bits, sizeof(bits));
  }
  ExpectAsDefined(std::move(table));
}

// As rows lie in a sector, with the scales of a pair behind its codes.
TEST_P(TableRowsTest, OddAddressesAndStrides) {
  std::mt19937 rng(3);
  constexpr size_t kWidth = 160, kCount = 9;
  for (const TableCodec codec : kCodecs) {
    const size_t bytes =
        TableRowBytes(codec, kWidth) + TableScaleBytes(codec, kWidth);
    const bool pair = codec == TableCodec::kReleasedPair;
    for (const size_t skip : {0, 1, 2, 3}) {
      const size_t stride = bytes + skip;
      GuardedArray<uint8_t> rows(skip + kCount * stride);
      for (uint8_t& byte : rows) byte = static_cast<uint8_t>(rng() & 0x3f);
      const uint8_t* const first = rows.data() + skip;
      const uint8_t* const scales = pair ? first + kWidth : nullptr;
      GuardedArray<float> x(kCount * kWidth);
      EXPECT_TRUE(Decode({.codec = codec,
                          .rows = first,
                          .row_stride = stride,
                          .scales = scales,
                          .scale_stride = stride},
                         kCount, kWidth, x.data()));
      std::vector<float> expected(kCount * kWidth);
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_TRUE(DecodeTableRow(codec, first + i * stride,
                                   pair ? scales + i * stride : nullptr, kWidth,
                                   expected.data() + i * kWidth));
      }
      EXPECT_TRUE(SameBits(expected, x)) << TableCodecName(codec) << skip;
    }
  }
}

// Any order, and one row many times.
TEST_P(TableRowsTest, RowsByNumber) {
  std::mt19937 rng(4);
  Table table(TableCodec::kRow264, 256, 1003);
  for (uint8_t& byte : table.rows) byte = static_cast<uint8_t>(rng() & 0x7e);
  std::vector<uint64_t> numbers(5000);
  for (uint64_t& number : numbers) number = rng() % table.count;
  TableRows from = table.From();
  from.numbers = numbers.data();
  GuardedArray<float> x(numbers.size() * table.width);
  EXPECT_TRUE(Decode(from, numbers.size(), table.width, x.data()));
  std::vector<float> expected(x.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    ASSERT_TRUE(table.Decode(numbers[i], expected.data() + i * table.width));
  }
  EXPECT_TRUE(SameBits(expected, x));
}

TEST_P(TableRowsTest, NoRows) { EXPECT_TRUE(Decode({}, 0, 32, nullptr)); }

}  // namespace
}  // namespace ecphory
