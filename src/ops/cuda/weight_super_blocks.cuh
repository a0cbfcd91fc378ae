// ggml's blocks of 256 values on the device.
#pragma once

#include <array>
#include <cstdint>

#include "ops/cuda/weight_load.cuh"
#include "tensor/iq2_xxs.h"
#include "tensor/super_blocks.h"

namespace ecphory::cuda {

// Blocks of 256 in parts of 32, of which a run is one: scale * q - min.
template <size_t kAlign>
struct Weight<WeightFormat::kQ4_K, kAlign> {
  static constexpr int kRun = 32;
  __device__ Weight(const Matrix& m, size_t row)
      : data(m.data +
             (m.first_row + row) * (m.cols / kSuperBlock) * sizeof(Q4KBlock)) {}
  struct Raw {
    float scale, min;
    uint32_t words[8];  // nibbles of this part in their low halves
  };
  __device__ Raw Load(size_t r) const {
    const uint8_t* const block = data + r / 8 * sizeof(Q4KBlock);
    const size_t part = r % 8;
    const float2 d = HalfPair(LoadAs<uint32_t, kAlign>(block));
    Raw raw{d.x * Q4KScale(block + 4, part), d.y * Q4KMin(block + 4, part)};
    const uint8_t* const codes = block + 16 + part / 2 * 32;
    const uint4 a = LoadAs<uint4, kAlign>(codes);
    const uint4 b = LoadAs<uint4, kAlign>(codes + 16);
    const uint32_t words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) raw.words[i] = words[i] >> (part % 2 * 4);
    return raw;
  }
  static __device__ float Decode(const Raw& raw, float (&w)[kRun]) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const uint32_t q = raw.words[i / 4] >> (8 * (i % 4)) & 15;
      w[i] = fmaf(raw.scale, static_cast<float>(q), -raw.min);
    }
    return 1;
  }
  const uint8_t* data;
};

template <size_t kAlign>
struct Weight<WeightFormat::kQ2_K, kAlign> {
  static constexpr int kRun = 32;
  __device__ Weight(const Matrix& m, size_t row)
      : data(m.data +
             (m.first_row + row) * (m.cols / kSuperBlock) * sizeof(Q2KBlock)) {}
  struct Raw {
    float2 d;
    uint16_t scales;    // of this run's two parts of 16 values
    uint32_t words[8];  // codes of this run in the low two bits of each byte
  };
  __device__ Raw Load(size_t r) const {
    const uint8_t* const block = data + r / 8 * sizeof(Q2KBlock);
    const size_t part = r % 8;
    Raw raw{HalfPair(LoadAs<uint32_t, kAlign>(block + 80)),
            LoadAs<uint16_t, 2>(block + 2 * part)};
    const uint8_t* const codes = block + 16 + part / 4 * 32;
    const uint4 a = LoadAs<uint4, kAlign>(codes);
    const uint4 b = LoadAs<uint4, kAlign>(codes + 16);
    const uint32_t words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) raw.words[i] = words[i] >> (part % 4 * 2);
    return raw;
  }
  static __device__ float Decode(const Raw& raw, float (&w)[kRun]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t packed = raw.scales >> (8 * half) & 255;
      const float scale = raw.d.x * static_cast<float>(packed & 15);
      const float min = raw.d.y * static_cast<float>(packed >> 4);
#pragma unroll
      for (int i = 16 * half; i < 16 * half + 16; ++i) {
        const uint32_t q = raw.words[i / 4] >> (8 * (i % 4)) & 3;
        w[i] = fmaf(scale, static_cast<float>(q), -min);
      }
    }
    return 1;
  }
  const uint8_t* data;
};

// The grid's magnitudes, 8 bytes an entry.
__device__ const std::array<std::array<uint8_t, 8>, 256> kGrid = kIq2xxsGrid;

__device__ inline uint2 GridEntry(uint32_t index) {
  return __ldg(reinterpret_cast<const uint2*>(&kGrid) + index);
}

template <size_t kAlign>
struct Weight<WeightFormat::kIQ2_XXS, kAlign> {
  static constexpr int kRun = 32;
  __device__ Weight(const Matrix& m, size_t row)
      : data(m.data + (m.first_row + row) * (m.cols / kSuperBlock) *
                          sizeof(Iq2xxsBlock)) {}
  struct Raw {
    uint2 part;
    uint16_t d;
  };
  __device__ Raw Load(size_t r) const {
    const uint8_t* const block = data + r / 8 * sizeof(Iq2xxsBlock);
    return {LoadAs<uint2, kAlign>(block + 2 + r % 8 * 8),
            LoadAs<uint16_t, kAlign>(block)};
  }
  static __device__ float Decode(const Raw& raw, float (&w)[kRun]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint2 entry = GridEntry(raw.part.x >> (8 * k) & 255);
      const uint32_t signs = Iq2xxsSigns(raw.part.y >> (7 * k) & 127);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint32_t word = i < 4 ? entry.x : entry.y;
        const float magnitude = static_cast<float>(word >> (8 * (i % 4)) & 255);
        w[8 * k + i] = (signs >> i & 1) != 0 ? -magnitude : magnitude;
      }
    }
    return F16ToF32(raw.d) * (0.5f + static_cast<float>(raw.part.y >> 28)) *
           0.25f;
  }
  const uint8_t* data;
};

}  // namespace ecphory::cuda
