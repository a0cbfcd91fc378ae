// Released directories of a per-layer table for tests, right or wrong.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/little_endian.h"
#include "io/file.h"
#include "ple/testing.h"

namespace ecphory::ple {

inline const std::string kPrefix =
    "model.language_model.layers.1.ple.ple_embedding.";

struct TestTensor {
  std::string dtype;
  std::vector<uint64_t> shape;
  std::string data;
};
using Tensors = std::map<std::string, TestTensor>;

inline std::string Shard(uint64_t number) {
  return kPrefix + "ngram_embedding.shard_" + std::to_string(number) +
         ".weight";
}

inline TestTensor Integers(const std::vector<uint64_t>& values) {
  TestTensor tensor{"I64", {values.size()}, ""};
  for (const uint64_t value : values) AppendLE(value, &tensor.data);
  return tensor;
}

inline void WriteShards(const std::string& path, const Tensors& tensors) {
  std::string header, data;
  for (const auto& [name, tensor] : tensors) {
    std::string shape;
    for (const uint64_t dim : tensor.shape) {
      shape += (shape.empty() ? "" : ",") + std::to_string(dim);
    }
    header += (header.empty() ? "\"" : ",\"") + name + "\":{\"dtype\":\"" +
              tensor.dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
              std::to_string(data.size()) + "," +
              std::to_string(data.size() + tensor.data.size()) + "]}";
    data += tensor.data;
  }
  header = "{" + header + "}";
  std::string bytes;
  AppendLE(static_cast<uint64_t>(header.size()), &bytes);
  bytes += header + data;
  auto created = AtomicFileWriter::Create(path);
  ASSERT_TRUE(created.ok());
  AtomicFileWriter* const writer = created->get();
  ASSERT_TRUE(writer
                  ->Write({reinterpret_cast<const uint8_t*>(bytes.data()),
                           bytes.size()})
                  .ok());
  ASSERT_TRUE(writer->Commit().ok());
}

// A table of SmallLayout(), 512 rows of 32 values in four parts.
inline Tensors ShardsOf(const std::string& dtype) {
  const Layout layout = SmallLayout();
  Tensors tensors;
  tensors[kPrefix + "layer_multipliers"] = Integers(layout.multipliers);
  tensors[kPrefix + "ngram_heads_offsets"] = Integers(layout.offsets);
  tensors[kPrefix + "ngram_heads_vocab_sizes"] = Integers(layout.sizes);
  tensors["model.language_model.layers.1.ple.key_proj.weight"] = Integers({1});
  const uint64_t rows[] = {100, 200, 200, 12};
  std::mt19937 rng(1);
  for (uint64_t part = 0; part < 4; ++part) {
    TestTensor& shard = tensors[Shard(part)];
    shard = {dtype, {rows[part], 32}, ""};
    const size_t bytes = rows[part] * 32 * (dtype == "BF16" ? 2 : 1);
    // No exponent is full: finite in both types.
    for (size_t i = 0; i < bytes; ++i) {
      shard.data += static_cast<char>(rng() & 0xbf);
    }
  }
  if (dtype == "F8_E4M3") {
    TestTensor& scale = tensors[kPrefix + "ngram_embedding.weight_scale"];
    scale = {"F32", {}, ""};
    AppendLE(0.37f, &scale.data);
  }
  return tensors;
}

}  // namespace ecphory::ple
