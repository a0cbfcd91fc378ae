// Little-endian loads and stores at any alignment: the byte order of every
// file format here.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

namespace ecphory {

// Bulk data (weights, rows) is used in place, so the host must agree with the
// files; the scalar helpers below may then be plain copies.
static_assert(std::endian::native == std::endian::little,
              "only little-endian hosts are supported");

template <typename T>
T LoadLE(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// Appends the bytes of `value` to `out`.
template <typename T>
void AppendLE(T value, std::string* out) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
}

}  // namespace ecphory
