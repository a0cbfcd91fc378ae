// The products of an expert's rows for one to four slots, for formats with e8m0
// scales beside their codes: bound by reading the weights, which go straight
// to registers.
//
// A lane 4g + t of a warp has rows g and g + 8 of 16, and of every four blocks
// of 32 columns the t-th, all of it. A slot's columns of the other operand are
// so many as there are blocks and parts of x (ops/cuda/operand.cuh): column
// 2t + p is part p of x in block t's places and 0 in others'. So the sums of
// four blocks come apart in one accumulator, and lane 4g + t has those of the
// blocks whose scales it has.
#pragma once

#include "ops/cuda/mma.cuh"
#include "ops/cuda/operand.cuh"
#include "ops/cuda/weight_fragment.cuh"

namespace ecphory::cuda {

// Sixteen bytes that are read once.
__device__ inline uint4 LoadOnce(const uint8_t* from) {
  uint4 v;
  asm volatile(
      "ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(from));
  return v;
}

// A lane's part of 128 bytes of each row: its block of each group of four.
template <WeightFormat kFormat>
struct RowPiece {
  using F = Fragment<kFormat>;
  static constexpr int kVectors = F::kBlockBytes / 16;
  static constexpr int kGroups = 32 / F::kBlockBytes;
  static constexpr int kBlocks = 4 * kGroups;

  // Values 8j .. 8j + 7 of the lane's block in row g (half 0) or g + 8.
  __device__ void Decode(int group, int half, int j, uint32_t (&out)[4]) const {
    constexpr int kWords = 2 / kGroups;
    const uint4& v = codes[group][half][j * kWords / 4];
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    F::DecodeWords(words + j * kWords % 4, out);
  }

  uint4 codes[kGroups][2][kVectors];
};

// The scales of a block's rows, bytes in shared memory as they are in the
// matrix.
template <WeightFormat kFormat>
struct RowScales {
  // Rows of scales that `rows` rows of a matrix have at most.
  static __host__ __device__ size_t Rows(size_t rows) {
    return kFormat == WeightFormat::kFp8Tile32 ? rows / 32 + 2 : rows;
  }
  static __host__ __device__ size_t Bytes(size_t rows, size_t cols) {
    return (Rows(rows) * (cols / 32) + 15) / 16 * 16;
  }
  static __device__ size_t RowOf(const Matrix& m, size_t row) {
    const size_t in_matrix = m.first_row + min(row, m.rows - 1);
    return kFormat == WeightFormat::kFp8Tile32 ? in_matrix / 32 : in_matrix;
  }

  // Begins to copy those of rows row0 .. row0 + rows - 1. kThreads neighbours,
  // all of the block or a warp, call it; done after WaitForCopies<0>() and a
  // barrier.
  template <int kThreads>
  static __device__ void Load(const Matrix& m, size_t row0, size_t rows,
                              uint8_t* to) {
    const size_t blocks = m.cols / 32, first = RowOf(m, row0);
    const int bytes =
        static_cast<int>((RowOf(m, row0 + rows - 1) - first + 1) * blocks);
    const uint8_t* const from = m.scales + first * blocks;
    const int vectors =
        reinterpret_cast<uintptr_t>(from) % 16 == 0 ? bytes / 16 : 0;
    const int thread = static_cast<int>(threadIdx.x % kThreads);
    for (int i = thread; i < vectors; i += kThreads) {
      CopyAsync<16>(to + 16 * i, from + 16 * i);
    }
    for (int i = 16 * vectors + thread; i < bytes; i += kThreads) {
      to[i] = __ldg(from + i);
    }
    CommitCopies();
  }
};

// Where a lane reads: every sharers-th piece of its two rows.
template <WeightFormat kFormat>
struct RowWalk {
  using F = Fragment<kFormat>;
  using Piece = RowPiece<kFormat>;

  // Rows past the end repeat the last.
  __device__ RowWalk(const Matrix& m, size_t row0, int share, int sharers)
      : blocks(static_cast<int>(m.cols / 32)), step(Piece::kBlocks * sharers) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    block = Piece::kBlocks * share + lane % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const size_t row =
          m.first_row + min(row0 + lane / 4 + 8 * half, m.rows - 1);
      codes[half] = m.data + (row * blocks + block) * F::kBlockBytes;
    }
  }
  // The next piece; zeros past the end of the row.
  __device__ void Load(Piece& piece) {
#pragma unroll
    for (int i = 0; i < Piece::kGroups; ++i) {
      const bool inside = block + 4 * i < blocks;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int v = 0; v < Piece::kVectors; ++v) {
          piece.codes[i][half][v] = make_uint4(0, 0, 0, 0);
          if (inside) {
            piece.codes[i][half][v] =
                LoadOnce(codes[half] + 4 * i * F::kBlockBytes + 16 * v);
          }
        }
      }
    }
    Advance();
  }
  __device__ void Advance() {
    block += step;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      codes[half] += step * F::kBlockBytes;
    }
  }

  int blocks, step, block;
  const uint8_t* codes[2];
};

