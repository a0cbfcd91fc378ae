#include "tables/row_scan.h"

#include <gtest/gtest.h>

#include "engram/synth_rows.h"
#include "tensor/table_codec.h"

namespace ecphory::tables {
namespace {

using engram::SynthCodec;
using engram::SynthRowBytes;
using engram::SynthRows;

constexpr uint32_t kWidth = 64;

// Valid rows of a codec.
class Rows {
 public:
  Rows(SynthCodec synth, size_t count)
      : row_bytes_(SynthRowBytes(synth, kWidth)), bytes_(count * row_bytes_) {
    SynthRows({3, 0, synth, kWidth}, 0, bytes_);
  }
  uint8_t& At(size_t row, size_t byte) {
    return bytes_[row * row_bytes_ + byte];
  }
  void Zero(size_t row, size_t count) {
    std::fill_n(bytes_.begin() + static_cast<ptrdiff_t>(row * row_bytes_),
                count * row_bytes_, uint8_t{0});
  }
  std::span<const uint8_t> bytes() const { return bytes_; }
  size_t row_bytes() const { return row_bytes_; }

 private:
  size_t row_bytes_;
  std::vector<uint8_t> bytes_;
};

RowScan Scan(TableCodec codec, const Rows& rows, uint64_t first = 0) {
  RowScanner scanner(codec, kWidth, /*scales=*/false);
  scanner.Begin(first);
  scanner.Add(rows.bytes());
  return scanner.Finish();
}

TEST(RowScan, ValidRowsHaveNoFault) {
  for (const auto& [synth, codec] :
       {std::pair(SynthCodec::kRow264, TableCodec::kRow264),
        std::pair(SynthCodec::kE4M3Codes, TableCodec::kReleasedPair),
        std::pair(SynthCodec::kBf16, TableCodec::kBf16),
        std::pair(SynthCodec::kQ8_0, TableCodec::kQ8_0)}) {
    const RowScan scan = Scan(codec, Rows(synth, 100));
    EXPECT_EQ(scan.rows, 100u);
    EXPECT_TRUE(scan.listed.empty());
    EXPECT_EQ(scan.zero_rows, 0u);
  }
}

TEST(RowScan, FindsEachKindInEveryPlace) {
  for (size_t byte = 0; byte < kWidth; ++byte) {
    for (const uint8_t code : {0x7f, 0xff}) {
      Rows rows(SynthCodec::kRow264, 5);
      rows.At(3, byte) = code;
      const RowScan scan = Scan(TableCodec::kRow264, rows, 1000);
      ASSERT_EQ(scan.nan, 1u) << byte;
      EXPECT_EQ(scan.listed[0].row, 1003u);
      EXPECT_EQ(scan.listed[0].fault, RowFault::kNan);
    }
  }
  for (const size_t scale : {0, 1}) {
    Rows rows(SynthCodec::kRow264, 5);
    rows.At(4, kWidth + scale) = 255;
    const RowScan scan = Scan(TableCodec::kRow264, rows);
    EXPECT_EQ(scan.scale, 1u);
    EXPECT_EQ(scan.listed[0].row, 4u);
  }
}

// Agrees with the decoder about every code under every large scale.
TEST(RowScan, OverflowIsWhatTheDecoderSays) {
  std::vector<float> values(kWidth);
  for (int scale = 240; scale < 255; ++scale) {
    for (int code = 0; code < 256; ++code) {
      if ((code & 0x7f) == 0x7f) continue;
      Rows rows(SynthCodec::kRow264, 1);
      for (size_t i = 0; i < 32; ++i) rows.At(0, i) = 0;
      rows.At(0, 7) = static_cast<uint8_t>(code);
      rows.At(0, kWidth) = static_cast<uint8_t>(scale);
      const bool good = DecodeTableRow(TableCodec::kRow264, rows.bytes().data(),
                                       nullptr, kWidth, values.data());
      EXPECT_EQ(Scan(TableCodec::kRow264, rows).not_finite, good ? 0u : 1u)
          << scale << " " << code;
    }
  }
}

TEST(RowScan, OtherCodecsTellValuesThatAreNotFinite) {
  Rows bf16(SynthCodec::kBf16, 4);
  bf16.At(2, 10) = 0x80;
  bf16.At(2, 11) = 0xff;
  EXPECT_EQ(Scan(TableCodec::kBf16, bf16).not_finite, 1u);
  Rows q8(SynthCodec::kQ8_0, 4);
  q8.At(1, 0) = 0;
  q8.At(1, 1) = 0x7c;
  EXPECT_EQ(Scan(TableCodec::kQ8_0, q8).not_finite, 1u);
}

TEST(RowScan, ScalesAloneTellFaultsAndWhatIsUnsure) {
  RowScanner scanner(TableCodec::kReleasedPair, kWidth, /*scales=*/true);
  const std::vector<uint8_t> scales = {100, 101, 255, 3, 7, 247, 246, 254};
  scanner.Begin(10);
  scanner.Add(scales);
  EXPECT_EQ(scanner.unsure(), (std::vector<uint64_t>{12, 13}));
  const RowScan scan = scanner.Finish();
  EXPECT_EQ(scan.rows, 4u);
  EXPECT_EQ(scan.scale, 1u);
  EXPECT_EQ(scan.listed[0].row, 11u);
}

// Zero rows as the report counts them, whatever the stretches.
ScanTotals Totals(const Rows& rows, size_t total, size_t stretch) {
  ScanTotals totals;
  const uint64_t threshold = MissingRunRows(rows.row_bytes());
  RowScanner scanner(TableCodec::kRow264, kWidth, /*scales=*/false);
  for (size_t row = 0; row < total; row += stretch) {
    const size_t count = std::min(stretch, total - row);
    scanner.Begin(row);
    scanner.Add(
        rows.bytes().subspan(row * rows.row_bytes(), count * rows.row_bytes()));
    const auto copy = DecodeScan(EncodeScan(scanner.Finish()));
    EXPECT_TRUE(copy.ok());
    totals.Add(*copy, threshold);
  }
  totals.Finish(threshold);
  return totals;
}

TEST(RowScan, HolesAreTheSameInStretchesOfAnySize) {
  const uint64_t threshold = MissingRunRows(66);
  EXPECT_EQ(threshold, 61u);
  Rows rows(SynthCodec::kRow264, 1000);
  rows.Zero(0, 70);     // at the start
  rows.Zero(200, 3);    // rows of zeros, no hole
  rows.Zero(300, 150);  // across stretches
  rows.Zero(500, 61);   // just a hole
  rows.Zero(600, 60);   // just none
  rows.Zero(900, 100);  // to the end
  for (const size_t stretch : {1, 7, 50, 100, 333, 1000}) {
    const ScanTotals totals = Totals(rows, 1000, stretch);
    EXPECT_EQ(totals.zero_rows, 70u + 3 + 150 + 61 + 60 + 100) << stretch;
    EXPECT_EQ(totals.first_zero, 0u);
    EXPECT_EQ(totals.missing_runs, 4u) << stretch;
    EXPECT_EQ(totals.missing_rows, 70u + 150 + 61 + 100) << stretch;
    EXPECT_EQ(totals.first_missing.first, 0u);
    EXPECT_EQ(totals.longest_missing.first, 300u);
    EXPECT_EQ(totals.longest_missing.count, 150u);
  }
}

TEST(RowScan, TableOfZerosIsOneHole) {
  Rows rows(SynthCodec::kRow264, 500);
  rows.Zero(0, 500);
  for (const size_t stretch : {50, 500}) {
    const ScanTotals totals = Totals(rows, 500, stretch);
    EXPECT_EQ(totals.missing_runs, 1u);
    EXPECT_EQ(totals.missing_rows, 500u);
  }
}

TEST(RowScan, RecordsThatAreNoneAreRefused) {
  EXPECT_FALSE(DecodeScan("").ok());
  EXPECT_FALSE(DecodeScan("[1,2]").ok());
  EXPECT_FALSE(DecodeScan("[1,2,3,4,5,6,7,8,9,10,[[1]],[]]").ok());
}

}  // namespace
}  // namespace ecphory::tables
