// Packed weights on the device: a lane's run of values of one row, exactly as
// tensor/matrix.h defines them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "ops/cuda/weight_load.cuh"
#include "ops/cuda/weight_super_blocks.cuh"

namespace ecphory::cuda {

// 16 bytes of codes with their e8m0 scale.
struct ScaledCodes {
  uint4 codes;
  uint8_t scale;
};

template <size_t kAlign>
struct Weight<WeightFormat::kF32, kAlign> {
  static constexpr int kRun = 4;
  __device__ Weight(const Matrix& m, size_t row)
      : data(m.data + (m.first_row + row) * m.cols * 4) {}
  using Raw = float4;
  __device__ Raw Load(size_t r) const {
    return LoadAs<float4, kAlign>(data + r * 16);
  }
  static __device__ float Decode(const Raw& v, float (&w)[kRun]) {
    w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
    return 1;
  }
  const uint8_t* data;
};

template <size_t kAlign>
struct Weight<WeightFormat::kBF16, kAlign> {
  static constexpr int kRun = 8;
  __device__ Weight(const Matrix& m, size_t row)
      : data(m.data + (m.first_row + row) * m.cols * 2) {}
  using Raw = uint4;
  __device__ Raw Load(size_t r) const {
    return LoadAs<uint4, kAlign>(data + r * 16);
  }
  static __device__ float Decode(const Raw& v, float (&w)[kRun]) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      w[2 * i] = __uint_as_float(words[i] << 16);
      w[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
    return 1;
  }
  const uint8_t* data;
};

template <size_t kAlign>
struct Weight<WeightFormat::kF16, kAlign> {
  static constexpr int kRun = 8;
  __device__ Weight(const Matrix& m, size_t row)
      : data(m.data + (m.first_row + row) * m.cols * 2) {}
  using Raw = uint4;
  __device__ Raw Load(size_t r) const {
    return LoadAs<uint4, kAlign>(data + r * 16);
  }
  static __device__ float Decode(const Raw& v, float (&w)[kRun]) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = HalfPair(words[i]);
      w[2 * i] = pair.x, w[2 * i + 1] = pair.y;
    }
    return 1;
  }
  const uint8_t* data;
};

template <size_t kAlign>
struct Weight<WeightFormat::kFp8Tile32, kAlign> {
  static constexpr int kRun = 16;
  __device__ Weight(const Matrix& m, size_t row)
      : data(m.data + (m.first_row + row) * m.cols),
        scales(m.scales + (m.first_row + row) / 32 * ((m.cols + 31) / 32)) {}
  using Raw = ScaledCodes;
  __device__ Raw Load(size_t r) const {
    return {LoadAs<uint4, kAlign>(data + r * 16), __ldg(scales + r / 2)};
  }
  static __device__ float Decode(const Raw& raw, float (&w)[kRun]) {
    const uint32_t words[4] = {raw.codes.x, raw.codes.y, raw.codes.z,
                               raw.codes.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 pair =
          E4M3Pair(static_cast<uint16_t>(words[i / 2] >> (16 * (i % 2))));
      w[2 * i] = pair.x, w[2 * i + 1] = pair.y;
    }
    return E8M0ToF32(raw.scale);
  }
  const uint8_t* data;
  const uint8_t* scales;
};

template <size_t kAlign>
struct Weight<WeightFormat::kFp4Row32, kAlign> {
  static constexpr int kRun = 32;
  __device__ Weight(const Matrix& m, size_t row)
      : data(m.data + (m.first_row + row) * (m.cols / 2)),
        scales(m.scales + (m.first_row + row) * (m.cols / 32)) {}
  using Raw = ScaledCodes;
  __device__ Raw Load(size_t r) const {
    return {LoadAs<uint4, kAlign>(data + r * 16), __ldg(scales + r)};
  }
  static __device__ float Decode(const Raw& raw, float (&w)[kRun]) {
    const uint32_t words[4] = {raw.codes.x, raw.codes.y, raw.codes.z,
                               raw.codes.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = E2M1PairScaled(words[j], i);
        w[8 * j + i] = pair.x, w[8 * j + i + 4] = pair.y;
      }
    }
    return E8M0ToF32(raw.scale) * 0x1p14f;
  }
  const uint8_t* data;
  const uint8_t* scales;
};

