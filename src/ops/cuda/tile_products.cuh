// Products of 128 rows of packed weights with many columns of parts of x on
// tensor cores: weights are decoded from shared memory into registers, by every
// warp for its own 32 rows.
#pragma once

#include "ops/cuda/mma.cuh"
#include "ops/cuda/split_rows.cuh"
#include "ops/cuda/weight_fragment.cuh"

namespace ecphory::cuda {

inline constexpr int kTileWarps = 8;  // 4 by rows, 2 by columns
inline constexpr int kTileThreadCount = kTileWarps * 32;
inline constexpr int kTileWeightRows = 128;
inline constexpr int kTileDepthCols = 128;  // of a stage

template <WeightFormat kFormat, int kColumns>
struct TileShape {
  using F = Fragment<kFormat>;
  static constexpr int kRowBytes = 4 * F::kBlockBytes;
  static constexpr int kWeightBytes = kTileWeightRows * F::kTilePitch;
  static constexpr int kStage = kWeightBytes + kColumns * 2 * kTileDepthCols;
  static constexpr int kStages = kColumns > 64 ? 2 : 3;
  static constexpr size_t kMemory = size_t{kStages} * kStage;
  static constexpr int kColumnTiles = kColumns / 16;  // of a warp, 8 wide
};

// What a block multiplies: rows 0..63 of its weights are rows of `low`, and
// 64..127 of `high`, from row0 on; those past `rows` repeat the last.
struct TileWeights {
  const Matrix* low;
  const Matrix* high;
  size_t low_row0, high_row0, rows;
  __device__ size_t RowOf(int i) const {
    const size_t row = (i < 64 ? low_row0 : high_row0) + i % 64;
    return min(row, rows - 1) + MatrixOf(i).first_row;
  }
  __device__ const Matrix& MatrixOf(int i) const {
    return i < 64 ? *low : *high;
  }
};

// A warp's rows of the tile: its tiles of 16 begin at 32 * w and 32 * w + 16,
// or, where the halves are rows of two matrices, at 16 * w of each.
template <bool kTwo>
__device__ inline int WarpRow(int warp_row, int tile) {
  return kTwo ? 16 * warp_row + 64 * tile : 32 * warp_row + 16 * tile;
}

// sums[i][j] += products of the warp's row tile i and column tile j for columns
// of x from chunk `begin` to `end`, of 128. `columns` [kColumns] in shared
// memory are rows of `parts`.
template <WeightFormat kFormat, int kColumns, bool kTwo>
__device__ void TileProducts(
    const TileWeights& weights, const uint16_t* parts, size_t pitch,
    const uint32_t* columns, int cols, int begin, int end, uint8_t* memory,
    float (&sums)[2][TileShape<kFormat, kColumns>::kColumnTiles][4]) {
  using F = Fragment<kFormat>;
  using Shape = TileShape<kFormat, kColumns>;
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4,
            t = lane % 4;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int warp_row = warp / 2, warp_column = warp % 2 * (kColumns / 2);
  const unsigned row_bytes = static_cast<unsigned>(cols / 32) * F::kBlockBytes;

  const auto fetch = [&](int chunk) {
    if (chunk < end) {
      uint8_t* const to =
          memory + (chunk - begin) % Shape::kStages * Shape::kStage;
      constexpr int kUnits = Shape::kRowBytes / F::kTileUnit;
      const unsigned from = static_cast<unsigned>(chunk) * Shape::kRowBytes;
#pragma unroll
      for (int i0 = 0; i0 < kTileWeightRows * kUnits; i0 += kTileThreadCount) {
        const int i = i0 + static_cast<int>(threadIdx.x);
        const int row = i / kUnits, unit = i % kUnits;
        const unsigned at = from + unit * F::kTileUnit;
        if (row < kTileWeightRows && at < row_bytes) {
          CopyAsync<F::kTileUnit>(
              to + row * F::kTilePitch + unit * F::kTileUnit,
              weights.MatrixOf(row).data + weights.RowOf(row) * row_bytes + at);
        }
      }
      // Units of odd columns lie with their halves of 128 bytes exchanged.
      const int unit = static_cast<int>(threadIdx.x % 16);
      if (chunk * kTileDepthCols + unit * 8 < cols) {
#pragma unroll
        for (int n0 = 0; n0 < kColumns; n0 += kTileThreadCount / 16) {
          const int n = n0 + static_cast<int>(threadIdx.x / 16);
          CopyAsync<16>(
              to + Shape::kWeightBytes + n * 256 + (unit ^ n % 2 * 4) * 16,
              parts + columns[n] * pitch + chunk * kTileDepthCols + unit * 8);
        }
      }
    }
    CommitCopies();
  };
  // The scales of the lane's four rows for a chunk.
  const int blocks = cols / 32;
  const uint8_t* factor_rows[4];
  if constexpr (F::kFactor == FactorPlace::kBeside) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = WarpRow<kTwo>(warp_row, i / 2) + g + i % 2 * 8;
      size_t at = weights.RowOf(row);
      if (kFormat == WeightFormat::kFp8Tile32) at /= 32;
      factor_rows[i] = weights.MatrixOf(row).scales + at * blocks;
    }
  }
  const auto load_factors = [&](int chunk, uint32_t(&codes)[4]) {
    if constexpr (F::kFactor != FactorPlace::kBeside) return;
    if (chunk >= end) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint8_t* const from = factor_rows[i] + 4 * chunk;
      if (blocks % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 4 == 0) {
        codes[i] = __ldg(reinterpret_cast<const uint32_t*>(from));
      } else {
        codes[i] = 0;
        for (int j = 0; j < 4 && 4 * chunk + j < blocks; ++j) {
          codes[i] |= static_cast<uint32_t>(__ldg(from + j)) << (8 * j);
        }
      }
    }
  };

  uint32_t codes[4] = {};
  __syncthreads();  // the stages are free
