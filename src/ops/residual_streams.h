// Residual streams in memory: fp32, or bf16 where activations are bf16.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ecphory {

enum class StreamFormat : uint8_t {
  kF32,
  // The upper halves of fp32 values. Operators on such streams round as a model
  // with bf16 activations does, each at its end and to nearest even: streams as
  // they are written, vectors that are made of them (`x`), and vectors that are
  // added to them as they are read (`y`, `kv`).
  kBF16,
};

constexpr size_t StreamBytes(StreamFormat format) {
  return format == StreamFormat::kBF16 ? sizeof(uint16_t) : sizeof(float);
}

// Views of streams [tokens, H, D], from float* or uint16_t* (bf16).
struct Streams {
  Streams() = default;
  Streams(float* h) : data(h) {}
  Streams(uint16_t* h) : data(h), format(StreamFormat::kBF16) {}
  Streams(void* h, StreamFormat f) : data(h), format(f) {}

  bool is_bf16() const { return format == StreamFormat::kBF16; }
  // The view from value `first` on.
  Streams From(size_t first) const {
    return {static_cast<uint8_t*>(data) + first * StreamBytes(format), format};
  }

  void* data = nullptr;
  StreamFormat format = StreamFormat::kF32;
};

struct ConstStreams {
  ConstStreams() = default;
  ConstStreams(const float* h) : data(h) {}
  ConstStreams(const uint16_t* h) : data(h), format(StreamFormat::kBF16) {}
  ConstStreams(Streams h) : data(h.data), format(h.format) {}

  bool is_bf16() const { return format == StreamFormat::kBF16; }

  const void* data = nullptr;
  StreamFormat format = StreamFormat::kF32;
};

}  // namespace ecphory
