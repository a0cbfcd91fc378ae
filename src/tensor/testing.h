// Golden arrays for tests of this module, which lies below the real .npy
// reader (format/npy.h).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace ecphory {

// The values of a one- or two-dimensional C-order .npy file of element type T;
// a test failure and an empty vector when the file is missing or is no array
// of such elements. `name` is relative to tests/golden/engram_release.
template <typename T>
std::vector<T> ReadGoldenArray(const std::string& name) {
  constexpr size_t kPreamble = 10;  // magic, version, u16 header length
  const std::string path =
      std::string(ECPHORY_TEST_DATA "/golden/engram_release/") + name;
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (bytes.size() < kPreamble) {
    ADD_FAILURE() << "cannot read " << path;
    return {};
  }
  const size_t start =
      kPreamble + static_cast<uint8_t>(bytes[8]) +
      256 * static_cast<size_t>(static_cast<uint8_t>(bytes[9]));
  const std::string descr = sizeof(T) == 1 ? "|u1" : "<f4";
  if (start > bytes.size() || bytes.find(descr) > start ||
      (bytes.size() - start) % sizeof(T) != 0) {
    ADD_FAILURE() << path << " is no array of " << descr;
    return {};
  }
  std::vector<T> values((bytes.size() - start) / sizeof(T));
  std::memcpy(values.data(), bytes.data() + start, bytes.size() - start);
  return values;
}

}  // namespace ecphory
