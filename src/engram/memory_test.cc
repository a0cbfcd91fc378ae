// The memory opened by itself, from every kind of file.
#include "engram/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "engram/source_testing.h"

namespace ecphory::engram {
namespace {

const std::vector<int32_t> kTokens = {5, 45, 7, 63, 0, 2, 5, 45, 7};

void ExpectHas(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

std::string OpenError(const std::string& path,
                      const MemoryOptions& options = {}) {
  const auto memory = Memory::Open(path, options);
  return memory.ok() ? "opened" : memory.status().ToString();
}

class MemoryTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_ / name; }

  // Rows are those of the layout, values those of the tables.
  void ExpectWorks(const std::string& path, const MemoryOptions& options) {
    const auto opened = Memory::Open(path, options);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    Memory& memory = **opened;
    ASSERT_EQ(memory.tables(), 2u);
    ASSERT_EQ(memory.columns(), 4u);
    ASSERT_EQ(memory.width(), TestEngram::kWidth);
    EXPECT_EQ(memory.source().vocab_size, TestEngram::kVocab);
    const size_t count = kTokens.size() * memory.columns();
    std::vector<uint64_t> rows(2 * count);
    History history;
    ASSERT_TRUE(memory.Hash(kTokens, {}, &history, rows).ok());
    EXPECT_EQ(rows, PlainRows());
    std::vector<float> values(2 * count * memory.width());
    std::vector<LookupRequest> requests;
    for (size_t i = 0; i < 2; ++i) {
      requests.push_back({.table = i,
                          .rows = std::span(rows).subspan(i * count, count),
                          .out = values.data() + i * count * memory.width(),
                          .format = RowFormat::kF32});
    }
    std::vector<Ticket> tickets(2);
    memory.store().Submit(requests, tickets);
    for (const Ticket ticket : tickets) {
      ASSERT_TRUE(memory.store().Wait(ticket).ok());
    }
    EXPECT_EQ(values, PlainValues(rows));
  }

  // The same rows from the hasher by itself.
  std::vector<uint64_t> PlainRows() const {
    const Hasher hasher = Hasher::Create(test_.layout, test_.token_map,
                                         test_.token_map[TestEngram::kPadToken])
                              .value();
    std::vector<int32_t> ids(kTokens.size());
    EXPECT_TRUE(hasher.Compress(kTokens, {}, ids).ok());
    const size_t count = kTokens.size() * test_.layout.columns();
    std::vector<uint64_t> rows(2 * count);
    const std::vector<std::span<uint64_t>> places = {
        std::span(rows).first(count), std::span(rows).last(count)};
    History history;
    hasher.Hash(ids, &history, places);
    return rows;
  }

  std::vector<float> PlainValues(const std::vector<uint64_t>& rows) const {
    std::vector<float> values;
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t table = i < rows.size() / 2 ? 0 : 1;
      const std::vector<float> row = test_.tables[table].Row(rows[i]);
      values.insert(values.end(), row.begin(), row.end());
    }
    return values;
  }

  TestDirectory folder_;
  TestEngram test_;
};

TEST_F(MemoryTest, TableOnlyGguf) {
  test_.WriteGguf(Path("tables.gguf"));
  ExpectWorks(Path("tables.gguf"), {});
}

TEST_F(MemoryTest, GgufOfTablesWithNumbersElsewhere) {
  GgufWriter writer(32);
  writer.AddString("general.architecture", "anything");
  for (size_t i = 0; i < 2; ++i) test_.AddTable(&writer, i);
  ASSERT_TRUE(writer.WriteTo(Path("bare.gguf"), {}).ok());
  ExpectHas(OpenError(Path("bare.gguf")),
            "bare.gguf: no Engram: expected deepseek41.engram.layer_ids");
  test_.WriteConfig(folder_.path());
  MemoryOptions options;
  options.source.config = Path("config.json");
  ExpectWorks(Path("bare.gguf"), options);
}

TEST_F(MemoryTest, RawRowsInOneFile) {
  test_.WriteRaw(Path("tables.row264"));
  test_.WriteConfig(folder_.path());
  test_.WriteGguf(Path("numbers.gguf"));
  for (const std::string& config :
       {folder_.path(), Path("config.json"), Path("numbers.gguf")}) {
    MemoryOptions options;
    options.source.config = config;
    ExpectWorks(Path("tables.row264"), options);
  }
  ExpectHas(OpenError(Path("tables.row264")), "raw rows need a configuration");
}

TEST_F(MemoryTest, RawRowsInAFilePerTable) {
  test_.WriteConfig(folder_.path());
  WriteTestFile(Path("1.rows"), test_.tables[0].main_bytes());
  WriteTestFile(Path("3.rows"), test_.tables[1].main_bytes());
  MemoryOptions options;
  options.source.config = folder_.path();
  options.source.more_tables = {Path("3.rows")};
  ExpectWorks(Path("1.rows"), options);
  options.source.more_tables.clear();
  ExpectHas(OpenError(Path("1.rows"), options), "the rows of 2 tables");
  options.source.more_tables = {Path("1.rows")};
  ExpectHas(OpenError(Path("1.rows"), options), "the rows of 1 table and");
  options.source.more_tables = {Path("3.rows"), Path("3.rows")};
  ExpectHas(OpenError(Path("1.rows"), options), "3 files of rows, expected 1");
}

