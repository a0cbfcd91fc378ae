// Products of rows of packed weights with some columns of parts of x on tensor
// cores, 8 to 32 of them: bound by reading the weights, which a block reads and
// a warp decodes once for all columns. FP8 and FP4 weights, whose rows are
// multiples of 16 bytes.
//
// A warp multiplies two tiles of 16 rows, of one matrix or of two. The profiler
// counted 42 instructions for 256 FP4 weights and 32 columns, half of the issue
// slots in use, and stalls on instructions of fixed latency; at 4 TB/s a
// multiprocessor's scheduler has 30.
#pragma once

#include "ops/cuda/mma.cuh"
#include "ops/cuda/shared_place.cuh"
#include "ops/cuda/split_rows.cuh"
#include "ops/cuda/weight_fragment.cuh"

namespace ecphory::cuda {

inline constexpr int kColumnWarps = 8;
inline constexpr int kColumnThreads = kColumnWarps * 32;
inline constexpr int kColumnRows = kColumnWarps * 32;  // of a block
inline constexpr int kMostColumns = 32;

// A stage holds 128 bytes of every row, and x to match.
template <WeightFormat kFormat>
struct ColumnShape {
  using F = Fragment<kFormat>;
  static_assert(F::kFactor == FactorPlace::kBeside && F::kTileUnit == 16);
  static constexpr int kRowBytes = 128;
  static constexpr int kUnits = kRowBytes / 16;
  static constexpr int kRowsAtOnce = 32 / kUnits;  // that a warp copies
  static constexpr int kCopies = 32 / kRowsAtOnce;
  static constexpr int kWords = 32 / F::kBlockBytes;  // four blocks each
  static constexpr int kDepth = 128 * kWords;         // columns of weights
  static constexpr int kPitch = kWords == 1 ? F::kTilePitch : F::kPitch;
  static constexpr int kStages = 2;
  static constexpr int kWeightBytes = kColumnRows * kPitch;
  static constexpr int kColumnBytes = 2 * kDepth;  // of x
  static constexpr int kStage = kWeightBytes + kMostColumns * kColumnBytes;
  static constexpr size_t kMemory = size_t{kStages} * kStage;
};

// The rows that a warp multiplies: tile i is of matrix i, from row0[i] on; rows
// past the end repeat the last.
struct ColumnRows {
  const Matrix* m[2];
  size_t row0[2];
  __device__ size_t Stored(int tile, int row) const {
    return min(row0[tile] + static_cast<size_t>(row), m[tile]->rows - 1) +
           m[tile]->first_row;
  }
};

// CopyAsync<16>() to an address of shared memory.
__device__ inline void CopyAsync16(uint32_t to, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to),
               "l"(global)
               : "memory");
}

// Four scales from any address, of which `have` are there.
__device__ __noinline__ uint32_t ScalesOneByOne(const uint8_t* from, int have) {
  uint32_t codes = 0;
  for (int i = 0; i < min(have, 4); ++i) {
    codes |= static_cast<uint32_t>(__ldg(from + i)) << (8 * i);
  }
  return codes;
}

// E8M0ToBF16() of four times four.
__device__ inline void ScalesToBF16(const uint32_t (&codes)[4],
                                    uint2 (&factors)[4]) {
  uint32_t extreme = 0;  // 0 or 255, or next to one that is
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t inverse = ~codes[i];
    extreme |= ((codes[i] - 0x01010101u) & inverse) |
               ((inverse - 0x01010101u) & codes[i]);
    factors[i].x = __byte_perm(codes[i], 0, 0x1404) >> 1;
    factors[i].y = __byte_perm(codes[i], 0, 0x3424) >> 1;
  }
  if ((extreme & 0x80808080u) == 0) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) factors[i] = E8M0ToBF16(codes[i]);
}

