// y = x W^T for up to eight tokens on tensor cores: bound by reading W. A warp
// takes 16 rows of W, or a share of their columns where there are too few rows
// for every warp, and keeps several pieces of them on their way into its own
// part of shared memory. It starts to do so before x is there.
#pragma once

#include "ops/cuda/mma.cuh"
#include "ops/cuda/operand.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/weight.cuh"
#include "ops/cuda/weight_fragment.cuh"

namespace ecphory::cuda {

// One of the products of a launch; all have the same number of tokens.
struct StreamProduct {
  Matrix weight;
  const float* x;
  float* y;
  size_t x_stride;
  size_t y_stride;
  unsigned first_block;  // of the grid
  bool round_bf16;
};

inline constexpr int kMostProducts = 8;
struct StreamArgs {
  StreamProduct of[kMostProducts];
  int count;
  int tokens;
  int sharers;  // warps that share the columns of 16 rows: 1, 2, .. 16
};

inline constexpr int kStreamWarps = 16;
inline constexpr int kStreamThreads = kStreamWarps * 32;
inline constexpr int kStreamStages = 2;
// Whether a block can have so much besides a little of its own.
inline bool FitsStreamMemory(size_t bytes) {
  return FitsSharedMemory(bytes + (size_t{4} << 10));
}
inline constexpr int kRowsOfWarp = 16;

// How shared memory is divided; offsets in bytes.
template <WeightFormat kFormat>
struct StreamLayout {
  using F = Fragment<kFormat>;
  static constexpr size_t kStage = size_t{kRowsOfWarp} * F::kPitch;
  static constexpr size_t kRingOfWarp = kStreamStages * kStage;
  static constexpr size_t kRing = kStreamWarps * kRingOfWarp;

  __host__ __device__ StreamLayout(size_t cols, int tokens, int sharers) {
    // 64 bytes over a multiple of 128: columns g and g + 1 of an operand lie
    // in different banks.
    pitch = static_cast<int>((cols + 63) / 64 * 64 + 32);
    parts = kRing;
    factors = parts + size_t{2} * pitch * tokens * F::kPieces;
    const size_t blocks = (cols + 31) / 32;
    factor_rows = kStreamWarps / sharers * kRowsOfWarp;
    if (kFormat == WeightFormat::kFp8Tile32) {
      factor_rows = factor_rows / 32 + 2;  // rows of tiles
    }
    factor_pitch = static_cast<int>((blocks + 7) / 8 * 8);
    bytes = factors;
    if (F::kFactor == FactorPlace::kBeside)
      bytes += size_t{2} * factor_rows * factor_pitch;
    bytes = (bytes + 15) / 16 * 16;
  }
  int pitch;  // of a part of x, in halves
  int factor_rows, factor_pitch;
  size_t parts, factors, bytes;
};

// The e8m0 scales of a block's rows as bf16, where they lie beside the codes:
// on their way once this is made, in shared memory after End(). All threads of
// the block call both.
template <WeightFormat kFormat, int kThreads>
struct FactorLoad {
  static constexpr int kHeld = 2;  // vectors of a thread

