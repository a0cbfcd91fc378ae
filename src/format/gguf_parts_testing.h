// Divides a GGUF file into parts as llama.cpp's gguf-split does, for tests.
#pragma once

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/ceil_div.h"
#include "base/check.h"
#include "format/gguf_bytes.h"
#include "tensor/dtype.h"

namespace ecphory::gguf_bytes {

// The keys that part `number`, from 0, of `count` says of itself.
inline std::string PartKeys(uint16_t number, uint16_t count, int32_t tensors) {
  return Key("split.no", GgufType::kU16, LE(number)) +
         Key("split.count", GgufType::kU16, LE(count)) +
         Key("split.tensors.count", GgufType::kI32, LE(tensors));
}

inline std::string PartPath(const std::string& stem, size_t number,
                            size_t count) {
  char ending[64];
  (void)std::snprintf(ending, sizeof(ending), "-%05zu-of-%05zu.gguf",
                      number + 1, count);
  return stem + ending;
}

// Tensors in turn to `count` parts, but none to the first, as with gguf-split's
// --no-tensor-first-split. Returns the first part's path.
inline std::string WriteParts(const std::string& path, const std::string& stem,
                              size_t count) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const auto whole = Parse(bytes);
  ECPHORY_CHECK(whole.ok());
  const std::vector<TensorInfo>& all = whole->index().tensors();
  // Keys stand between the two counts and the first tensor's name.
  constexpr size_t kKeys = 24;
  const size_t infos = bytes.find(Str(all.front().name), kKeys);
  const std::string keys = bytes.substr(kKeys, infos - kKeys);
  const uint64_t alignment = whole->alignment();
  for (size_t part = 0; part < count; ++part) {
    std::string tensors;
    std::string data;
    uint64_t tensor_count = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (part != 1 + i % (count - 1)) continue;
      const std::vector<uint64_t> dims(all[i].shape.rbegin(),
                                       all[i].shape.rend());
      tensors +=
          Tensor(all[i].name, dims, *DTypeToGgml(all[i].dtype), data.size());
      data += bytes.substr(all[i].offset, all[i].bytes);
      data.resize(CeilDiv(data.size(), alignment) * alignment);
      ++tensor_count;
    }
    const std::string own =
        PartKeys(static_cast<uint16_t>(part), static_cast<uint16_t>(count),
                 static_cast<int32_t>(all.size()));
    const std::string aligned = Key("general.alignment", GgufType::kU32,
                                    U32(static_cast<uint32_t>(alignment)));
    const std::string header =
        part == 0 ? Start(tensor_count, whole->Keys().size() + 3) + keys + own
                  : Start(tensor_count, 4) + aligned + own;
    std::ofstream out(PartPath(stem, part, count), std::ios::binary);
    out << WithData(header + tensors, 0, alignment) << data;
    ECPHORY_CHECK(out.good());
  }
  return PartPath(stem, 0, count);
}

}  // namespace ecphory::gguf_bytes
