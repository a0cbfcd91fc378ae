// Rounding is part of the model: every backend gives the codec's exact bits.
#include "ops/rows.h"

#include "ops/testing.h"
#include "tensor/float_codec.h"

namespace ecphory {
namespace {

constexpr RowFormat kRowFormats[] = {RowFormat::kF32, RowFormat::kFp8Block32,
                                     RowFormat::kFp4Block16,
                                     RowFormat::kFp4Block32};

class RowsTest : public OpTest {};
ECPHORY_INSTANTIATE_OP_TEST(RowsTest);

// Values of every magnitude, zeros, rounding ties and blocks of zeros.
void FillHard(GuardedArray<float>& x, size_t dim, Random& random) {
  for (size_t i = 0; i < x.size(); ++i) {
    const float magnitude =
        std::ldexp(1.0f, static_cast<int>(random.Below(24)) - 12);
    switch (random.Below(4)) {
      case 0: x[i] = magnitude * random.Signed(); break;
      case 1: x[i] = 0.25f * static_cast<float>(random.Below(49)) - 6; break;
      case 2: x[i] = random.Below(2) != 0 ? 0.0f : -0.0f; break;
      default: x[i] = random.Signed(); break;
    }
    if (i % dim < 32 && i / dim == 1) x[i] = 0;
  }
}

TEST_P(RowsTest, StoreWritesTheCodecsBytesIntoTheRing) {
  Random random(16);
  for (const RowFormat format : kRowFormats) {
    for (const size_t dim : {32, 64, 96, 128, 512}) {
      for (const uint64_t first_row :
           {uint64_t{0}, uint64_t{3}, uint64_t{8}, uint64_t{1} << 40}) {
        constexpr size_t kCapacity = 9;
        const size_t row_bytes = RowBytes(format, dim);
        for (const size_t rows : {1, 5, 9}) {
          GuardedArray<float> x(rows * dim);
          FillHard(x, dim, random);
          GuardedArray<uint8_t> expected(kCapacity * row_bytes);
          for (size_t i = 0; i < rows; ++i) {
            EncodeRow(
                format, x.data() + i * dim, dim,
                expected.data() + (first_row + i) % kCapacity * row_bytes);
          }
          for (const size_t threads : {1, 2, 3}) {
            GuardedArray<uint8_t> cache(kCapacity * row_bytes);
            ops().store_rows(StoreRowsArgs{.x = x.data(),
                                           .rows = rows,
                                           .dim = dim,
                                           .format = format,
                                           .cache = cache.data(),
                                           .first_row = first_row,
                                           .capacity = kCapacity},
                             Pool(threads));
            EXPECT_TRUE(SameBits(expected, cache))
                << RowFormatName(format) << " dim " << dim;
          }
        }
      }
    }
  }
}

TEST_P(RowsTest, RoundIsEncodeThenDecode) {
  Random random(17);
  for (const RowFormat format : kRowFormats) {
    for (const size_t dim : {16, 48, 32, 64, 96, 128, 512}) {
      if (dim % 32 != 0 && format != RowFormat::kFp4Block16) continue;
      for (const size_t rows : {1, 3, 8, 100}) {
        GuardedArray<float> x(rows * dim);
        FillHard(x, dim, random);
        std::vector<float> expected(x.size());
        std::vector<uint8_t> packed(RowBytes(format, dim));
        for (size_t i = 0; i < rows; ++i) {
          EncodeRow(format, x.data() + i * dim, dim, packed.data());
          DecodeRow(format, packed.data(), dim, expected.data() + i * dim);
        }
        ops().round_rows(
            {.x = x.data(), .rows = rows, .dim = dim, .format = format},
            Pool(1 + rows % 3));
        EXPECT_TRUE(SameBits(expected, x))
            << RowFormatName(format) << " " << dim;
      }
    }
  }
}

// Both operators against the codec, by bits.
void CheckRow(const Ops& ops, RowFormat format, const std::vector<float>& x) {
  const size_t dim = x.size();
  GuardedArray<float> row(dim);
  std::copy(x.begin(), x.end(), row.begin());
  GuardedArray<uint8_t> expected(RowBytes(format, dim));
  GuardedArray<uint8_t> stored(RowBytes(format, dim));
  EncodeRow(format, x.data(), dim, expected.data());
  std::vector<float> rounded(dim);
  DecodeRow(format, expected.data(), dim, rounded.data());
  ops.store_rows(StoreRowsArgs{.x = row.data(),
                               .rows = 1,
                               .dim = dim,
                               .format = format,
                               .cache = stored.data(),
                               .first_row = 0,
                               .capacity = 1},
                 Pool(1));
  EXPECT_TRUE(SameBits(expected, stored)) << RowFormatName(format);
  ops.round_rows({.x = row.data(), .rows = 1, .dim = dim, .format = format},
                 Pool(1));
  for (size_t i = 0; i < dim; ++i) {
    if (std::isnan(rounded[i]) && std::isnan(row[i])) continue;
    ASSERT_EQ(F32Bits(rounded[i]), F32Bits(row[i]))
        << RowFormatName(format) << " of " << x[i];
  }
}

// Every value of the small formats, the midpoints between them, and what lies
// next to those, under a scale of 1.
TEST_P(RowsTest, EveryCodeAndMidpoint) {
  std::vector<float> fp8, fp4;
  for (int code = 0; code < 0x7e; ++code) {
    const float value = E4M3ToF32(static_cast<uint8_t>(code));
    fp8.push_back(value);
    if (code < 0x7d) {
      fp8.push_back((value + E4M3ToF32(static_cast<uint8_t>(code + 1))) / 2);
    }
  }
  for (uint8_t code = 0; code < 8; ++code) {
    fp4.push_back(E2M1ToF32(code));
    if (code < 7) fp4.push_back((E2M1ToF32(code) + E2M1ToF32(code + 1)) / 2);
  }
  const auto check = [&](RowFormat format, const std::vector<float>& values,
                         float largest) {
    std::vector<float> x;
    for (const float value : values) {
      if (x.size() % 32 == 0) x.push_back(largest);
      if (x.size() % 32 > 26) x.resize((x.size() + 31) / 32 * 32 + 1, largest);
      for (const float near : {value, std::nextafter(value, 0.0f),
                               std::nextafter(value, largest)}) {
        x.push_back(near);
        x.push_back(-near);
      }
    }
    x.resize((x.size() + 31) / 32 * 32);
    CheckRow(ops(), format, x);
  };
  check(RowFormat::kFp8Block32, fp8, 448);
  check(RowFormat::kFp4Block32, fp4, 6);
  check(RowFormat::kFp4Block16, fp4, 6);
}

TEST_P(RowsTest, EveryMagnitudeAndNoNumber) {
  Random random(20);
  const float kOdd[] = {std::numeric_limits<float>::quiet_NaN(),
                        std::numeric_limits<float>::infinity(),
                        -std::numeric_limits<float>::infinity()};
  for (const RowFormat format : kRowFormats) {
    for (int exponent = -149; exponent <= 127; ++exponent) {
      std::vector<float> x(96);
      for (float& value : x) value = std::ldexp(random.Signed(), exponent);
      CheckRow(ops(), format, x);
      if (exponent % 16 != 0) continue;
      for (const float odd : kOdd) {
        x[32 + random.Below(32)] = odd;
        CheckRow(ops(), format, x);
      }
    }
  }
}

// Blocks of 16 need no multiple of 32, and F32 rows no multiple at all.
TEST_P(RowsTest, ShortRows) {
  Random random(18);
  const struct {
    RowFormat format;
    size_t dim;
  } kCases[] = {{RowFormat::kFp4Block16, 16},
                {RowFormat::kFp4Block16, 48},
                {RowFormat::kF32, 1},
                {RowFormat::kF32, 7}};
  for (const auto& c : kCases) {
    const GuardedArray<float> x = random.Array(c.dim);
    GuardedArray<uint8_t> expected(RowBytes(c.format, c.dim));
    GuardedArray<uint8_t> cache(RowBytes(c.format, c.dim));
    EncodeRow(c.format, x.data(), c.dim, expected.data());
    ops().store_rows(StoreRowsArgs{.x = x.data(),
                                   .rows = 1,
                                   .dim = c.dim,
                                   .format = c.format,
                                   .cache = cache.data(),
                                   .first_row = 0,
                                   .capacity = 1},
                     Pool(1));
    EXPECT_TRUE(SameBits(expected, cache)) << RowFormatName(c.format);
  }
}

TEST_P(RowsTest, RoundsToBf16Exactly) {
  Random random(19);
  const float inf = std::numeric_limits<float>::infinity();
  const float kSpecial[] = {0.0f,
                            -0.0f,
                            inf,
                            -inf,
                            1.00390625f,
                            1.01171875f,
                            std::numeric_limits<float>::max(),
                            0x1p-149f};
  for (const size_t count : {1, 3, 7, 8, 15, 16, 17, 35, 127, 4096, 100003}) {
    GuardedArray<float> x(count);
    for (size_t i = 0; i < count; ++i) {
      x[i] = i < 8 ? kSpecial[i] : std::ldexp(random.Signed(), 20);
    }
    std::vector<float> expected(count);
    for (size_t i = 0; i < count; ++i) expected[i] = RoundToBF16(x[i]);
    ops().round_bf16({.x = x.data(), .count = count}, Pool(1 + count % 3));
    EXPECT_TRUE(SameBits(expected, x)) << count;
  }
  GuardedArray<float> nan(33);
  ops().round_bf16({.x = nan.data(), .count = 33}, Pool(1));
  for (const float value : nan) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace ecphory