  __device__ FactorLoad(const Matrix& m, size_t row0, size_t rows,
                        int row_pitch)
      : pitch(row_pitch), blocks(static_cast<int>(m.cols / 32)) {
    size_t first = m.first_row + row0, last = m.first_row + row0 + rows - 1;
    if (kFormat == WeightFormat::kFp8Tile32) first /= 32, last /= 32;
    constexpr bool kBeside = Fragment<kFormat>::kFactor == FactorPlace::kBeside;
    count = kBeside ? static_cast<int>(last - first + 1) * blocks : 0;
    from = m.scales + first * blocks;
    vectors = blocks % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 4 == 0
                  ? count / 4
                  : 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) held[i] = Load(threadIdx.x + i * kThreads);
  }
  __device__ uint32_t Load(int i) const {
    return i < vectors ? __ldg(reinterpret_cast<const uint32_t*>(from) + i) : 0;
  }
  __device__ void Store(int i, uint32_t codes, uint16_t* factors) const {
    if (i >= vectors) return;
    const int at = 4 * i / blocks * pitch + 4 * i % blocks;
    *reinterpret_cast<uint2*>(factors + at) = E8M0ToBF16(codes);
  }
  __device__ void End(uint16_t* factors) const {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      Store(threadIdx.x + i * kThreads, held[i], factors);
    }
    for (int i = threadIdx.x + kHeld * kThreads; i < vectors;
         i += 4 * kThreads) {
      uint32_t more[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) more[j] = Load(i + j * kThreads);
#pragma unroll
      for (int j = 0; j < 4; ++j) Store(i + j * kThreads, more[j], factors);
    }
    for (int i = 4 * vectors + threadIdx.x; i < count; i += kThreads) {
      factors[i / blocks * pitch + i % blocks] = static_cast<uint16_t>(
          __float_as_uint(E8M0ToF32(__ldg(from + i))) >> 16);
    }
  }
  int pitch, blocks, count, vectors;
  const uint8_t* from;
  uint32_t held[kHeld];
};

// Sixteen rows of one matrix or of two alike, as they stream by: the chunks
// share, share + sharers, .. of the first, then those of the second.
template <WeightFormat kFormat, int kMatrices>
struct RowStream {
  using F = Fragment<kFormat>;
  using Layout = StreamLayout<kFormat>;
  static constexpr int kUnits = F::kChunkBytes / F::kUnit;

  // `ring`: of this warp. Begins to fetch.
  __device__ RowStream(const Matrix* const (&m)[kMatrices], size_t row0,
                       uint8_t* ring_of_warp, int first, int step)
      : ring(ring_of_warp),
        share(first),
        sharers(step),
        chunks(static_cast<int>((m[0]->cols + F::kChunk - 1) / F::kChunk)),
        row_bytes(static_cast<unsigned>(m[0]->cols / 32) * F::kBlockBytes),
        rows(static_cast<int>(min(m[0]->rows - row0, size_t{kRowsOfWarp}))),
        lane(static_cast<int>(threadIdx.x % kWarp)) {
#pragma unroll
    for (int i = 0; i < kMatrices; ++i) {
      data[i] = m[i]->data + (m[i]->first_row + row0) * size_t{row_bytes};
    }
    next_chunk = share;
    next_matrix = share < chunks ? 0 : kMatrices;
#pragma unroll
    for (int s = 0; s < kStreamStages; ++s) FetchNext(s);
  }

  __device__ void FetchNext(int stage) {
    if (next_matrix < kMatrices) {
      const uint8_t* const from =
          next_matrix == 0 ? data[0] : data[kMatrices - 1];
      Fetch(from, next_chunk, stage);
      next_chunk += sharers;
      if (next_chunk >= chunks) next_chunk = share, ++next_matrix;
    }
    CommitCopies();
  }

  // sums[i] += the products of matrix i; `columns` are the lane's operand
  // columns, factors those of the lane's two rows.
  template <int kTiles>
  __device__ void Multiply(const uint16_t* const (&columns)[kTiles],
                           const uint16_t* const (&factors_low)[kMatrices],
                           const uint16_t* const (&factors_high)[kMatrices],
                           int blocks_of_row,
                           float (&sums)[kMatrices][kTiles][4]);