#pragma unroll
  for (int s = 0; s < Shape::kStages - 1; ++s) fetch(begin + s);
  load_factors(begin, codes);
  for (int chunk = begin; chunk < end; ++chunk) {
    WaitForCopies<Shape::kStages - 2>();
    __syncthreads();
    fetch(chunk + Shape::kStages - 1);
    uint2 factors[4];
    if constexpr (F::kFactor == FactorPlace::kBeside) {
#pragma unroll
      for (int i = 0; i < 4; ++i) factors[i] = E8M0ToBF16(codes[i]);
      load_factors(chunk + 1, codes);
    }
    const uint8_t* const stage =
        memory + (chunk - begin) % Shape::kStages * Shape::kStage;
    const uint8_t* const x =
        stage + Shape::kWeightBytes + (warp_column + g) * 256;
    const int have = min(4, blocks - 4 * chunk);
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      if (block >= have) break;
      uint32_t low[2][4], high[2][4];
      float factor[2][2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint8_t* const row =
            stage + (WarpRow<kTwo>(warp_row, i) + g) * F::kTilePitch;
        F::Decode(row, block, t, low[i]);
        F::Decode(row + 8 * F::kTilePitch, block, t, high[i]);
        if constexpr (F::kFactor == FactorPlace::kInRow) {
          factor[i][0] = F::Factor(row, block);
          factor[i][1] = F::Factor(row + 8 * F::kTilePitch, block);
        } else if constexpr (F::kFactor == FactorPlace::kBeside) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const uint2 all = factors[2 * i + h];
            const uint32_t word = block < 2 ? all.x : all.y;
            factor[i][h] = __uint_as_float(block % 2 == 0 ? word << 16
                                                          : word & 0xffff0000u);
          }
        }
      }
      const int unit = (4 * block + t) ^ g % 2 * 4;
      // The sums of a column tile are scaled while the next one's are formed.
      float c[2][2][4];
      const auto scale = [&](int j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            sums[i][j][k] =
                fmaf(c[j % 2][i][k], factor[i][k / 2], sums[i][j][k]);
          }
        }
      };
#pragma unroll
      for (int j = 0; j < Shape::kColumnTiles; ++j) {
        const uint4 v =
            *reinterpret_cast<const uint4*>(x + j * 8 * 256 + unit * 16);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if constexpr (F::kFactor == FactorPlace::kNone) {
            Mma<F::kBf16>(sums[i][j], low[i][0], high[i][0], low[i][1],
                          high[i][1], v.x, v.y);
          } else {
            MmaFromZero(c[j % 2][i], low[i][0], high[i][0], low[i][1],
                        high[i][1], v.x, v.y);
          }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if constexpr (F::kFactor == FactorPlace::kNone) {
            Mma<F::kBf16>(sums[i][j], low[i][2], high[i][2], low[i][3],
                          high[i][3], v.z, v.w);
          } else {
            Mma<false>(c[j % 2][i], low[i][2], high[i][2], low[i][3],
                       high[i][3], v.z, v.w);
          }
        }
        if (F::kFactor != FactorPlace::kNone && j > 0) scale(j - 1);
      }
      if (F::kFactor != FactorPlace::kNone) scale(Shape::kColumnTiles - 1);
    }
  }
  WaitForCopies<0>();
}

}  // namespace ecphory::cuda