template <size_t kAlign>
struct Weight<WeightFormat::kMXFP4, kAlign> {
  static constexpr int kRun = 32;
  __device__ Weight(const Matrix& m, size_t row)
      : data(m.data + (m.first_row + row) * (m.cols / 32 * 17)) {}
  using Raw = ScaledCodes;
  __device__ Raw Load(size_t r) const {
    const uint8_t* const block = data + r * 17;
    return {LoadAs<uint4, 1>(block + 1), __ldg(block)};
  }
  static __device__ float Decode(const Raw& raw, float (&w)[kRun]) {
    const uint32_t words[4] = {raw.codes.x, raw.codes.y, raw.codes.z,
                               raw.codes.w};
#pragma unroll
    for (int i = 0; i < 16; ++i) {  // byte i: values i and i + 16
      const uint32_t byte = words[i / 4] >> (8 * (i % 4)) & 0xff;
      const float2 pair = E2M1PairScaled((byte & 15) | (byte >> 4) << 16, 0);
      w[i] = pair.x, w[i + 16] = pair.y;
    }
    return E8M0ToF32(raw.scale) * 0x1p14f;
  }
  const uint8_t* data;
};

template <size_t kAlign>
struct Weight<WeightFormat::kQ8_0, kAlign> {
  static constexpr int kRun = 32;
  __device__ Weight(const Matrix& m, size_t row)
      : data(m.data + (m.first_row + row) * (m.cols / 32 * 34)) {}
  struct Raw {
    uint16_t d;
    uint16_t codes[16];
  };
  __device__ Raw Load(size_t r) const {
    const uint8_t* const block = data + r * 34;
    Raw raw;
    raw.d = LoadAs<uint16_t, kAlign>(block);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      raw.codes[i] = LoadAs<uint16_t, kAlign>(block + 2 + 2 * i);
    }
    return raw;
  }
  static __device__ float Decode(const Raw& raw, float (&w)[kRun]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const uint16_t pair = raw.codes[i];
      w[2 * i] = static_cast<float>(static_cast<int8_t>(pair & 0xff));
      w[2 * i + 1] = static_cast<float>(static_cast<int8_t>(pair >> 8));
    }
    return F16ToF32(raw.d);
  }
  const uint8_t* data;
};

// The largest alignment that every row of the matrix keeps, up to 16.
inline size_t AlignmentOf(const Matrix& m) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(m.data) |
                         static_cast<uintptr_t>(m.row_bytes());
  return size_t{1} << std::min(std::countr_zero(bits | 16), 4);
}

// Value `col` of a row in whole runs.
template <WeightFormat kFormat>
__device__ inline float RunValue(const Matrix& m, size_t row, size_t col) {
  using Row = Weight<kFormat, 1>;
  float w[Row::kRun];
  const float scale = Row::Decode(Row(m, row).Load(col / Row::kRun), w);
  float value = 0;
#pragma unroll
  for (int i = 0; i < Row::kRun; ++i) {
    if (static_cast<size_t>(i) == col % Row::kRun) value = w[i];
  }
  return value * scale;
}

// Value `col` of row `row`; any shape and alignment, for embeddings and the
// small odd matrices.
__device__ inline float WeightValue(const Matrix& m, size_t row, size_t col) {
  const size_t r = m.first_row + row;
  const auto u16 = [](const uint8_t* p) {
    return static_cast<uint16_t>(p[0] | p[1] << 8);
  };
  switch (m.format) {
    case WeightFormat::kF32: {
      const uint8_t* const p = m.data + (r * m.cols + col) * 4;
      return __uint_as_float(u16(p) | static_cast<uint32_t>(u16(p + 2)) << 16);
    }
    case WeightFormat::kF16:
      return F16ToF32(u16(m.data + (r * m.cols + col) * 2));
    case WeightFormat::kBF16:
      return BF16ToF32(u16(m.data + (r * m.cols + col) * 2));
    case WeightFormat::kQ8_0: {
      const uint8_t* const block = m.data + (r * (m.cols / 32) + col / 32) * 34;
      const int8_t code = static_cast<int8_t>(block[2 + col % 32]);
      return F16ToF32(u16(block)) * static_cast<float>(code);
    }
    case WeightFormat::kMXFP4: {
      const uint8_t* const block = m.data + (r * (m.cols / 32) + col / 32) * 17;
      const uint8_t byte = block[1 + col % 16];
      return E2M1ToF32((col % 32 < 16 ? byte : byte >> 4) & 15) *
             E8M0ToF32(block[0]);
    }
    case WeightFormat::kQ4_K: return RunValue<WeightFormat::kQ4_K>(m, row, col);
    case WeightFormat::kQ2_K: return RunValue<WeightFormat::kQ2_K>(m, row, col);
    case WeightFormat::kIQ2_XXS:
      return RunValue<WeightFormat::kIQ2_XXS>(m, row, col);
    case WeightFormat::kFp8Tile32:
      return E4M3ToF32(m.data[r * m.cols + col]) *
             E8M0ToF32(m.scales[r / 32 * ((m.cols + 31) / 32) + col / 32]);
    case WeightFormat::kFp4Row32:
      return E2M1ToF32(m.data[r * (m.cols / 2) + col / 2] >> (4 * (col & 1)) &
                       15) *
             E8M0ToF32(m.scales[r * (m.cols / 32) + col / 32]);
  }
  return 0;
}

}  // namespace ecphory::cuda