  // Chunk `chunk` of every row, into stage `stage`. Rows past the end repeat
  // the last.
  __device__ void Fetch(const uint8_t* matrix, int chunk, int stage) const {
    const unsigned from = static_cast<unsigned>(chunk) * F::kChunkBytes;
    uint8_t* const to = ring + stage * StreamLayout<kFormat>::kStage;
    const bool whole =
        rows == kRowsOfWarp && row_bytes - from >= F::kChunkBytes;
    if (whole) {
      Fetch<true>(matrix + from, kUnits, to);
    } else {
      const unsigned units = (row_bytes - from) / F::kUnit;
      Fetch<false>(matrix + from,
                   static_cast<int>(min(units, unsigned{kUnits})), to);
    }
  }
  template <bool kWhole>
  __device__ void Fetch(const uint8_t* from, int units, uint8_t* to) const {
    constexpr int kCopies = kRowsOfWarp * kUnits;
#pragma unroll
    for (int i0 = 0; i0 < kCopies; i0 += kWarp) {
      const int i = i0 + lane;
      const int row = i / kUnits, unit = i % kUnits;
      if (i0 + kWarp > kCopies && i >= kCopies) break;
      if (!kWhole && unit >= units) continue;
      const unsigned source = kWhole ? row : min(row, rows - 1);
      CopyAsync<F::kUnit>(to + row * F::kPitch + unit * F::kUnit,
                          from + source * row_bytes + unit * F::kUnit);
    }
  }

  uint8_t* ring;
  int share, sharers, chunks, next_chunk, next_matrix;
  unsigned row_bytes;
  int rows, lane;
  const uint8_t* data[kMatrices];
};

// Factors of a chunk's blocks for one row of the lane.
template <WeightFormat kFormat>
struct ChunkFactors {
  using F = Fragment<kFormat>;
  static constexpr int kWords =
      F::kFactor == FactorPlace::kBeside ? F::kChunk / 64 : 1;

  // `beside`: the row's, at the chunk; `row`: the staged row.
  __device__ ChunkFactors(const uint16_t* beside, const uint8_t* row)
      : staged(row) {
    if constexpr (F::kFactor == FactorPlace::kBeside) {
      using Vector = std::conditional_t<kWords == 4, uint4, uint2>;
      *reinterpret_cast<Vector*>(words) =
          *reinterpret_cast<const Vector*>(beside);
    }
  }
  __device__ float Of(int block) const {
    if constexpr (F::kFactor == FactorPlace::kBeside) {
      const uint32_t word = words[block / 2];
      return __uint_as_float(block % 2 == 0 ? word << 16 : word & 0xffff0000u);
    } else {
      return F::Factor(staged, block);
    }
  }
  const uint8_t* staged;
  alignas(16) uint32_t words[kWords];
};

// Adds the products of `blocks` blocks of one staged chunk, or of all when
// kWhole; `x` points at the lane's operand columns, at the chunk.
template <WeightFormat kFormat, int kTiles, bool kWhole>
__device__ void MultiplyChunk(const uint8_t* stage, int blocks,
                              const uint16_t* const (&x)[kTiles],
                              const uint16_t* factors_low,
                              const uint16_t* factors_high,
                              float (&sums)[kTiles][4]) {
  using F = Fragment<kFormat>;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int g = lane / 4, t = lane % 4;
  const uint8_t* const low = stage + g * F::kPitch;
  const uint8_t* const high = low + 8 * F::kPitch;
  const ChunkFactors<kFormat> low_factors(factors_low, low);
  const ChunkFactors<kFormat> high_factors(factors_high, high);
#pragma unroll
  for (int block = 0; block < F::kChunk / 32; ++block) {
    if (!kWhole && block >= blocks) break;
    uint32_t a[4], b[4];
    F::Decode(low, block, t, a);
    F::Decode(high, block, t, b);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint4 v =
          *reinterpret_cast<const uint4*>(x[tile] + 32 * block + 8 * t);
      if constexpr (F::kFactor == FactorPlace::kNone) {
        Mma<F::kBf16>(sums[tile], a[0], b[0], a[1], b[1], v.x, v.y);
        Mma<F::kBf16>(sums[tile], a[2], b[2], a[3], b[3], v.z, v.w);
      } else {
        float c[4];
        MmaFromZero(c, a[0], b[0], a[1], b[1], v.x, v.y);
        Mma<false>(c, a[2], b[2], a[3], b[3], v.z, v.w);
        const float low_factor = low_factors.Of(block);
        const float high_factor = high_factors.Of(block);
        sums[tile][0] = fmaf(c[0], low_factor, sums[tile][0]);
        sums[tile][1] = fmaf(c[1], low_factor, sums[tile][1]);
        sums[tile][2] = fmaf(c[2], high_factor, sums[tile][2]);
        sums[tile][3] = fmaf(c[3], high_factor, sums[tile][3]);
      }
    }
  }
}

