// Products of 256 rows of packed weights with up to 128 rows of parts of x by
// warpgroups (ops/cuda/wgmma.cuh): one fetches pieces of 64 columns, two
// multiply, with decoded weights in their registers. Blocks take tile after
// tile, and what is fetched is ahead of what is multiplied from one to the
// next.
#pragma once

#include "ops/cuda/mma.cuh"
#include "ops/cuda/split_rows.cuh"
#include "ops/cuda/wide_weights.cuh"

namespace ecphory::cuda {

inline constexpr int kWideRows = 256;
inline constexpr int kWideTokens = 128;  // at most
inline constexpr int kWideDepth = 64;
inline constexpr int kWideThreads =
    384;  // two warpgroups multiply, one fetches
inline constexpr int kWideMultiplyThreads = 256;
inline constexpr int kWideFetchThreads = 128;
// Of a multiprocessor's 65536, with 168 at the start.
inline constexpr int kWideMultiplyRegisters = 216, kWideFetchRegisters = 72;

inline constexpr int kWideTokenBytes = kWideTokens * 2 * kWideDepth;
template <WeightFormat kFormat>
inline constexpr int kWideStage =
    kWideTokenBytes + kWideRows* WideFragment<kFormat>::kRowBytes;
inline constexpr int kMostWideStages = 8;
inline constexpr size_t kWideStageMemory = size_t{192} << 10;
template <WeightFormat kFormat>
inline constexpr int kWideStages = static_cast<int>(kWideStageMemory /
                                                    kWideStage<kFormat>);
// Stages begin at a multiple of 1024; behind them lie barriers.
inline constexpr size_t kWideMemory =
    kWideStageMemory + 1024 + 2 * kMostWideStages * 8;

// What a block multiplies: of its rows, in runs of 64, the first and third are
// of `low` and the others of `high`, from low_row0 and high_row0 on, and by the
// numbers of a warpgroup 64 or 128 further; those past `rows` repeat the last.
template <bool kTwo>
struct WideTile {
  static_assert(kWideRows == 256);
  const Matrix* low;
  const Matrix* high;
  size_t row0, rows;
  // Row of either matrix that row i of the tile is.
  __device__ size_t RowOf(int i) const {
    return row0 + static_cast<size_t>(kTwo ? i / 128 * 64 + i % 64 : i);
  }
  __device__ size_t StoredRow(int i) const {
    return min(RowOf(i), rows - 1) + MatrixOf(i).first_row;
  }
  __device__ const Matrix& MatrixOf(int i) const {
    return kTwo && i / 64 % 2 == 1 ? *high : *low;
  }
};

// A value of each token of a tile, of(n) of the n-th: loaded by a warp at once,
// since one after the other each would be waited for.
template <typename T, int kTokens>
struct OfTokens {
  template <typename Of>
  __device__ explicit OfTokens(const Of& of) {
#pragma unroll
    for (int m = 0; m < kRuns; ++m) {
      values[m] = of(static_cast<int>(threadIdx.x % 32) + 32 * m);
    }
  }
  // Of the lane's k-th token among 8 * j and the seven after it, as sums have
  // them. All lanes call it.
  __device__ T At(int j, int k) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    return __shfl_sync(0xffffffffu, values[j / 4],
                       j % 4 * 8 + lane % 4 * 2 + k);
  }
  static constexpr int kRuns = (kTokens + 31) / 32;
  T values[kRuns];
};

// Which pieces of kWideDepth columns are multiplied: from a multiple of
// kScalePieces on.
struct WideRange {
  int begin, end;
};
__device__ inline WideRange WholeRows(const Matrix& m) {
  return {0, static_cast<int>((m.cols + kWideDepth - 1) / kWideDepth)};
}

// The block's stages, of which `number` is the next one; barriers full and
// empty of each.
struct WideStages {
  // One thread, before the block synchronizes.
  __device__ static void Init(uint8_t* memory) {
    const uint32_t barriers = Barriers(memory);
    for (int i = 0; i < kMostWideStages; ++i) {
      InitBarrier(barriers + 16 * i, kWideFetchThreads);
      InitBarrier(barriers + 16 * i + 8, kWideMultiplyThreads / 32);
    }
  }
  __device__ static uint32_t Aligned(uint8_t* memory) {
    return (SharedAddress(memory) + 1023) / 1024 * 1024;
  }
  __device__ static uint32_t Barriers(uint8_t* memory) {
    return Aligned(memory) + static_cast<uint32_t>(kWideStageMemory);
  }
  __device__ explicit WideStages(uint8_t* memory)
      : base(Aligned(memory)), barriers(Barriers(memory)) {}

