// The products of a stage of FP4 weights (ops/cuda/experts_ring_work.cuh) with
// inputs that a warp holds, and what becomes of stages whose scales these do
// not take.
#pragma once

#include "ops/cuda/experts_ring_work.cuh"
#include "ops/cuda/experts_tiles.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/weight_load.cuh"

namespace ecphory::cuda {

// One of the two steps. in.parts: of x, or of hidden vectors, which `from` are.
struct RingStep {
  ExpertsTiles of;
  const float* from;
  RingPlan plan;
};

// Operand column n of a pass is part n % kParts of slot n / kParts. A warp
// holds its share of all columns of weights: a lane 4g + t of operand column
// 8j + g what matches words t of blocks. Columns that stand for nothing repeat
// the last.
template <bool kHidden, int kParts, int kTiles, int kBlocks>
__device__ void HoldInputs(const RingStep& step, const RingPass& pass,
                           int first, int have,
                           uint4 (&held)[kBlocks][kTiles]) {
  const SplitRows& in = step.of.in;
  const int g = static_cast<int>(threadIdx.x % 32) / 4;
  const int t = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    const int n = 8 * j + g;
    const int slot = pass.slots[min(n / kParts, pass.count - 1)];
    const size_t row =
        kHidden ? slot / static_cast<unsigned>(step.of.args.topk) : slot;
    const uint4* const from =
        reinterpret_cast<const uint4*>(in.parts +
                                       (row * kParts + n % kParts) * in.pitch) +
        4 * first + t;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      held[b][j] = b < have ? from[4 * b] : make_uint4(0, 0, 0, 0);
    }
  }
}

// sums[j] = products of 16 rows and a warp's share of columns. The lane's row
// of the matrices that it loads is at `codes`, the scales of its rows g and
// g + 8 at `scales` and at `apart` further.
template <int kTiles, int kBlocks>
__device__ void MultiplyStage(const uint4 (&held)[kBlocks][kTiles],
                              uint32_t codes, const uint8_t* scales, int apart,
                              float (&sums)[kTiles][4]) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int k = 0; k < 4; ++k) sums[j][k] = 0;
  }
#pragma unroll
  for (int b = 0; b < kBlocks; b += 2) {
    uint32_t words[4];  // rows g and g + 8 of block b, and of the next
    LoadMatrices(words, codes + 16 * b);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (b + i >= kBlocks) break;
      const float low_factor =
          __uint_as_float(static_cast<uint32_t>(scales[b + i]) << 23);
      const float high_factor =
          __uint_as_float(static_cast<uint32_t>(scales[apart + b + i]) << 23);
      uint32_t low[4], high[4];
      DecodeE2M1(words[2 * i], low);
      DecodeE2M1(words[2 * i + 1], high);
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const uint4& v = held[b + i][j];
        float c[4];
        MmaFromZero(c, low[0], high[0], low[1], high[1], v.x, v.y);
        Mma<false>(c, low[2], high[2], low[3], high[3], v.z, v.w);
        sums[j][0] = fmaf(c[0], low_factor, sums[j][0]);
        sums[j][1] = fmaf(c[1], low_factor, sums[j][1]);
        sums[j][2] = fmaf(c[2], high_factor, sums[j][2]);
        sums[j][3] = fmaf(c[3], high_factor, sums[j][3]);
      }
    }
  }
}

// Whether none of so many e8m0 codes, a multiple of 16, stands for 2^-127 or
// NaN, which MultiplyStage() takes for 0 and infinity. By a warp.
__device__ inline bool AreOrdinary(const uint8_t* codes, int bytes) {
  uint32_t extreme = 0;  // and those next to one that is
  for (int i = static_cast<int>(threadIdx.x % 32); i < bytes / 16; i += 32) {
    const uint4 v = reinterpret_cast<const uint4*>(codes)[i];
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint32_t inverse = ~words[k];
      extreme |= ((words[k] - 0x01010101u) & inverse) |
                 ((inverse - 0x01010101u) & words[k]);
    }
  }
  return __reduce_or_sync(0xffffffffu, extreme & 0x80808080u) == 0;
}

__device__ inline float Fp4Value(const Matrix& m, size_t row, size_t col) {
  const size_t i = (m.first_row + row) * m.cols + col;
  const uint32_t code = __ldg(m.data + i / 2) >> (i % 2 * 4);
  return E2M1PairScaled(code & 15, 0).x *
         Fragment<WeightFormat::kFp4Row32>::kPower *
         E8M0ToF32(__ldg(m.scales + i / 32));
}

// The products of 16 rows and the inputs row_of(i), weight by weight: in an
// input's first operand column, as a lane has sums of a tile. By a warp.
template <int kParts, typename RowOf>
__device__ float4 SumsByValue(const Matrix& m, size_t row0, const RowOf& row_of,
                              int inputs) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float sums[4] = {};
#pragma unroll 1
  for (int row = 0; row < 16; ++row) {
#pragma unroll 1
    for (int i = 0; i < inputs; ++i) {
      const float* const x = row_of(i);
      float sum = 0;
#pragma unroll 1
      for (size_t k = lane; k < m.cols; k += 32) {
        sum = fmaf(Fp4Value(m, row0 + row, k), x[k], sum);
      }
      sum = WarpSum(sum);
      const int column = i * kParts;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const bool mine =
            k == row / 8 * 2 + column % 2 && lane == row % 8 * 4 + column / 2;
        if (mine) sums[k] = sum;
      }
    }
  }
  return make_float4(sums[0], sums[1], sums[2], sums[3]);
}

}  // namespace ecphory::cuda