template <WeightFormat kFormat, int kMatrices>
template <int kTiles>
__device__ void RowStream<kFormat, kMatrices>::Multiply(
    const uint16_t* const (&columns)[kTiles],
    const uint16_t* const (&factors_low)[kMatrices],
    const uint16_t* const (&factors_high)[kMatrices], int blocks_of_row,
    float (&sums)[kMatrices][kTiles][4]) {
  int stage = 0;
#pragma unroll 1
  for (int i = 0; i < kMatrices; ++i) {
    const uint16_t* const low =
        i == 0 ? factors_low[0] : factors_low[kMatrices - 1];
    const uint16_t* const high =
        i == 0 ? factors_high[0] : factors_high[kMatrices - 1];
    float now[kTiles][4] = {};
    for (int chunk = share; chunk < chunks; chunk += sharers) {
      WaitForCopies<kStreamStages - 1>();
      __syncwarp();
      const int block = chunk * (F::kChunk / 32);
      const uint16_t* x[kTiles];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        x[tile] = columns[tile] + 32 * block;
      }
      const uint8_t* const staged = ring + stage * Layout::kStage;
      const int blocks = blocks_of_row - block;
      if (blocks >= F::kChunk / 32) {
        MultiplyChunk<kFormat, kTiles, true>(staged, blocks, x, low + block,
                                             high + block, now);
      } else {
        MultiplyChunk<kFormat, kTiles, false>(staged, blocks, x, low + block,
                                              high + block, now);
      }
      __syncwarp();
      FetchNext(stage);
      stage = stage + 1 == kStreamStages ? 0 : stage + 1;
    }
#pragma unroll
    for (int j = 0; j < kTiles * 4; ++j) {
      float& first = sums[0][j / 4][j % 4];
      float& last = sums[kMatrices - 1][j / 4][j % 4];
      if (kMatrices > 1 && i == 0) first = now[j / 4][j % 4];
      if (i == kMatrices - 1) last = now[j / 4][j % 4];
    }
  }
}

// The sharers' sums, added up in order by the first of them, in `all`, which
// every warp of the block has left. False for the others.
template <int kSums>
__device__ bool AddShares(float (&sums)[kSums], int share, int sharers,
                          float* all) {
  if (sharers == 1) return true;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    all[(warp * kSums + i) * kWarp + lane] = sums[i];
  }
  __syncthreads();
  if (share != 0) return false;
  for (int s = 1; s < sharers; ++s) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      sums[i] += all[((warp + s) * kSums + i) * kWarp + lane];
    }
  }
  return true;
}

// Where a block's rows are in its factors: the row at `row` of the view, when
// the block's first is `first`.
template <WeightFormat kFormat>
__device__ inline int FactorsAt(const Matrix& m, size_t row, size_t first,
                                int pitch) {
  size_t at = m.first_row + min(row, m.rows - 1), from = m.first_row + first;
  if (kFormat == WeightFormat::kFp8Tile32) at /= 32, from /= 32;
  return static_cast<int>(at - from) * pitch;
}

// The lane's operand columns. Columns that stand for nothing repeat others;
// nobody adds up their sums.
template <WeightFormat kFormat, int kTiles>
__device__ inline void FindColumns(const uint16_t* parts, int pitch, int tokens,
                                   const uint16_t* (&columns)[kTiles]) {
  using F = Fragment<kFormat>;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int column = 8 * tile + static_cast<int>(threadIdx.x % kWarp) / 4;
    const int token = min(column / F::kColumns, tokens - 1);
    const int piece = min(column % F::kColumns, F::kPieces - 1);
    columns[tile] = parts + (token * F::kPieces + piece) * pitch;
  }
}

