#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "ecphory/engram_tables.h"
#include "engram/synth_rows.h"
#include "io/test_directory.h"
#include "tables/layouts.h"
#include "tables/testing.h"
#include "tensor/table_codec.h"

namespace ecphory::tables {
namespace {

using engram::SynthCodec;
using engram::SynthRowBytes;
using engram::SynthRows;
using engram::SynthTable;

std::string Text(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

struct Case {
  SynthCodec synth;
  TableCodec codec;
};

class SynthRowsTest : public ::testing::TestWithParam<Case> {};

TEST_P(SynthRowsTest, EveryRowDecodes) {
  for (const uint32_t width : {32u, 64u, 160u, 256u}) {
    const SynthTable table{5, 1, GetParam().synth, width};
    const size_t row_bytes = SynthRowBytes(table.codec, width);
    ASSERT_EQ(row_bytes, TableRowBytes(GetParam().codec, width));
    std::vector<uint8_t> rows(500 * row_bytes);
    SynthRows(table, 1'000'000'000'000, rows);
    std::vector<float> values(width);
    std::set<float> distinct;
    for (size_t row = 0; row < 500; ++row) {
      ASSERT_TRUE(DecodeTableRow(GetParam().codec,
                                 rows.data() + row * row_bytes, nullptr, width,
                                 values.data()));
      distinct.insert(values.begin(), values.end());
    }
    EXPECT_GT(distinct.size(), 300u);
  }
}

TEST_P(SynthRowsTest, AnyRowAloneIsTheSame) {
  const SynthTable table{9, 0, GetParam().synth, 96};
  const size_t row_bytes = SynthRowBytes(table.codec, 96);
  std::vector<uint8_t> all(64 * row_bytes), one(row_bytes);
  SynthRows(table, 100, all);
  std::set<std::string> distinct;
  for (uint64_t row = 0; row < 64; ++row) {
    SynthRows(table, 100 + row, one);
    const auto begin = all.begin() + static_cast<ptrdiff_t>(row * row_bytes);
    EXPECT_TRUE(std::equal(one.begin(), one.end(), begin)) << row;
    distinct.insert(Text(one));
  }
  EXPECT_EQ(distinct.size(), 64u);
}

TEST_P(SynthRowsTest, SeedAndTableChangeRows) {
  std::set<std::string> distinct;
  for (const uint64_t seed : {0, 1, 2}) {
    for (const uint32_t number : {0, 1}) {
      std::vector<uint8_t> row(SynthRowBytes(GetParam().synth, 64));
      SynthRows({seed, number, GetParam().synth, 64}, 3, row);
      distinct.insert(Text(row));
    }
  }
  EXPECT_EQ(distinct.size(), 6u);
}

INSTANTIATE_TEST_SUITE_P(
    All, SynthRowsTest,
    ::testing::Values(Case{SynthCodec::kRow264, TableCodec::kRow264},
                      Case{SynthCodec::kBf16, TableCodec::kBf16},
                      Case{SynthCodec::kQ8_0, TableCodec::kQ8_0}));

TEST(SynthRows, CodesAndScalesApartAreThoseOfARow) {
  std::vector<uint8_t> row(66), codes(64), scales(2);
  SynthRows({7, 1, SynthCodec::kRow264, 64}, 42, row);
  SynthRows({7, 1, SynthCodec::kE4M3Codes, 64}, 42, codes);
  SynthRows({7, 1, SynthCodec::kScales, 64}, 42, scales);
  codes.insert(codes.end(), scales.begin(), scales.end());
  EXPECT_EQ(row, codes);
}

TEST(SynthRows, EveryCodeButTheNansOccurs) {
  std::vector<uint8_t> codes(256 * 64);
  SynthRows({1, 0, SynthCodec::kE4M3Codes, 256}, 0, codes);
  EXPECT_EQ(std::set<uint8_t>(codes.begin(), codes.end()).size(), 254u);
}

class SynthTest : public ::testing::Test {
 protected:
  SynthOptions Mini(const std::string& name) {
    SynthOptions options;
    options.output = directory_ / name;
    options.layout = "mini";
    options.rows = 3000;
    return options;
  }
  TestDirectory directory_;
};

TEST_F(SynthTest, RawFileIsItsRows) {
  const auto written = SynthTables(Mini("rows.bin"));
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  ASSERT_EQ(written->tables.size(), 2u);
  const WrittenTable& table = written->tables[1];
  EXPECT_EQ(table.row_bytes, 66u);
  EXPECT_EQ(table.offset, written->tables[0].rows * 66);
  EXPECT_NEAR(static_cast<double>(table.rows), 3000, 1500);
  const std::string bytes = ReadFile(written->output);
  EXPECT_EQ(bytes.size(), written->bytes);
  std::vector<uint8_t> row(66);
  SynthRows({1, 1, SynthCodec::kRow264, 64}, 17, row);
  EXPECT_EQ(bytes.substr(table.offset + 17 * 66, 66), Text(row));
}

TEST_F(SynthTest, SameOptionsGiveTheSameBytes) {
  ASSERT_TRUE(SynthTables(Mini("a.gguf")).ok());
  ASSERT_TRUE(SynthTables(Mini("b.gguf")).ok());
  SynthOptions other = Mini("c.gguf");
  other.seed = 2;
  ASSERT_TRUE(SynthTables(other).ok());
  EXPECT_EQ(ReadFile(directory_ / "a.gguf"), ReadFile(directory_ / "b.gguf"));
  EXPECT_NE(ReadFile(directory_ / "a.gguf"), ReadFile(directory_ / "c.gguf"));
}

TEST_F(SynthTest, SparseFileHasTheSizeAndTheRowsOfTheDenseOne) {
  SynthOptions options = Mini("dense.bin");
  const auto dense = SynthTables(options);
  options.output = directory_ / "sparse.bin";
  options.sparse_bytes = 32768;
  const auto sparse = SynthTables(options);
  ASSERT_TRUE(dense.ok() && sparse.ok()) << sparse.status().ToString();
  EXPECT_FALSE(sparse->verified);
  const std::string whole = ReadFile(dense->output);
  const std::string holes = ReadFile(sparse->output);
  ASSERT_EQ(whole.size(), holes.size());
  const size_t step = 32768 / 66 * 66;
  EXPECT_EQ(whole.substr(step, 16 * 66), holes.substr(step, 16 * 66));
  EXPECT_EQ(whole.substr(whole.size() - 66), holes.substr(holes.size() - 66));
  EXPECT_EQ(holes.substr(16 * 66, 66), std::string(66, '\0'));
}

TEST_F(SynthTest, RefusesWhatItCannotMake) {
  const auto code = [](const SynthOptions& options) {
    return SynthTables(options).status().code();
  };
  SynthOptions options = Mini("x.gguf");
  options.codec = "q5";
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options.codec = "pair";
  EXPECT_EQ(code(options), StatusCode::kUnsupported);
  options = Mini("x");
  options.width = 40;
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options = Mini("x");
  options.vocab_size = 10;
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options = Mini("x");
  options.layout = "nowhere";
  EXPECT_EQ(code(options), StatusCode::kNotFound);
  options = Mini("x");
  options.rows = 1;
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  EXPECT_TRUE(directory_.List().empty());
}

TEST(Layouts, ReleasedIsTheReleasedModel) {
  const auto config = NamedLayout("released");
  ASSERT_TRUE(config.ok());
  const auto layout =
      engram::DeriveLayout({config->layer_ids, config->max_ngram, config->heads,
                            config->vocab_size, config->compressed_vocab_size});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->layers[0].rows, 384'006'168u);
  EXPECT_EQ(layout->layers[1].rows, 384'016'682u);
}

TEST(Layouts, ConfigJsonGivesItsOwn) {
  const auto config =
      NamedLayout(std::string(ECPHORY_TEST_DATA) + "/golden/v41/A/config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_TRUE(config->enabled());
}

}  // namespace
}  // namespace ecphory::tables
