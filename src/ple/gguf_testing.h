// GGUF files with an n-gram table, byte by byte, right or wrong.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "format/gguf_bytes.h"
#include "io/file.h"
#include "ple/layout.h"
#include "tensor/table_codec.h"

namespace ecphory::ple {

// ggml ids of the types in use here.
enum GgmlType : uint32_t {
  kGgmlF32 = 0,
  kGgmlF16 = 1,
  kGgmlQ4_0 = 2,
  kGgmlQ4_1 = 3,
  kGgmlQ8_0 = 8,
  kGgmlIQ4NL = 20,
  kGgmlBF16 = 30,
  kGgmlMXFP4 = 39,
};

// A file in the making: keys by name, each encoded, and at most one tensor.
struct TestGguf {
  std::string path = "m.gguf";
  std::map<std::string, std::string> keys;
  bool has_table = false;
  std::vector<uint64_t> dims;  // fastest first
  uint32_t type = 0;
  std::string data;

  void SetUint(const std::string& key, uint32_t value) {
    keys[key] = gguf_bytes::Key(key, GgufType::kU32, gguf_bytes::U32(value));
  }
  void SetUint64(const std::string& key, uint64_t value) {
    keys[key] = gguf_bytes::Key(key, GgufType::kU64, gguf_bytes::U64(value));
  }
  void SetArray(const std::string& key, const std::vector<uint64_t>& values) {
    std::string bytes;
    for (const uint64_t value : values) bytes += gguf_bytes::U64(value);
    keys[key] = gguf_bytes::ArrayKey(key, GgufType::kU64, values.size(), bytes);
  }
  void SetBools(const std::string& key, const std::vector<bool>& values) {
    std::string bytes;
    for (const bool value : values) bytes += value ? '\1' : '\0';
    keys[key] =
        gguf_bytes::ArrayKey(key, GgufType::kBool, values.size(), bytes);
  }
  // A table of `rows` rows; data is a byte of 1s, finite in every codec.
  void SetTable(uint32_t ggml_type, TableCodec codec, uint64_t width,
                uint64_t rows) {
    has_table = true;
    type = ggml_type;
    dims = {width, rows};
    data.assign(rows * TableRowBytes(codec, width), '\1');
  }

  std::shared_ptr<RandomAccessFile> File() const {
    std::string bytes = gguf_bytes::Start(has_table ? 1 : 0, keys.size());
    for (const auto& [name, key] : keys) bytes += key;
    if (has_table) {
      bytes += gguf_bytes::Tensor("per_layer_token_embd.weight", dims, type, 0);
    }
    bytes = gguf_bytes::WithData(bytes, 0) + data;
    return MakeMemoryFile(
        path, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  }
};

inline void SetConstants(const std::string& prefix, const Layout& layout,
                         TestGguf* file) {
  file->SetArray(prefix + "layer_multipliers", layout.multipliers);
  file->SetArray(prefix + "head_offsets", layout.offsets);
  file->SetArray(prefix + "head_vocab_sizes", layout.sizes);
}

// A sidecar of `layout` with a Q8_0 table.
inline TestGguf SidecarOf(const Layout& layout) {
  TestGguf file;
  file.path = "side.gguf";
  const std::string prefix = "qwen38-next.ple.";
  SetConstants(prefix, layout, &file);
  file.SetUint(prefix + "row_length", layout.width);
  file.SetUint64(prefix + "total_rows", layout.rows());
  file.SetUint64(prefix + "table_rows", layout.padded_rows());
  file.SetTable(kGgmlQ8_0, TableCodec::kQ8_0, layout.width,
                layout.padded_rows());
  return file;
}

// The keys of a model of 4 layers whose layer 1 reads the table.
inline TestGguf ModelOf(const Layout& layout) {
  TestGguf file;
  const std::string prefix = "qwen4exp.ple.";
  SetConstants(prefix, layout, &file);
  file.SetArray(prefix + "layers", {1});
  file.SetUint(prefix + "ngram_size", layout.ngram_size);
  file.SetUint(prefix + "heads_per_ngram", layout.heads_per_ngram);
  file.SetUint(prefix + "conv_kernel", 4);
  file.SetUint(prefix + "eos_token_id", static_cast<uint32_t>(layout.eos_id));
  file.SetUint("qwen4exp.embedding_length_per_layer_input", layout.width);
  file.SetUint("qwen4exp.block_count", 4);
  file.SetUint("qwen4exp.hyper_connection.count", 4);
  return file;
}

}  // namespace ecphory::ple