// kTiles tiles of 8 operand columns.
template <WeightFormat kFormat, int kTiles>
__global__ void __launch_bounds__(kStreamThreads, 2)
    StreamKernel(const __grid_constant__ StreamArgs a) {
  using F = Fragment<kFormat>;
  extern __shared__ uint4 stream_memory[];
  __shared__ uint32_t largest[kStreamWarps];
  __shared__ float out_scale[kTiles * 4];
  uint8_t* const memory = reinterpret_cast<uint8_t*>(stream_memory);
  int product = 0;
  while (product + 1 < a.count && a.of[product + 1].first_block <= blockIdx.x) {
    ++product;
  }
  const StreamProduct& p = a.of[product];
  const Matrix& m = p.weight;
  const StreamLayout<kFormat> layout(m.cols, a.tokens, a.sharers);
  uint16_t* const parts = reinterpret_cast<uint16_t*>(memory + layout.parts);
  uint16_t* const factors =
      reinterpret_cast<uint16_t*>(memory + layout.factors);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int share = warp % a.sharers;
  const size_t block_rows = kStreamWarps / a.sharers * kRowsOfWarp;
  const size_t block_row0 = (blockIdx.x - p.first_block) * block_rows;
  const size_t row0 = block_row0 + warp / a.sharers * kRowsOfWarp;
  const bool idle = row0 >= m.rows;

  LetNextStart();
  RowStream<kFormat, 1> stream(
      {&m}, idle ? m.rows - 1 : row0,
      memory + warp * StreamLayout<kFormat>::kRingOfWarp, share, a.sharers);
  FactorLoad<kFormat, kStreamThreads>(
      m, block_row0, min(block_rows, m.rows - block_row0), layout.factor_pitch)
      .End(factors);
  WaitForEarlier();
  const int cols = static_cast<int>(m.cols);
  const auto row_of = [&](int token) { return p.x + token * p.x_stride; };
  SplitOperand<kFormat, kStreamThreads>(row_of, cols, a.tokens, layout.pitch,
                                        parts, out_scale, largest, [] {});
  __syncthreads();

  const int g = lane / 4, t = lane % 4;
  const uint16_t* columns[kTiles];
  FindColumns<kFormat, kTiles>(parts, layout.pitch, a.tokens, columns);
  int low = 0, high = 0;
  if constexpr (F::kFactor == FactorPlace::kBeside) {
    low = FactorsAt<kFormat>(m, row0 + g, block_row0, layout.factor_pitch);
    high = FactorsAt<kFormat>(m, row0 + g + 8, block_row0, layout.factor_pitch);
  }
  float sums[1][kTiles][4];
  stream.template Multiply<kTiles>(columns, {factors + low}, {factors + high},
                                   cols / 32, sums);
  float(&flat)[kTiles * 4] = *reinterpret_cast<float(*)[kTiles * 4]>(&sums);
  const bool mine =
      AddShares(flat, share, a.sharers, reinterpret_cast<float*>(memory));
  if (!mine || idle) return;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const float2 row = AddParts<F::kColumns>(sums[0][tile], t);
    const int token = (8 * tile + 2 * t) / F::kColumns;
    if (token >= a.tokens || 2 * t % F::kColumns != 0) continue;
    const float scale = F::kPower * out_scale[token];
    float* const y = p.y + token * p.y_stride + row0;
    if (g < stream.rows) y[g] = MaybeRound(row.x * scale, p.round_bf16);
    if (g + 8 < stream.rows) y[g + 8] = MaybeRound(row.y * scale, p.round_bf16);
  }
}