  __device__ uint32_t Full() const { return barriers + 16 * number; }
  __device__ uint32_t Empty() const { return barriers + 16 * number + 8; }
  template <WeightFormat kFormat>
  __device__ uint32_t Tokens() const {
    return base + number * kWideStage<kFormat>;
  }
  template <WeightFormat kFormat>
  __device__ void Next() {
    if (++number == kWideStages<kFormat>) number = 0, parity ^= 1;
  }

  uint32_t base, barriers;
  int number = 0;
  uint32_t parity = 0;
};

// The fetching warpgroup's part of a tile. column_of(n) is the row of parts,
// but for its piece, of the tile's n-th of `tokens`. A thread copies the same
// unit of 16 bytes of the same rows in each piece; where they begin it keeps in
// such units, so that a register does for each.
template <WeightFormat kFormat, bool kTwo, typename ColumnOf>
__device__ void FetchWide(const WideTile<kTwo>& tile, const SplitRows& x,
                          int tokens, const ColumnOf& column_of,
                          WideStages& stages, WideRange range) {
  using F = WideFragment<kFormat>;
  constexpr int kUnits = F::kRowBytes / 16;
  constexpr int kRowsAtOnce = kWideFetchThreads / kUnits;
  constexpr int kTokensAtOnce = kWideFetchThreads / 8;
  const int thread = static_cast<int>(threadIdx.x) - kWideMultiplyThreads;
  const int cols = static_cast<int>(tile.low->cols);
  const unsigned row_bytes = static_cast<unsigned>(cols / 32) * F::kBlockBytes;
  const int row = thread / kUnits, unit = thread % kUnits;
  const int token = thread / 8, token_unit = thread % 8;
  unsigned rows[kWideRows / kRowsAtOnce], columns[kWideTokens / kTokensAtOnce];
#pragma unroll
  for (int j = 0; j < kWideRows / kRowsAtOnce; ++j) {
    rows[j] = static_cast<unsigned>(tile.StoredRow(row + j * kRowsAtOnce)) *
                  (row_bytes / 16) +
              unit;
  }
#pragma unroll
  for (int j = 0; j < kWideTokens / kTokensAtOnce; ++j) {
    const int n = min(token + j * kTokensAtOnce, tokens - 1);
    columns[j] = static_cast<unsigned>(column_of(n)) *
                     static_cast<unsigned>(x.pieces * x.pitch / 8) +
                 token_unit;
  }
  const uint32_t row_to =
      kWideTokenBytes + row * F::kRowBytes + F::Place(row, unit) * 16;
  const uint32_t token_to = token * 128 + (token_unit ^ token % 8) * 16;
  for (int piece = 0; piece < x.pieces; ++piece) {
    for (int step = range.begin; step < range.end; ++step) {
      const int k0 = step * kWideDepth;
      WaitForPhase(stages.Empty(), stages.parity ^ 1);
      const uint32_t to = stages.Tokens<kFormat>();
      const unsigned at = static_cast<unsigned>(k0) / 32 * F::kBlockBytes;
      const bool row_goes_on = at + unit * 16 < row_bytes;
      const uint8_t* const low = tile.low->data + (row_goes_on ? at : 0);
      const uint8_t* const high = tile.high->data + (row_goes_on ? at : 0);
#pragma unroll
      for (int j = 0; j < kWideRows / kRowsAtOnce; ++j) {
        const bool is_high = kTwo && j * kRowsAtOnce / 64 % 2 == 1;
        CopyAsyncOrZero(to + row_to + j * kRowsAtOnce * F::kRowBytes,
                        (is_high ? high : low) + size_t{rows[j]} * 16,
                        row_goes_on);
      }
      const bool goes_on = k0 + token_unit * 8 < cols;
      const uint8_t* const parts = reinterpret_cast<const uint8_t*>(
          x.parts + (goes_on ? piece * x.pitch + static_cast<size_t>(k0) : 0));
#pragma unroll
      for (int j = 0; j < kWideTokens / kTokensAtOnce; ++j) {
        if (j * kTokensAtOnce >= tokens) break;
        CopyAsyncOrZero(to + token_to + j * kTokensAtOnce * 128,
                        parts + size_t{columns[j]} * 16, goes_on);
      }
      ArriveAfterCopies(stages.Full());
      stages.Next<kFormat>();
    }
  }
}

