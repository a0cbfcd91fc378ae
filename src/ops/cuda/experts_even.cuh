// Hidden vectors of one token's experts, of FP4, by tiles of 16 rows of which a
// block a multiprocessor has as many as any other, or one more: sums as of
// ops/cuda/experts_alike.cuh, bit for bit. A warp has a share of the columns of
// one matrix in a tile, and so few registers that there are enough warps to
// hide how long each waits for its own products. Its lanes' weights come
// through rings in shared memory, for which a lane waits alone.
#pragma once

#include "ops/cuda/experts_few.cuh"
#include "ops/cuda/experts_rows.cuh"
#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/wgmma.cuh"

namespace ecphory::cuda {

// At released shapes up to 7 of 864 tiles, of four warps each, on 132
// multiprocessors.
inline constexpr int kEvenWarps = 28;
inline constexpr int kEvenThreads = kEvenWarps * kWarp;
inline constexpr WeightFormat kEvenFormat = WeightFormat::kFp4Row32;

// How the launch divides its work and its shared memory, behind x.
struct EvenPlan {
  __host__ __device__ int WarpsOfTile() const { return 2 * sharers; }

  int sharers;         // warps that share a matrix's columns
  int tiles_of;        // of an expert
  size_t scale_bytes;  // of a matrix's tile
  size_t scales_at, sums_at, ring_at, memory;
};

// A lane's pieces on their way.
struct EvenRing {
  using Piece = RowPiece<kEvenFormat>;
  static constexpr int kDepth = 2;
  static constexpr int kVectors = Piece::kGroups * 2;  // of 16 bytes, a piece
  static constexpr size_t kBytes = kDepth * kVectors * kWarp * 16;  // of a warp

  // body(its place, group, half) for each vector of the place'th piece.
  template <typename Body>
  __device__ void ForEach(int place, const Body& body) const {
    static_assert(Piece::kVectors == 1);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      body(vectors + (place * kVectors + i) * kWarp, i / 2, i % 2);
    }
  }
  // Begins to copy the walk's next piece; zeros past the end of the row.
  __device__ void Fetch(RowWalk<kEvenFormat>& walk, int place) const {
    ForEach(place, [&](uint4* to, int group, int half) {
      const bool inside = walk.block + 4 * group < walk.blocks;
      const int at = inside ? 4 * group * Piece::F::kBlockBytes : 0;
      CopyAsyncOrZero(to, walk.codes[half] + at, inside);
    });
    walk.Advance();
  }
  __device__ void Read(int place, Piece& piece) const {
    ForEach(place, [&](const uint4* from, int group, int half) {
      piece.codes[group][half][0] = *from;
    });
  }

  uint4* vectors;  // the lane's first; its next is kWarp further
};

// A warp's share of the columns of a tile of `matrix`, from row0 on.
struct EvenTile {
  using Piece = EvenRing::Piece;

  __device__ EvenTile(const Matrix& of, size_t first_row, int of_sharers,
                      uint8_t* scales_to, EvenRing through)
      : matrix(of),
        row0(first_row),
        share(static_cast<int>(threadIdx.x / kWarp) % of_sharers),
        sharers(of_sharers),
        scales(scales_to),
        ring(through),
        walk(of, first_row, share, of_sharers) {
    const int pieces = (walk.blocks + Piece::kBlocks - 1) / Piece::kBlocks;
    left = mine = (pieces - share + sharers - 1) / sharers;
  }
  // Asks for the tile's scales, by one of the sharers, and behind them for the
  // first pieces.
  __device__ void Begin() {
    if (share == 0) {
      RowScales<kEvenFormat>::Load<kWarp>(matrix, row0, kRowsOfWarp, scales);
    }
#pragma unroll
    for (int place = 0; place < EvenRing::kDepth; ++place) Ask(place);
  }
  // For the next piece, as a group of copies; behind the last for nothing.
  __device__ void Ask(int place) {
    if (left > 0) ring.Fetch(walk, place);
    --left;
    CommitCopies();
  }
  // sums: of rows g and g + 8, in all four lanes of a row. x as of PartColumns.
  __device__ void Multiply(const uint16_t* parts, int pitch, float (&sums)[2]) {
    const int first_block =
        Piece::kBlocks * share + static_cast<int>(threadIdx.x % 4);
    PartColumns<1> x(parts, pitch, 1, first_block);
    LaneFactors<kEvenFormat> factors(matrix, scales, row0, row0, first_block);
    float added[1][2] = {};
    int place = 0;
#pragma unroll 1
    for (int p = 0; p < mine; ++p) {
      WaitForCopies<EvenRing::kDepth - 1>();
      Piece piece;
      ring.Read(place, piece);
      MultiplyPiece<kEvenFormat, 1>(piece, x, factors, added);
      Ask(place);  // the lane has read what was there
      if (++place == EvenRing::kDepth) place = 0;
      x.Advance(Piece::kBlocks * sharers);
      factors.Advance(Piece::kBlocks * sharers);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sums[half] = added[0][half];
      sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 1);
      sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 2);
    }
  }

  const Matrix& matrix;
  size_t row0;
  int share, sharers;
  int mine, left;  // pieces: all, and those to be asked for
  uint8_t* scales;
  EvenRing ring;
  RowWalk<kEvenFormat> walk;
};

