// Golden files for tests of this module, which knows no file format.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ecphory::engram {

// `name` is relative to tests/golden.
inline std::string ReadGolden(const std::string& name) {
  std::ifstream file(std::string(ECPHORY_TEST_DATA "/golden/") + name,
                     std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_FALSE(bytes.empty()) << "cannot read " << name;
  return bytes;
}

inline nlohmann::json ReadGoldenJson(const std::string& name) {
  return nlohmann::json::parse(ReadGolden(name));
}

// Tensors of a golden.safetensors file.
class GoldenTensors {
 public:
  explicit GoldenTensors(const std::string& name) : bytes_(ReadGolden(name)) {
    uint64_t header_bytes;
    std::memcpy(&header_bytes, bytes_.data(), sizeof(header_bytes));
    data_ = sizeof(header_bytes) + header_bytes;
    header_ = nlohmann::json::parse(
        bytes_.substr(sizeof(header_bytes), header_bytes));
  }

  // T is the C++ type of the stored elements.
  template <typename T>
  std::vector<T> Get(const std::string& tensor) const {
    const auto& range = header_.at(tensor).at("data_offsets");
    const size_t begin = range.at(0), end = range.at(1);
    std::vector<T> values((end - begin) / sizeof(T));
    std::memcpy(values.data(), bytes_.data() + data_ + begin, end - begin);
    return values;
  }

 private:
  std::string bytes_;
  size_t data_ = 0;
  nlohmann::json header_;
};

// Integers of a JSON array nested to any depth, in order.
inline std::vector<uint64_t> Flatten(const nlohmann::json& array) {
  if (!array.is_array()) return {array.get<uint64_t>()};
  std::vector<uint64_t> flat;
  for (const auto& element : array) {
    const std::vector<uint64_t> inner = Flatten(element);
    flat.insert(flat.end(), inner.begin(), inner.end());
  }
  return flat;
}

}  // namespace ecphory::engram
