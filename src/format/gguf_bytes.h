// Builds GGUF files byte by byte, right or wrong, for tests: independent of the
// writer, so that the two are held to each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/little_endian.h"
#include "format/gguf.h"
#include "io/file.h"

namespace ecphory::gguf_bytes {

template <typename T>
std::string LE(T value) {
  std::string out;
  AppendLE(value, &out);
  return out;
}
inline std::string U32(uint32_t value) { return LE(value); }
inline std::string U64(uint64_t value) { return LE(value); }
inline std::string Str(const std::string& text) {
  return U64(text.size()) + text;
}
inline std::string Type(GgufType type) {
  return U32(static_cast<uint32_t>(type));
}

// One key with its already encoded value.
inline std::string Key(const std::string& name, GgufType type,
                       const std::string& value) {
  return Str(name) + Type(type) + value;
}
inline std::string ArrayKey(const std::string& name, GgufType element,
                            uint64_t count, const std::string& values) {
  return Key(name, GgufType::kArray, Type(element) + U64(count) + values);
}

// One tensor; `dims` fastest first.
inline std::string Tensor(const std::string& name,
                          const std::vector<uint64_t>& dims, uint32_t type,
                          uint64_t offset) {
  std::string out = Str(name) + U32(static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) out += U64(dim);
  return out + U32(type) + U64(offset);
}

inline std::string Start(uint64_t tensors, uint64_t keys,
                         uint32_t version = 3) {
  return "GGUF" + U32(version) + U64(tensors) + U64(keys);
}

// Pads `header` to `alignment` and appends `data_bytes` of data.
inline std::string WithData(std::string header, size_t data_bytes,
                            size_t alignment = 32) {
  header.resize((header.size() + alignment - 1) / alignment * alignment);
  return header + std::string(data_bytes, '\x11');
}

inline Result<GgufFile> Parse(const std::string& bytes,
                              const GgufLimits& limits = {}) {
  return GgufFile::Parse(
      MakeMemoryFile("m.gguf", {reinterpret_cast<const uint8_t*>(bytes.data()),
                                bytes.size()}),
      limits);
}

}  // namespace ecphory::gguf_bytes