TEST_F(MemoryTest, MapFromElsewhere) {
  test_.WriteConfig(folder_.path());
  test_.WriteRaw(Path("tables.row264"));
  std::filesystem::rename(Path("token_map.npy"), Path("map.npy"));
  MemoryOptions options;
  options.source.config = Path("config.json");
  ExpectHas(OpenError(Path("tables.row264"), options),
            "no tokenizer.json and no token_map.npy");
  options.source.token_map = Path("map.npy");
  ExpectWorks(Path("tables.row264"), options);
  options.source.tokenizer = Path("tokenizer.json");
  ExpectHas(OpenError(Path("tables.row264"), options), "expected one of them");
  options.source.token_map.clear();
  ExpectHas(OpenError(Path("tables.row264"), options), "tokenizer.json");
}

// A released directory, with a map from a file and with one that the tokenizer
// gives; its config.json is the model's whole one.
TEST_F(MemoryTest, ReleasedDirectories) {
  const std::string data = ECPHORY_TEST_DATA;
  const auto golden = Memory::Open(data + "/golden/v41/A", {});
  ASSERT_TRUE(golden.ok()) << golden.status().ToString();
  EXPECT_EQ((*golden)->source().kind, SourceKind::kReleased);
  EXPECT_EQ((*golden)->store().table(1).codec, TableCodec::kReleasedPair);
  EXPECT_EQ((*golden)->layout().layers[1].rows, 3424u);
  const auto stored = Memory::Open(data + "/data/trainer", {});
  ASSERT_TRUE(stored.ok()) << stored.status().ToString();
  EXPECT_FALSE((*stored)->source().tokenizer);
  for (const auto& entry :
       std::filesystem::directory_iterator(data + "/data/trainer")) {
    std::filesystem::create_symlink(entry.path(),
                                    Path(entry.path().filename().string()));
  }
  std::filesystem::remove(Path("token_map.npy"));
  const auto built = Memory::Open(folder_.path(), {});
  ASSERT_TRUE(built.ok()) << built.status().ToString();
  EXPECT_TRUE((*built)->source().tokenizer);
  EXPECT_EQ((*built)->hasher().token_map(), (*stored)->hasher().token_map());
  ExpectHas(OpenError(data + "/golden/v41/B"),
            "no Engram: expected text_config.engram_layer_ids");
}

TEST_F(MemoryTest, WhatIsMissingIsNamed) {
  ExpectHas(OpenError(Path("none")), "not found: ");
  ExpectHas(OpenError(folder_.path()), "config.json: missing");
  for (const char* key : {"encoding", "layer_ids", "rows", "token_map"}) {
    GgufWriter writer(32);
    test_.AddKeys(&writer, key);
    ASSERT_TRUE(writer.WriteTo(Path("keys.gguf"), {}).ok());
    ExpectHas(OpenError(Path("keys.gguf")),
              std::string("keys.gguf: missing key deepseek41.engram.") + key);
  }
  GgufWriter writer(32);
  test_.AddKeys(&writer);
  test_.AddTable(&writer, 0);
  ASSERT_TRUE(writer.WriteTo(Path("one.gguf"), {}).ok());
  ExpectHas(OpenError(Path("one.gguf")),
            "one.gguf: missing tensor 'blk.3.engram_embd.weight'");
}

TEST_F(MemoryTest, ConfigurationsThatContradictThemselves) {
  test_.WriteRaw(Path("tables.row264"));
  test_.WriteConfig(folder_.path());
  MemoryOptions options;
  options.source.config = Path("config.json");
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string text = test_.ConfigJson();
    text.replace(text.find(from), from.size(), to);
    WriteTestText(Path("config.json"), text);
    return OpenError(Path("tables.row264"), options);
  };
  ExpectHas(error("\"engram_vocab_size\": 50", "\"engram_vocab_size\": 60"),
            "as in engram_num_embeddings");
  ExpectHas(error("\"engram_pad_id\": 2", "\"engram_pad_id\": 64"),
            "engram_pad_token_id: found 64, expected 0..63");
  ExpectHas(error("[1, 3]", "[1, 4096]"), "found layer 4096");
  ExpectHas(error("{", "{\"vocab_size\": 65, "), "expected [65] (vocab_size)");
  ExpectHas(error("{", "{\"vocab_size\": -1, "), "vocab_size: found -1");
  ExpectHas(error("}", ""), "not valid JSON");
}