// A multiplying warpgroup's part: sums[i] of the i-th run of 64 of its rows,
// each to be multiplied by 2^power[i][0] (row g of the warp's) or [1] (g + 8).
// False where scales of rows are too far apart for the sums to be right.
template <WeightFormat kFormat, int kTokens, bool kTwo>
__device__ bool MultiplyWide(const WideTile<kTwo>& tile, int pieces,
                             WideStages& stages, WideRange range,
                             float (&sums)[2][kTokens / 2],
                             int (&power)[2][2]) {
  using F = WideFragment<kFormat>;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int steps = range.end - range.begin;
  const int first_row = warp / 4 * 128 + warp % 4 * 16;  // of the tile
  WideScales<kFormat> scales[2][2];
  bool exact = true;
  // Codes of scales, and what comes of half of them: of two pieces.
  uint2 codes[2][2] = {};
  uint32_t fields[2][2] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + 64 * i + 8 * h + lane / 4;
      scales[i][h].Open(tile.MatrixOf(row), tile.StoredRow(row));
      power[i][h] = scales[i][h].Power();
      exact = exact && scales[i][h].exact;
      codes[i][h] = scales[i][h].Load(range.begin / kScalePieces);
    }
  }
  // Where the lane's row of the matrices that it loads lies in a stage. The
  // compiler would rather work it out again for every piece.
  const int row = lane % 8 + lane / 8 % 2 * 8;
  uint32_t place = kWideTokenBytes + (first_row + row) * F::kRowBytes +
                   F::Place(row, lane / 16) * 16;
  asm volatile("" : "+r"(place));
  uint32_t a[2][2][4] = {}, raw[2][2][4];
  uint32_t earlier = 0;  // the barrier of the stage before
  int step = range.begin;
  for (int n = 0; n < pieces * steps; ++n) {
    if (step % 2 == 0) {
      const bool second = step % kScalePieces != 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          fields[i][h] =
              scales[i][h].Fields(second ? codes[i][h].y : codes[i][h].x);
        }
      }
    }
    WaitForPhase(stages.Full(), stages.parity);
    ShowToProducts();  // which would wait for loads
    // Half of them are left when the next ones are asked for, so that these
    // have two pieces' time to come.
    if (step % kScalePieces == 2 ||
        (step + 1 == range.end && step % kScalePieces < 2)) {
      const int next = step / kScalePieces + 1;
      const int run =
          next * kScalePieces < range.end ? next : range.begin / kScalePieces;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          codes[i][h] = scales[i][h].Load(run);
        }
      }
    }
    const uint32_t tokens = stages.Tokens<kFormat>();
    const uint64_t columns = SwizzledRows(tokens);
    // Of slices kSlices * group and on. Two units further: places are exclusive
    // ors.
    const auto load = [&](int group) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        LoadMatrices(tokens + (place ^ group * 32) + 64 * i * F::kRowBytes,
                     raw[group % 2][i]);
      }
    };
    load(0);
    uint32_t factors[2][2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        scales[i][h].Pairs(fields[i][h], step % 2, factors[i][h]);
      }
    }
    if (++step == range.end) step = range.begin;
#pragma unroll
    for (int s = 0; s < kWideDepth / 16; ++s) {
      uint32_t(&fragments)[2][4] = a[s % 2];
      // A group ahead of what is decoded.
      const int group = s / F::kSlices;
      if (s % F::kSlices == 0 && (group + 1) * F::kSlices < kWideDepth / 16) {
        load(group + 1);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        F::Decode(raw[group % 2][i], s, factors[i][0][s / 2],
                  factors[i][1][s / 2], fragments[i]);
      }
      BeginProducts();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        Wgmma<kTokens>::template Add<F::kBf16>(sums[i], fragments[i],
                                               columns + 2 * s, n + s);
      }
      CommitProducts();
      WaitForProducts<1>();
      Hold(a[(s + 1) % 2][0]);
      Hold(a[(s + 1) % 2][1]);
      if (s == 0) {
        __syncwarp();  // all lanes have read
        if (n > 0 && lane == 0) Arrive(earlier);
        earlier = stages.Empty();
      }
    }
    stages.Next<kFormat>();
  }
  WaitForProducts<0>();
  Hold(a[1][0]);
  Hold(a[1][1]);
  Hold(sums[0]);
  Hold(sums[1]);
  __syncwarp();
  if (lane == 0) Arrive(earlier);
  return exact;
}

}  // namespace ecphory::cuda
