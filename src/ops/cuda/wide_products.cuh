// Products of 256 rows of packed weights with up to 128 rows of parts of x by
// warpgroups (ops/cuda/wgmma.cuh): one fetches pieces of columns, two multiply,
// with decoded weights in their registers. Blocks take tile after tile, and
// what is fetched is ahead of what is multiplied from one to the next.
//
// Where rows of the tile are neighbours, in weights and in x, one thread asks
// for boxes of them; else 128 threads copy. Boxes leave more of shared memory's
// bandwidth to the products.
#pragma once

#include "ops/cuda/box_map.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/split_rows.cuh"
#include "ops/cuda/wide_weights.cuh"

namespace ecphory::cuda {

inline constexpr int kWideRows = 256;
inline constexpr int kWideTokens = 128;  // at most
inline constexpr int kWideThreads =
    384;  // two warpgroups multiply, one fetches
inline constexpr int kWideMultiplyThreads = 256;
inline constexpr int kWideFetchThreads = 128;
// Of a multiprocessor's 65536, with 168 at the start.
inline constexpr int kWideMultiplyRegisters = 208, kWideFetchRegisters = 88;

// A stage holds the parts of x, those of 64 columns after those of the 64
// before them, and then weights.
inline constexpr int kWidePartBytes = kWideTokens * 128;
template <WeightFormat kFormat>
inline constexpr int kWideTokenBytes =
    WideFragment<kFormat>::kDepth / 64 * kWidePartBytes;
template <WeightFormat kFormat>
inline constexpr int kWideStage =
    kWideTokenBytes<kFormat> + kWideRows* WideFragment<kFormat>::kRowBytes;
inline constexpr int kMostWideStages = 8;
inline constexpr size_t kWideStageMemory = size_t{192} << 10;
template <WeightFormat kFormat>
inline constexpr int kWideStages = static_cast<int>(kWideStageMemory /
                                                    kWideStage<kFormat>);
// Stages begin at a multiple of 1024; behind them lie barriers.
inline constexpr size_t kWideMemory =
    kWideStageMemory + 1024 + 2 * kMostWideStages * 8;

// Where units of 16 bytes lie in a stage: of a row of weights, and of a token's
// parts, of which slice s of 16 columns is what products read from SliceAt(s).
template <WeightFormat kFormat>
constexpr int WeightAt(int row, int unit) {
  using F = WideFragment<kFormat>;
  return kWideTokenBytes<kFormat> + row * F::kRowBytes +
         F::Place(row, unit) * 16;
}
constexpr int TokenAt(int token, int unit) {
  return unit / 8 * kWidePartBytes + token * 128 + (unit % 8 ^ token % 8) * 16;
}
constexpr int SliceAt(int s) { return s / 4 * kWidePartBytes + s % 4 * 32; }
// What a lane loads of weights: a unit of this row of the warp's 16, and of
// these two of each group.
constexpr int LaneRow(int lane) { return lane % 8 + lane / 8 % 2 * 8; }
constexpr int LaneUnit(int lane) { return lane / 16; }
// The group'th unit two further than the lane's first: places are exclusive
// ors.
constexpr uint32_t GroupAt(uint32_t first, int group) {
  return first ^ static_cast<uint32_t>(group * 32);
}

// That what is fetched is what is read, each unit in a place of its own, and
// that the lanes that load a matrix read different banks.
template <WeightFormat kFormat>
constexpr bool WidePlacesAgree() {
  using F = WideFragment<kFormat>;
  constexpr int kUnits = F::kRowBytes / 16, kTokenUnits = F::kDepth / 8;
  bool taken[kWideStage<kFormat> / 16] = {};
  const auto take = [&](int at) {
    const bool good =
        at % 16 == 0 && at >= 0 && at < kWideStage<kFormat> && !taken[at / 16];
    if (good) taken[at / 16] = true;
    return good;
  };
  for (int row = 0; row < kWideRows; ++row) {
    for (int unit = 0; unit < kUnits; ++unit) {
      if (!take(WeightAt<kFormat>(row, unit))) return false;
    }
  }
  for (int token = 0; token < kWideTokens; ++token) {
    for (int unit = 0; unit < kTokenUnits; ++unit) {
      // Hardware's swizzle: bits 4..6 of an address are exclusively ored with
      // bits 7..9.
      const int plain = SliceAt(unit / 2) + token * 128 + unit % 2 * 16;
      const int at = plain ^ plain / 128 % 8 * 16;
      if (at != TokenAt(token, unit) || !take(at)) return false;
    }
  }
  for (int first_row = 0; first_row < kWideRows; first_row += 16) {
    for (int group = 0; group * F::kSlices * 16 < F::kDepth; ++group) {
      unsigned banks = 0;
      for (int lane = 0; lane < 32; ++lane) {
        const int row = first_row + LaneRow(lane);
        const int at = static_cast<int>(GroupAt(
            static_cast<uint32_t>(WeightAt<kFormat>(row, LaneUnit(lane))),
            group));
        if (at != WeightAt<kFormat>(row, 2 * group + LaneUnit(lane))) {
          return false;
        }
        banks |= 1u << at / 16 % 8;
        if (lane % 8 == 7 && banks != 0xff) return false;
        if (lane % 8 == 7) banks = 0;
      }
    }
  }
  return true;
}
static_assert(WidePlacesAgree<WeightFormat::kFp8Tile32>());
static_assert(WidePlacesAgree<WeightFormat::kFp4Row32>());
static_assert(WidePlacesAgree<WeightFormat::kF16>());

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

// Which pieces of a format's kDepth columns are multiplied: from a multiple of
// kScalePieces on.
struct WideRange {
  int begin, end;
};
template <WeightFormat kFormat>
__device__ inline WideRange WholeRows(const Matrix& m) {
  constexpr int kDepth = WideFragment<kFormat>::kDepth;
  return {0, static_cast<int>((m.cols + kDepth - 1) / kDepth)};
}

// The block's stages, of which `number` is the next one; barriers full and
// empty of each.
struct WideStages {
  // One thread, before the block synchronizes. A stage is full when as many as
  // `fetching` threads say so.
  __device__ static void Init(uint8_t* memory, int fetching) {
    const uint32_t barriers = Barriers(memory);
    for (int i = 0; i < kMostWideStages; ++i) {
      InitBarrier(barriers + 16 * i, fetching);
      InitBarrier(barriers + 16 * i + 8, kWideMultiplyThreads / 32);
    }
    FenceAsyncProxy();  // and to what copies boxes
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

// How the fetching warpgroup copies the weights of a tile: a thread the same
// unit of 16 bytes of the same rows in each piece; where they begin it keeps in
// such units, so that a register does for each.
template <WeightFormat kFormat, bool kTwo>
struct WideRowCopies {
  using F = WideFragment<kFormat>;
  static constexpr int kUnits = F::kRowBytes / 16;
  static constexpr int kRowsAtOnce = kWideFetchThreads / kUnits;
  static_assert(kRowsAtOnce % 8 == 0);

  __device__ explicit WideRowCopies(const WideTile<kTwo>& tile)
      : low(tile.low->data),
        high(tile.high->data),
        row_bytes(static_cast<unsigned>(tile.low->cols / 32) * F::kBlockBytes) {
    const int thread = static_cast<int>(threadIdx.x) - kWideMultiplyThreads;
    const int row = thread / kUnits;
    unit = thread % kUnits;
#pragma unroll
    for (int j = 0; j < kWideRows / kRowsAtOnce; ++j) {
      rows[j] = static_cast<unsigned>(tile.StoredRow(row + j * kRowsAtOnce)) *
                    (row_bytes / 16) +
                unit;
    }
    // Rows a multiple of 8 further have the same places in them.
    place = WeightAt<kFormat>(row, unit);
  }
  // Piece `step` to the stage at `to`.
  __device__ void Begin(int step, uint32_t to) const {
    const unsigned at =
        static_cast<unsigned>(step * F::kDepth) / 32 * F::kBlockBytes;
    const bool goes_on = at + unit * 16 < row_bytes;
    const uint8_t* const from_low = low + (goes_on ? at : 0);
    const uint8_t* const from_high = high + (goes_on ? at : 0);
#pragma unroll
    for (int j = 0; j < kWideRows / kRowsAtOnce; ++j) {
      const bool is_high = kTwo && j * kRowsAtOnce / 64 % 2 == 1;
      CopyAsyncOrZero(to + place + j * kRowsAtOnce * F::kRowBytes,
                      (is_high ? from_high : from_low) + size_t{rows[j]} * 16,
                      goes_on);
    }
  }

  const uint8_t* low;
  const uint8_t* high;
  unsigned row_bytes, rows[kWideRows / kRowsAtOnce];
  int unit;
  uint32_t place;
};

// The fetching warpgroup's part of a tile. column_of(n) is the row of parts,
// but for its piece, of the tile's n-th of `tokens`.
//
// `early`: no stage has been used, and the threads have not yet waited for
// earlier kernels, which they then do here, when weights for all stages are on
// their way: those no kernel writes. Nor does column_of read what one has
// written.
template <WeightFormat kFormat, bool kTwo, typename ColumnOf>
__device__ void FetchWide(const WideTile<kTwo>& tile, const SplitRows& x,
                          int tokens, const ColumnOf& column_of,
                          WideStages& stages, WideRange range,
                          bool early = false) {
  using F = WideFragment<kFormat>;
  constexpr int kTokenUnits = F::kDepth / 8;
  constexpr int kTokensAtOnce = kWideFetchThreads / kTokenUnits;
  static_assert(kTokensAtOnce % 8 == 0);
  const WideRowCopies<kFormat, kTwo> rows(tile);
  const int thread = static_cast<int>(threadIdx.x) - kWideMultiplyThreads;
  const int cols = static_cast<int>(tile.low->cols);
  const int token = thread / kTokenUnits, token_unit = thread % kTokenUnits;
  unsigned columns[kWideTokens / kTokensAtOnce];
#pragma unroll
  for (int j = 0; j < kWideTokens / kTokensAtOnce; ++j) {
    const int n = min(token + j * kTokensAtOnce, tokens - 1);
    columns[j] = static_cast<unsigned>(column_of(n)) *
                     static_cast<unsigned>(x.pieces * x.pitch / 8) +
                 token_unit;
  }
  const uint32_t token_to = TokenAt(token, token_unit);
  // Pieces whose weights are on their way.
  int ahead = 0;
  if (early) {
    WideStages stage = stages;
    ahead = min(kWideStages<kFormat>, range.end - range.begin);
#pragma unroll 1
    for (int i = 0; i < ahead; ++i) {
      rows.Begin(range.begin + i, stage.Tokens<kFormat>());
      stage.Next<kFormat>();
    }
    WaitForEarlier();
  }
  for (int piece = 0; piece < x.pieces; ++piece) {
    for (int step = range.begin; step < range.end; ++step) {
      const int k0 = step * F::kDepth;
      WaitForPhase(stages.Empty(), stages.parity ^ 1);
      const uint32_t to = stages.Tokens<kFormat>();
      if (ahead > 0) {
        --ahead;
      } else {
        rows.Begin(step, to);
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

// Boxes of kTokens rows of SplitRows, of `rows`: 64 columns of a part.
template <int kTokens>
CUtensorMap MapTokens(const SplitRows& x, size_t rows, size_t cols) {
  const size_t pieces = static_cast<size_t>(x.pieces);
  return MapBoxes<3>({.data = x.parts,
                      .value_bytes = 2,
                      .sizes = {cols, pieces, rows},
                      .strides = {x.pitch * 2, pieces * x.pitch * 2},
                      .box = {64, 1, kTokens}});
}
template <WeightFormat kFormat, int kTokens>
inline constexpr uint32_t kTokenBoxBytes =
    WideFragment<kFormat>::kDepth / 64 * kTokens * 128;

// A piece of the rows from token0 on, to a stage that expects it. By one
// thread.
template <WeightFormat kFormat>
__device__ void CopyTokens(const CUtensorMap& x, int token0, int piece,
                           int step, const WideStages& to) {
  constexpr int kDepth = WideFragment<kFormat>::kDepth;
#pragma unroll
  for (int i = 0; i < kDepth / 64; ++i) {
    CopyBox(to.Tokens<kFormat>() + i * kWidePartBytes, x,
            step * kDepth + i * 64, piece, token0, to.Full());
  }
}

// The fetching warpgroup's part where only the rows of x are neighbours, from
// token0 on: one thread more fills a stage.
template <WeightFormat kFormat, int kTokens, bool kTwo>
__device__ void FetchWideRows(const WideTile<kTwo>& tile, const CUtensorMap& x,
                              int token0, int pieces, WideStages& stages,
                              WideRange range) {
  const WideRowCopies<kFormat, kTwo> rows(tile);
  for (int piece = 0; piece < pieces; ++piece) {
    for (int step = range.begin; step < range.end; ++step) {
      WaitForPhase(stages.Empty(), stages.parity ^ 1);
      if (threadIdx.x == kWideMultiplyThreads) {
        ArriveExpecting(stages.Full(), kTokenBoxBytes<kFormat, kTokens>);
        CopyTokens<kFormat>(x, token0, piece, step, stages);
      }
      rows.Begin(step, stages.Tokens<kFormat>());
      ArriveAfterCopies(stages.Full());
      stages.Next<kFormat>();
    }
  }
}

// Boxes of both: kTokens rows of parts, and kWideRows rows of weights.
struct WideBoxes {
  CUtensorMap x, weight;
};

// `rows` of x.
template <WeightFormat kFormat, int kTokens>
WideBoxes MapWideBoxes(const Matrix& weight, const SplitRows& x, size_t rows) {
  using F = WideFragment<kFormat>;
  // Packed weights as bytes.
  constexpr size_t kValue = F::kFactor == FactorPlace::kBeside ? 1 : 2;
  const size_t row_bytes = weight.cols / 32 * F::kBlockBytes;
  return {
      .x = MapTokens<kTokens>(x, rows, weight.cols),
      .weight = MapBoxes<2>({.data = weight.data + weight.first_row * row_bytes,
                             .value_bytes = kValue,
                             .sizes = {row_bytes / kValue, weight.rows},
                             .strides = {row_bytes},
                             .box = {F::kRowBytes / kValue, kWideRows}})};
}

// The same by one thread, where rows of weights from row0 on are neighbours
// too. What is left of a box past the end of either is 0. `early` as for
// FetchWide().
template <WeightFormat kFormat, int kTokens>
__device__ void FetchWideBoxes(const WideBoxes& from, int row0, int token0,
                               int pieces, WideStages& stages, WideRange range,
                               bool early) {
  using F = WideFragment<kFormat>;
  constexpr int kValues =
      F::kFactor == FactorPlace::kBeside ? F::kRowBytes : F::kRowBytes / 2;
  const auto fetch_rows = [&](const WideStages& to, int step) {
    ArriveExpecting(
        to.Full(), kTokenBoxBytes<kFormat, kTokens> + kWideRows * F::kRowBytes);
    CopyBox(to.Tokens<kFormat>() + kWideTokenBytes<kFormat>, from.weight,
            step * kValues, row0, to.Full());
  };
  int ahead = 0;
  if (early) {
    WideStages stage = stages;
    ahead = min(kWideStages<kFormat>, range.end - range.begin);
#pragma unroll 1
    for (int i = 0; i < ahead; ++i) {
      fetch_rows(stage, range.begin + i);
      stage.Next<kFormat>();
    }
    WaitForEarlier();
  }
  for (int piece = 0; piece < pieces; ++piece) {
    for (int step = range.begin; step < range.end; ++step) {
      WaitForPhase(stages.Empty(), stages.parity ^ 1);
      if (ahead > 0) {
        --ahead;
      } else {
        fetch_rows(stages, step);
      }
      CopyTokens<kFormat>(from.x, token0, piece, step, stages);
      stages.Next<kFormat>();
    }
  }
}

// A multiplying warpgroup's part: sums[i] of the i-th run of 64 of its rows,
// each to be multiplied by 2^power[i][0] (row g of the warp's) or [1] (g + 8).
// False where scales of rows are too far apart for the sums to be right.
// kBoxes: of x nothing but boxes has been fetched.
template <WeightFormat kFormat, int kTokens, bool kTwo, bool kBoxes = false>
__device__ bool MultiplyWide(const WideTile<kTwo>& tile, int pieces,
                             WideStages& stages, WideRange range,
                             float (&sums)[2][kTokens / 2],
                             int (&power)[2][2]) {
  using F = WideFragment<kFormat>;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  constexpr int kPiecesOfRun = kScalePieces<kFormat>;
  const int steps = range.end - range.begin;
  const int first_row = warp / 4 * 128 + warp % 4 * 16;  // of the tile
  WideScales<kFormat> scales[2][2];
  bool exact = true;
  uint2 codes[2][2] = {};  // of scales, of kScalePieces pieces
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + 64 * i + 8 * h + lane / 4;
      scales[i][h].Open(tile.MatrixOf(row), tile.StoredRow(row));
    }
  }
  constexpr int kBlocks = F::kDepth / 32;
  WideScales<kFormat>::FindLargest(
      scales, range.begin * kBlocks,
      min(range.end * kBlocks, scales[0][0].blocks));
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      power[i][h] = scales[i][h].Power();
      exact = exact && scales[i][h].exact;
      codes[i][h] = scales[i][h].Load(range.begin / kPiecesOfRun);
    }
  }
  // Where the lane's row of the matrices that it loads lies in a stage. The
  // compiler would rather work it out again for every piece.
  uint32_t place = WeightAt<kFormat>(first_row + LaneRow(lane), LaneUnit(lane));
  asm volatile("" : "+r"(place));
  uint32_t a[2][2][4] = {}, raw[2][2][4];
  // Of slices kSlices * group and on of a stage.
  constexpr int kGroups = F::kDepth / 16 / F::kSlices;
  static_assert(kGroups % 2 == 0);  // the next stage's first takes turns too
  const auto load = [&](const WideStages& of, int group) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      LoadMatrices(
          raw[group % 2][i],
          of.Tokens<kFormat>() + GroupAt(place, group) + 64 * i * F::kRowBytes);
    }
  };
  const auto enter = [&](const WideStages& stage) {
    WaitForPhase(stage.Full(), stage.parity);
    if constexpr (!kBoxes) FenceAsyncProxy();  // which would wait for loads
    load(stage, 0);
  };
  // Whether a stage is entered while the last products of the one before run.
  constexpr bool kAhead = kBoxes && F::kAhead;
  const int all = pieces * steps;
  if (kAhead) enter(stages);
  uint32_t earlier = 0;  // the barrier of the stage before
  int step = range.begin;
  for (int n = 0; n < all; ++n) {
    uint32_t fields[2][2];  // of the piece's scales
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        fields[i][h] = scales[i][h].Fields(codes[i][h], step);
      }
    }
    if (!kAhead) enter(stages);
    // None are left after this piece: the next ones have its time to come.
    const int next = step + 1 < range.end ? step + 1 : range.begin;
    if (next % kPiecesOfRun == 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          codes[i][h] = scales[i][h].Load(next / kPiecesOfRun);
        }
      }
    }
    step = next;
    const uint64_t columns = SwizzledRows(stages.Tokens<kFormat>());
    const uint32_t empty = stages.Empty();
    WideStages after = stages;
    after.Next<kFormat>();
    uint32_t factors[2][2];  // of the slice's block
#pragma unroll
    for (int s = 0; s < F::kDepth / 16; ++s) {
      uint32_t(&fragments)[2][4] = a[s % 2];
      // A group ahead of what is decoded.
      const int group = s / F::kSlices;
      if (s % F::kSlices == 0 && group + 1 < kGroups) load(stages, group + 1);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (s % 2 == 0) {
            factors[i][h] = WideScales<kFormat>::Pair(fields[i][h], s / 2);
          }
        }
        F::Decode(raw[group % 2][i], s % F::kSlices, factors[i][0],
                  factors[i][1], fragments[i]);
      }
      BeginProducts();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        Wgmma<kTokens>::template Add<F::kBf16>(
            sums[i], fragments[i], columns + (SliceAt(s) >> 4), n + s);
      }
      CommitProducts();
      if (kAhead && s == (kGroups - 1) * F::kSlices && n + 1 < all) {
        enter(after);
      }
      WaitForProducts<1>();
      Hold(a[(s + 1) % 2][0]);
      Hold(a[(s + 1) % 2][1]);
      if (s == 0) {
        __syncwarp();  // all lanes have read
        if (n > 0 && lane == 0) Arrive(earlier);
        earlier = empty;
      }
    }
    stages = after;
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