TEST_F(MemoryTest, TablesOfLayersThatNobodyNames) {
  GgufWriter writer(32);
  test_.AddKeys(&writer);
  for (size_t i = 0; i < 2; ++i) test_.AddTable(&writer, i);
  ASSERT_TRUE(writer
                  .AddTensor("blk.7.engram_embd.weight", DType::kI8, {1, 33},
                             [](const GgufWriter::Sink& sink) {
                               return sink(std::vector<uint8_t>(33));
                             })
                  .ok());
  ASSERT_TRUE(writer.WriteTo(Path("three.gguf"), {}).ok());
  ExpectHas(OpenError(Path("three.gguf")), "names no Engram in layer 7");
}

TEST_F(MemoryTest, HashInAnyPiecesIsHashAtOnce) {
  test_.WriteGguf(Path("tables.gguf"));
  const auto memory = Memory::Open(Path("tables.gguf"), {});
  ASSERT_TRUE(memory.ok());
  std::vector<int32_t> tokens(700);
  std::vector<uint8_t> dead(700);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(i * 37 % TestEngram::kVocab);
    dead[i] = i % 11 == 5;
  }
  const size_t per_table = tokens.size() * 4;
  std::vector<uint64_t> all(2 * per_table), pieces(2 * per_table);
  History once, often;
  ASSERT_TRUE((*memory)->Hash(tokens, dead, &once, all).ok());
  for (size_t begin = 0; begin < tokens.size();) {
    const size_t count = std::min<size_t>(begin % 5 + 1, 700 - begin);
    std::vector<uint64_t> rows(2 * count * 4);
    ASSERT_TRUE((*memory)
                    ->Hash(std::span(tokens).subspan(begin, count),
                           std::span(dead).subspan(begin, count), &often, rows)
                    .ok());
    for (size_t table = 0; table < 2; ++table) {
      std::copy_n(rows.begin() + static_cast<ptrdiff_t>(table * count * 4),
                  count * 4,
                  pieces.begin() +
                      static_cast<ptrdiff_t>(table * per_table + begin * 4));
    }
    begin += count;
  }
  EXPECT_EQ(all, pieces);
  EXPECT_EQ(once.ids, often.ids);
}

TEST_F(MemoryTest, HashRefusesWhatDoesNotFit) {
  test_.WriteGguf(Path("tables.gguf"));
  const auto memory = Memory::Open(Path("tables.gguf"), {});
  ASSERT_TRUE(memory.ok());
  History history;
  std::vector<int32_t> tokens(300, 1);
  tokens[299] = 64;
  std::vector<uint64_t> rows(300 * 8);
  const Status outside = (*memory)->Hash(tokens, {}, &history, rows);
  EXPECT_EQ(outside.code(), StatusCode::kOutOfRange);
  ExpectHas(outside.message(), "token 64 at position 299, expected ids 0..63");
  EXPECT_EQ(history.length, 0u);
  tokens[299] = 63;
  const std::vector<uint8_t> marks(299);
  EXPECT_EQ((*memory)->Hash(tokens, marks, &history, rows).code(),
            StatusCode::kInvalidArgument);
  rows.pop_back();
  EXPECT_EQ((*memory)->Hash(tokens, {}, &history, rows).code(),
            StatusCode::kInvalidArgument);
}

TEST_F(MemoryTest, DecodesRawRows) {
  test_.WriteGguf(Path("tables.gguf"));
  const auto memory = Memory::Open(Path("tables.gguf"), {});
  ASSERT_TRUE(memory.ok());
  const size_t raw_bytes = (*memory)->RowBytes(1, RowFormat::kRaw);
  ASSERT_EQ(raw_bytes, 33u);
  std::vector<uint8_t> raw(test_.tables[1].RowBytes(4).begin(),
                           test_.tables[1].RowBytes(4).end());
  raw.insert(raw.end(), test_.tables[1].RowBytes(9).begin(),
             test_.tables[1].RowBytes(9).end());
  std::vector<float> values(64);
  const std::span<uint8_t> out(reinterpret_cast<uint8_t*>(values.data()), 256);
  ASSERT_TRUE((*memory)->Decode(1, raw, RowFormat::kF32, out).ok());
  std::vector<float> expected = test_.tables[1].Row(4);
  const std::vector<float> second = test_.tables[1].Row(9);
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(values, expected);
  std::vector<uint8_t> bf16(128);
  ASSERT_TRUE((*memory)->Decode(1, raw, RowFormat::kBf16, bf16).ok());
  for (size_t i = 0; i < expected.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &expected[i], 4);
    EXPECT_EQ(bf16[2 * i] | bf16[2 * i + 1] << 8, static_cast<int>(bits >> 16));
  }
  raw[33] = 0x7f;
  ExpectHas((*memory)->Decode(1, raw, RowFormat::kBf16, bf16).message(),
            "row 1 of those given is damaged");
  EXPECT_EQ((*memory)->Decode(1, raw, RowFormat::kF32, bf16).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ((*memory)->Decode(2, raw, RowFormat::kBf16, bf16).code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ecphory::engram