inline __global__ void __launch_bounds__(kEvenThreads, 1)
    EvenKernel(const __grid_constant__ ExpertsStep step,
               const __grid_constant__ EvenPlan plan) {
  extern __shared__ uint4 experts_memory[];
  __shared__ uint32_t largest[kEvenWarps];
  __shared__ float out_scale;
  const ExpertsArgs& a = step.args;
  FetchDescriptions(a);
  WaitForEarlier();
  LetNextStart();
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int64_t tiles = static_cast<int64_t>(a.topk) * plan.tiles_of;
  const int first = static_cast<int>(tiles * blockIdx.x / gridDim.x);
  const int end = static_cast<int>(tiles * (blockIdx.x + 1) / gridDim.x);
  const int number = first + warp / plan.WarpsOfTile();
  const bool some = number < end;  // whether the warp has a tile
  const int choice = min(number / plan.tiles_of, static_cast<int>(a.topk) - 1);
  const size_t row0 = static_cast<size_t>(number % plan.tiles_of) * kRowsOfWarp;
  const Expert& expert = a.experts[a.ids[choice]];
  uint8_t* const memory = reinterpret_cast<uint8_t*>(experts_memory);
  const int area = warp / plan.sharers;  // of a tile's matrix
  EvenTile tile(area % 2 == 0 ? expert.w1 : expert.w3, row0, plan.sharers,
                memory + plan.scales_at + area * plan.scale_bytes,
                {reinterpret_cast<uint4*>(memory + plan.ring_at +
                                          warp * EvenRing::kBytes) +
                 lane});
  if (some) tile.Begin();
  const int cols = static_cast<int>(a.dim), pitch = RowPartPitch(a.dim);
  uint16_t* const parts = reinterpret_cast<uint16_t*>(memory);
  if (threadIdx.x < 32) parts[2 * pitch + threadIdx.x] = 0;
  for (int i = cols + static_cast<int>(threadIdx.x); i < RowPartCols(a.dim);
       i += kEvenThreads) {
    parts[i] = parts[pitch + i] = 0;
  }
  SplitOperand<kEvenFormat, kEvenThreads>([&](int) { return step.in; }, cols, 1,
                                          pitch, parts, &out_scale, largest,
                                          [] {});
  WaitForCopies<EvenRing::kDepth - 1>();  // for scales, with the first piece
  __syncthreads();
  float(*const sums)[8][2] =
      reinterpret_cast<float(*)[8][2]>(memory + plan.sums_at);  // of a warp
  if (some) {
    float own[2];
    tile.Multiply(parts, pitch, own);
    if (lane % 4 == 0) {
      sums[warp][lane / 4][0] = own[0], sums[warp][lane / 4][1] = own[1];
    }
  }
  __syncthreads();
  if (!some || warp % plan.WarpsOfTile() != 0 || lane >= kRowsOfWarp) return;
  const float scale = Fragment<kEvenFormat>::kPower * out_scale;
  const auto of_row = [&](int from) {
    float sum = sums[from][lane % 8][lane / 8];
    for (int i = 1; i < plan.sharers; ++i) {
      sum += sums[from + i][lane % 8][lane / 8];
    }
    return sum * scale;
  };
  step.out[choice * a.inner + row0 + lane] =
      Swiglu(a, of_row(warp), of_row(warp + plan.sharers), a.weights[choice]);
}

inline EvenPlan PlanEven(const ExpertsArgs& a) {
  EvenPlan plan{};
  plan.sharers = ExpertsShape<true>::Sharers(a.dim);
  plan.tiles_of = static_cast<int>(a.inner / kRowsOfWarp);
  plan.scale_bytes = RowScales<kEvenFormat>::Bytes(kRowsOfWarp, a.dim);
  const size_t pitch = static_cast<size_t>(RowPartPitch(a.dim));
  plan.scales_at = (2 * pitch + 32) * sizeof(uint16_t);
  plan.sums_at = plan.scales_at + kEvenWarps / plan.sharers * plan.scale_bytes;
  plan.ring_at = plan.sums_at + kEvenWarps * kRowsOfWarp * sizeof(float);
  plan.memory = plan.ring_at + kEvenWarps * EvenRing::kBytes;
  return plan;
}

// Whether a block can take its share at a time. Experts are alike, of
// kEvenFormat.
inline bool TakesEven(const ExpertsArgs& a) {
  const EvenPlan plan = PlanEven(a);
  const size_t tiles = a.topk * static_cast<size_t>(plan.tiles_of);
  const size_t most = Blocks(tiles, static_cast<size_t>(Multiprocessors()));
  // Of one expert, more warps share the columns.
  return a.tokens == 1 && a.n_experts > 1 && a.inner % kRowsOfWarp == 0 &&
         most * static_cast<size_t>(plan.WarpsOfTile()) <= kEvenWarps &&
         FitsSharedMemory(plan.memory + sizeof(uint32_t) * (kEvenWarps + 1));
}

inline void LaunchEven(const ExpertsStep& step) {
  const EvenPlan plan = PlanEven(step.args);
  AllowSharedMemory(EvenKernel, plan.memory, "experts");
  LaunchOverlapped(EvenKernel, dim3(static_cast<unsigned>(Multiprocessors())),
                   kEvenThreads, plan.memory, "experts", step, plan);
}

}  // namespace ecphory::cuda
