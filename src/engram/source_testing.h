// A small Engram with random rows, written as every kind of file that opens.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engram/layout.h"
#include "engram/store_testing.h"
#include "format/gguf.h"
#include "format/npy.h"
#include "io/test_directory.h"

namespace ecphory::engram {

inline void WriteTestFile(const std::string& path,
                          std::span<const uint8_t> bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(out.good()) << path;
}

inline void WriteTestText(const std::string& path, const std::string& text) {
  WriteTestFile(path,
                {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

// Layers 1 and 3, n-grams of 2 and 3, 2 heads, 64 tokens in 40 classes.
class TestEngram {
 public:
  static constexpr uint32_t kWidth = 32;
  static constexpr uint32_t kVocab = 64;
  static constexpr uint32_t kClasses = 40;
  static constexpr int32_t kPadToken = 2;

  TestEngram()
      : layout(DeriveLayout({.layer_ids = {1, 3},
                             .max_ngram = 3,
                             .heads = 2,
                             .vocab_size = 50,
                             .compressed_vocab_size = kClasses})
                   .value()) {
    for (uint32_t i = 0; i < kVocab; ++i) {
      token_map.push_back(static_cast<int32_t>(i % kClasses));
    }
    for (const LayerLayout& layer : layout.layers) {
      tables.emplace_back(TableCodec::kRow264, layer.rows, kWidth);
    }
  }

  std::vector<uint64_t> rows() const {
    return {layout.layers[0].rows, layout.layers[1].rows};
  }

  // The keys of a table-only GGUF, none of the backbone's; `without` names one
  // to leave out.
  void AddKeys(GgufWriter* w, const std::string& without = "") const {
    const std::string prefix = "deepseek41.engram.";
    const auto wanted = [&](const char* key) { return without != key; };
    std::vector<uint64_t> primes, multipliers;
    for (const LayerLayout& layer : layout.layers) {
      primes.insert(primes.end(), layer.primes.begin(), layer.primes.end());
      multipliers.insert(multipliers.end(), layer.multipliers.begin(),
                         layer.multipliers.end());
    }
    w->AddString("general.architecture", "deepseek41");
    if (wanted("encoding")) {
      w->AddString(prefix + "encoding", "e4m3_e8m0_32_row33");
    }
    if (wanted("layer_ids")) w->AddUint32Array(prefix + "layer_ids", {1, 3});
    if (wanted("rows")) w->AddUint64Array(prefix + "rows", rows());
    w->AddUint32(prefix + "compressed_vocab_size", kClasses);
    w->AddUint32(prefix + "pad_id", static_cast<uint32_t>(kPadToken));
    if (wanted("token_map")) {
      w->AddUint32Array(prefix + "token_map",
                        {token_map.begin(), token_map.end()});
    }
    w->AddUint64Array(prefix + "primes", primes);
    w->AddUint64Array(prefix + "multipliers", multipliers);
  }
  void AddTable(GgufWriter* w, size_t table) const {
    const std::string name = "blk." +
                             std::to_string(layout.layers[table].layer_id) +
                             ".engram_embd.weight";
    const std::vector<uint8_t>& bytes = tables[table].main_bytes();
    const auto produce = [&bytes](const GgufWriter::Sink& sink) {
      return sink(bytes);
    };
    const uint64_t row_bytes = TableRowBytes(TableCodec::kRow264, kWidth);
    ASSERT_TRUE(
        w->AddTensor(name, DType::kI8, {rows()[table], row_bytes}, produce)
            .ok());
  }
  void WriteGguf(const std::string& path) const {
    GgufWriter writer(4096);
    AddKeys(&writer);
    for (size_t i = 0; i < tables.size(); ++i) AddTable(&writer, i);
    ASSERT_TRUE(writer.WriteTo(path, {}).ok());
  }

  // The engram_* keys alone.
  std::string ConfigJson() const {
    return "{\"engram_layer_ids\": [1, 3], \"engram_num_embeddings\": [" +
           std::to_string(rows()[0]) + ", " + std::to_string(rows()[1]) +
           "], \"engram_max_ngram_size\": 3, \"engram_n_heads\": 2, "
           "\"engram_head_dim\": 32, \"engram_vocab_size\": 50, "
           "\"engram_compressed_vocab_size\": 40, \"engram_pad_id\": 2}";
  }
  // config.json and token_map.npy.
  void WriteConfig(const std::string& folder) const {
    WriteTestText(folder + "/config.json", ConfigJson());
    ASSERT_TRUE(
        WriteNpyI32(folder + "/token_map.npy", token_map, {kVocab}).ok());
  }
  // All tables, one behind another.
  void WriteRaw(const std::string& path) const {
    std::vector<uint8_t> all;
    for (const TestTable& table : tables) {
      all.insert(all.end(), table.main_bytes().begin(),
                 table.main_bytes().end());
    }
    WriteTestFile(path, all);
  }

  Layout layout;
  std::vector<int32_t> token_map;
  std::vector<TestTable> tables;
};

}  // namespace ecphory::engram