// Whether the kernel takes rows of W and x of these addresses and lengths.
template <WeightFormat kFormat>
bool CanStream(const Matrix& m, const float* x, size_t x_stride) {
  using F = Fragment<kFormat>;
  const uintptr_t bits = reinterpret_cast<uintptr_t>(m.data) |
                         static_cast<uintptr_t>(m.row_bytes());
  return m.cols % 32 == 0 && bits % F::kUnit == 0 &&
         reinterpret_cast<uintptr_t>(x) % 16 == 0 && x_stride % 4 == 0 &&
         FitsStreamMemory(StreamLayout<kFormat>(m.cols, 1, 1).bytes);
}

inline size_t StreamTiles(const StreamProduct& p) {
  return (p.weight.rows + kRowsOfWarp - 1) / kRowsOfWarp;
}

// Warps that share 16 rows: as many as keep two blocks on every multiprocessor,
// or twice as many where the rows are then shared out more evenly and each warp
// still has a few chunks. By the shapes alone: sums do not depend on the number
// of tokens.
inline int StreamSharers(const StreamArgs& args, int chunk) {
  const size_t processors = static_cast<size_t>(Multiprocessors());
  size_t tiles = 0, cols = SIZE_MAX;
  for (int i = 0; i < args.count; ++i) {
    tiles += StreamTiles(args.of[i]);
    cols = std::min(cols, args.of[i].weight.cols);
  }
  int sharers = kStreamWarps;
  while (sharers > 1 && tiles * sharers > 2 * processors * kStreamWarps) {
    sharers /= 2;
  }
  // Tiles of the busiest multiprocessor.
  const auto most = [&](int n) {
    const size_t of_block = static_cast<size_t>(kStreamWarps / n);
    return Blocks(Blocks(tiles, of_block), processors) * of_block;
  };
  constexpr size_t kFewChunks = 4;
  const int more = 2 * sharers;
  const bool even = more <= kStreamWarps && 5 * most(more) <= 4 * most(sharers);
  return even && cols >= kFewChunks * chunk * more ? more : sharers;
}

template <WeightFormat kFormat>
size_t StreamMemory(const StreamArgs& args) {
  size_t bytes = 0;
  for (int i = 0; i < args.count; ++i) {
    const StreamLayout<kFormat> layout(args.of[i].weight.cols, args.tokens,
                                       args.sharers);
    bytes = std::max(bytes, layout.bytes);
  }
  return bytes;
}

template <WeightFormat kFormat, int kTiles>
void LaunchStream(StreamArgs& args) {
  constexpr auto kKernel = StreamKernel<kFormat, kTiles>;
  const size_t shared = StreamMemory<kFormat>(args);
  AllowSharedMemory(kKernel, shared, "matmul");
  const size_t rows = size_t{kStreamWarps} / args.sharers * kRowsOfWarp;
  unsigned blocks = 0;
  for (int i = 0; i < args.count; ++i) {
    args.of[i].first_block = blocks;
    blocks += Blocks(args.of[i].weight.rows, rows);
  }
  LaunchOverlapped(kKernel, dim3(blocks), kStreamThreads, shared, "matmul",
                   args);
}

// CanStream() says of each product that it can.
template <WeightFormat kFormat>
void RunStream(StreamArgs args, size_t tokens) {
  using F = Fragment<kFormat>;
  constexpr size_t kOfTile = 8 / F::kColumns;  // tokens
  args.sharers = StreamSharers(args, F::kChunk);
  while (tokens > 0) {
    size_t some = std::min(tokens, 2 * kOfTile);
    args.tokens = static_cast<int>(some);
    while (!FitsStreamMemory(StreamMemory<kFormat>(args))) --args.tokens;
    some = static_cast<size_t>(args.tokens);
    if (some <= kOfTile) {
      LaunchStream<kFormat, 1>(args);
    } else {
      LaunchStream<kFormat, 2>(args);
    }
    tokens -= some;
    for (int i = 0; i < args.count; ++i) {
      args.of[i].x += some * args.of[i].x_stride;
      args.of[i].y += some * args.of[i].y_stride;
    }
  }
}

}  // namespace ecphory::cuda