// sums[i][j] = products of the warp's row tile i and column tile j. `columns`
// [8 * kTiles] in shared memory are rows of x.parts. All of the block's threads
// call it, with the same kTiles.
template <WeightFormat kFormat, int kTiles>
__device__ void ColumnProducts(const ColumnRows& rows, const SplitRows& x,
                               const uint32_t* columns, uint8_t* memory,
                               float (&sums)[2][kTiles][4]) {
  using F = Fragment<kFormat>;
  using Shape = ColumnShape<kFormat>;
  constexpr int kStages = Shape::kStages;
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4,
            t = lane % 4;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int cols = static_cast<int>(rows.m[0]->cols), blocks = cols / 32;
  const int chunks = (cols + Shape::kDepth - 1) / Shape::kDepth;
  const unsigned row_bytes = static_cast<unsigned>(blocks) * F::kBlockBytes;
  constexpr int kStage = Shape::kStage;
  const uint32_t shared = SharedAddress(memory);

  // What the lane copies of weights, and the thread of x.
  const int unit = lane % Shape::kUnits;
  unsigned from[Shape::kCopies];
#pragma unroll
  for (int j = 0; j < Shape::kCopies; ++j) {
    const int tile = 2 * j / Shape::kCopies;
    const int row = lane / Shape::kUnits + j * Shape::kRowsAtOnce - 16 * tile;
    const size_t in_tile = rows.Stored(tile, row) - rows.Stored(tile, 0);
    from[j] = static_cast<unsigned>(in_tile) * row_bytes + unit * 16;
  }
  const uint8_t* const data[2] = {
      rows.m[0]->data + rows.Stored(0, 0) * row_bytes,
      rows.m[1]->data + rows.Stored(1, 0) * row_bytes};
  const uint32_t to_rows =
      shared +
      static_cast<uint32_t>((warp * 32 + lane / Shape::kUnits) * Shape::kPitch +
                            unit * 16);
  constexpr int kXUnits = Shape::kDepth / 8;
  constexpr int kColumnsAtOnce = kColumnThreads / kXUnits;
  constexpr int kXCopies = (8 * kTiles + kColumnsAtOnce - 1) / kColumnsAtOnce;
  const int x_unit = static_cast<int>(threadIdx.x % kXUnits);
  const int x_column = static_cast<int>(threadIdx.x / kXUnits);
  // Units of odd columns lie with their halves of 128 bytes exchanged.
  const uint32_t to_x =
      shared + static_cast<uint32_t>(Shape::kWeightBytes +
                                     x_column * Shape::kColumnBytes +
                                     (x_unit ^ x_column % 2 * 4) * 16);
  const uint16_t* x_from[kXCopies];
#pragma unroll
  for (int j = 0; j < kXCopies; ++j) {
    const int n = min(x_column + j * kColumnsAtOnce, 8 * kTiles - 1);
    x_from[j] = x.parts + columns[n] * x.pitch + x_unit * 8;
  }
  const auto fetch = [&](int chunk) {
    const uint32_t stage = static_cast<uint32_t>(chunk % kStages * kStage);
    const unsigned at = static_cast<unsigned>(chunk) * Shape::kRowBytes;
    if (at + unit * 16 < row_bytes) {
#pragma unroll
      for (int j = 0; j < Shape::kCopies; ++j) {
        CopyAsync16(to_rows + stage + j * Shape::kRowsAtOnce * Shape::kPitch,
                    data[2 * j / Shape::kCopies] + (from[j] + at));
      }
    }
    const int k = chunk * Shape::kDepth;
    if (k + x_unit * 8 >= cols) return;
#pragma unroll
    for (int j = 0; j < kXCopies; ++j) {
      static_assert(kColumnsAtOnce % 2 == 0);
      if (x_column + j * kColumnsAtOnce < 8 * kTiles) {
        CopyAsync16(to_x + stage + j * kColumnsAtOnce * Shape::kColumnBytes,
                    x_from[j] + k);
      }
    }
  };

  // The scales of the lane's four rows, a word for four blocks.
  const uint8_t* scales[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    size_t row = rows.Stored(i / 2, g + i % 2 * 8);
    if (kFormat == WeightFormat::kFp8Tile32) row /= 32;
    scales[i] = rows.m[i / 2]->scales + row * blocks;
  }
  const bool words = ((reinterpret_cast<uintptr_t>(rows.m[0]->scales) |
                       reinterpret_cast<uintptr_t>(rows.m[1]->scales) |
                       static_cast<uintptr_t>(blocks)) &
                      3) == 0;
  const auto load_codes = [&](int word, uint32_t(&codes)[4]) {
    if (4 * word >= blocks) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint8_t* const four = scales[i] + 4 * word;
      codes[i] = words ? __ldg(reinterpret_cast<const uint32_t*>(four))
                       : ScalesOneByOne(four, blocks - 4 * word);
    }
  };

  uint32_t codes[4] = {}, next_codes[4] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) sums[i][j][k] = 0;
    }
  }
  __syncthreads();  // the stages are free
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < chunks) fetch(s);
    CommitCopies();
  }
  load_codes(0, codes);
  load_codes(1, next_codes);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    WaitForCopies<kStages - 2>();
    __syncthreads();
    if (chunk + kStages - 1 < chunks) fetch(chunk + kStages - 1);
    CommitCopies();
    const uint8_t* const stage = memory + chunk % kStages * kStage;
    const uint8_t* const first_row = stage + (warp * 32 + g) * Shape::kPitch;
    const uint8_t* const first_column =
        stage + Shape::kWeightBytes + g * Shape::kColumnBytes;
#pragma unroll 1
    for (int w = 0; w < Shape::kWords; ++w) {
      const int word = chunk * Shape::kWords + w;
      uint2 factors[4];
      ScalesToBF16(codes, factors);
#pragma unroll
      for (int i = 0; i < 4; ++i) codes[i] = next_codes[i];
      load_codes(word + 2, next_codes);
      const uint8_t* const low_row = first_row + w * 4 * F::kBlockBytes;
      const uint8_t* const column = first_column + w * 256;
      const int have = min(4, blocks - 4 * word);
#pragma unroll
      for (int block = 0; block < 4; ++block) {
        if (block >= have) break;
        uint32_t low[2][4], high[2][4];
        float factor[2][2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          F::Decode(low_row + 16 * i * Shape::kPitch, block, t, low[i]);
          F::Decode(low_row + (16 * i + 8) * Shape::kPitch, block, t, high[i]);
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const uint2 all = factors[2 * i + h];
            const uint32_t half = block < 2 ? all.x : all.y;
            factor[i][h] = __uint_as_float(block % 2 == 0 ? half << 16
                                                          : half & 0xffff0000u);
          }
        }
        const int place = ((4 * block + t) ^ g % 2 * 4) * 16;
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
        for (int j = 0; j < kTiles; ++j) {
          const uint4 v = *reinterpret_cast<const uint4*>(
              column + j * 8 * Shape::kColumnBytes + place);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            MmaFromZero(c[j % 2][i], low[i][0], high[i][0], low[i][1],
                        high[i][1], v.x, v.y);
          }
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            Mma<false>(c[j % 2][i], low[i][2], high[i][2], low[i][3],
                       high[i][3], v.z, v.w);
          }
          if (j > 0) scale(j - 1);
        }
        scale(kTiles - 1);
      }
    }
  }
  WaitForCopies<0>();
}

}  // namespace ecphory::cuda