// The factors of a lane's blocks.
template <WeightFormat kFormat>
struct LaneFactors {
  using Scales = RowScales<kFormat>;
  // `scales`: of the rows from `first_row` on; otherwise as of RowWalk.
  __device__ LaneFactors(const Matrix& m, const uint8_t* scales,
                         size_t first_row, size_t row0, int first_block)
      : block(first_block), blocks(static_cast<int>(m.cols / 32)) {
    const int g = static_cast<int>(threadIdx.x % 32) / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      at[half] = scales + block +
                 (Scales::RowOf(m, row0 + g + 8 * half) -
                  Scales::RowOf(m, first_row)) *
                     blocks;
    }
  }
  __device__ float Of(int half, int group) const {
    const int code = block + 4 * group < blocks ? at[half][4 * group] : 0;
    return E8M0ToF32(static_cast<uint8_t>(code));
  }
  __device__ void Advance(int n) {
    block += n;
    at[0] += n, at[1] += n;
  }
  int block, blocks;
  const uint8_t* at[2];
};

// Columns of a part of x in shared memory: whole pieces, zeros at the end.
__host__ __device__ inline int RowPartCols(size_t cols) {
  return static_cast<int>((cols + 255) / 256 * 256);
}
// From part to part in halves: 64 bytes over a multiple of 128.
__host__ __device__ inline int RowPartPitch(size_t cols) {
  return RowPartCols(cols) + 32;
}

// The lane's column of each slot's operand, at the lane's next piece.
template <int kSlots>
struct PartColumns {
  // `parts`: kSlots slots' in shared memory, `pitch` apart, and behind those of
  // `capacity` slots 32 zeros.
  __device__ PartColumns(const uint16_t* parts, int pitch, int capacity,
                         int first_block)
      : base(parts) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int g = lane / 4;
    mine = g / 2 == lane % 4;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      at[s] = mine ? (2 * s + g % 2) * pitch + 32 * first_block
                   : 2 * capacity * pitch;
    }
  }
  __device__ void Advance(int blocks) {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) at[s] += mine ? 32 * blocks : 0;
  }
  __device__ uint4 Eight(int slot, int group, int j) const {
    return *reinterpret_cast<const uint4*>(base + at[slot] +
                                           (mine ? 128 * group : 0) + 8 * j);
  }
  const uint16_t* base;
  bool mine;
  int at[kSlots];
};

// sums[slot][half] += the products of the lane's blocks.
template <WeightFormat kFormat, int kSlots>
__device__ inline void MultiplyPiece(const RowPiece<kFormat>& piece,
                                     const PartColumns<kSlots>& x,
                                     const LaneFactors<kFormat>& factors,
                                     float (&sums)[kSlots][2]) {
#pragma unroll
  for (int i = 0; i < RowPiece<kFormat>::kGroups; ++i) {
    float c[kSlots][4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t low[4], high[4];
      piece.Decode(i, 0, j, low);
      piece.Decode(i, 1, j, high);
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const uint4 v = x.Eight(s, i, j);
        if (j == 0) {
          MmaFromZero(c[s], low[0], high[0], low[1], high[1], v.x, v.y);
        } else {
          Mma<false>(c[s], low[0], high[0], low[1], high[1], v.x, v.y);
        }
        Mma<false>(c[s], low[2], high[2], low[3], high[3], v.z, v.w);
      }
    }
    const float low_factor = factors.Of(0, i), high_factor = factors.Of(1, i);
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      sums[s][0] = fmaf(c[s][0] + c[s][1], low_factor, sums[s][0]);
      sums[s][1] = fmaf(c[s][2] + c[s][3], high_factor, sums[s][1]);
    }
  }
}

// sums[matrix][slot][half] of the warp's share of 16 rows' columns; `now` is
// the first matrix's first piece and `walk` behind it. `scales` are those of
// the block's rows from block_row0 on, of a matrix scale_bytes after those of
// the one before.
template <WeightFormat kFormat, int kMatrices, int kSlots>
__device__ inline void MultiplyRows(
    const Matrix* const (&m)[kMatrices], size_t block_row0, size_t row0,
    int share, int sharers, const uint8_t* scales, size_t scale_bytes,
    const uint16_t* parts, int pitch, int capacity, RowPiece<kFormat>& now,
    RowWalk<kFormat>& walk, float (&sums)[kMatrices][kSlots][2]) {
  using Piece = RowPiece<kFormat>;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int pieces = (walk.blocks + Piece::kBlocks - 1) / Piece::kBlocks;
  const int mine = (pieces - share + sharers - 1) / sharers;
#pragma unroll 1
  for (int i = 0; i < kMatrices; ++i) {
    const int first_block = Piece::kBlocks * share + lane % 4;
    PartColumns<kSlots> x(parts, pitch, capacity, first_block);
    LaneFactors<kFormat> factors(*(i == 0 ? m[0] : m[kMatrices - 1]),
                                 scales + i * scale_bytes, block_row0, row0,
                                 first_block);
    float added[kSlots][2] = {};
#pragma unroll 1
    for (int p = 0; p < mine; ++p) {
      if (p + 1 == mine && i + 1 < kMatrices) {
        walk = RowWalk<kFormat>(*m[kMatrices - 1], row0, share, sharers);
      }
      Piece next;
      walk.Load(next);
      MultiplyPiece<kFormat, kSlots>(now, x, factors, added);
      x.Advance(Piece::kBlocks * sharers);
      factors.Advance(Piece::kBlocks * sharers);
      now = next;
    }
    // The four lanes of a row.
#pragma unroll
    for (int j = 0; j < 2 * kSlots; ++j) {
      float sum = added[j / 2][j % 2];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      float& first = sums[0][j / 2][j % 2];
      float& last = sums[kMatrices - 1][j / 2][j % 2];
      if (kMatrices > 1 && i == 0) first = sum;
      if (i == kMatrices - 1) last = sum;
    }
  }
}

}  // namespace ecphory::cuda
