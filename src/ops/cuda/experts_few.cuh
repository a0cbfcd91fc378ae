// The products of experts by streaming their weights (ops/cuda/
// matmul_stream.cuh), for all slots of an expert while its rows are there.
#pragma once

#include "ops/cuda/experts_group.cuh"
#include "ops/cuda/experts_swiglu.cuh"
#include "ops/cuda/matmul_stream.cuh"
#include "ops/moe.h"

namespace ecphory::cuda {

// One of the two steps: hidden vectors from x by w1 and w3, or outputs from
// hidden vectors by w2.
struct ExpertsStep {
  ExpertsArgs args;
  Groups groups;      // begin: null where each block groups for itself
  const float* in;    // x, or the hidden vectors
  float* out;         // [slots, rows]
  size_t part_bytes;  // of shared memory for parts of the inputs
};

// Blocks so large that those of one token's experts run at a time on an H200,
// and small beside it.
template <bool kHidden>
struct ExpertsShape {
  static constexpr int kWarps = kHidden ? 8 : 4;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlocks = 16 / kWarps;  // of a multiprocessor
  // The same of all formats.
  static constexpr size_t kRing =
      kWarps * StreamLayout<WeightFormat::kQ8_0>::kRingOfWarp;
  // Of a multiprocessor's shared memory, what one of its blocks can have.
  static constexpr size_t kMemory = (size_t{216} << 10) / kBlocks;

  // Warps that share 16 rows, by the shape alone.
  static __host__ __device__ int Sharers(size_t cols) {
    return kHidden && cols >= 1024 ? 2 : 1;
  }
  static __host__ __device__ size_t BlockRows(size_t cols) {
    return kWarps / Sharers(cols) * kRowsOfWarp;
  }
};

// A block's work: the slots of one expert and some rows of its matrices.
template <bool kHidden>
struct ExpertsBlock {
  static constexpr int kMatrices = kHidden ? 2 : 1;

  __device__ const float* Row(int i) const {
    const size_t slot = static_cast<size_t>(slots[i]);
    return step.in + (kHidden ? slot / step.args.topk : slot) * cols;
  }
  // The sums of slot i and row `row` by each matrix.
  __device__ void Store(int i, size_t row, float first, float last) const {
    const size_t slot = static_cast<size_t>(slots[i]);
    step.out[slot * rows + row] =
        kHidden ? Swiglu(step.args, first, last, step.args.weights[slot])
                : MaybeRound(first, step.args.round_bf16);
  }

  const ExpertsStep& step;
  const Matrix* m[kMatrices];
  size_t rows, cols;     // of each
  size_t row0;           // of the block
  const int32_t* slots;  // of the expert
  int count;
  uint8_t* memory;
  size_t part_bytes;
};

// A function of its own: what it keeps in registers does not add to what the
// other formats' keep. `pitch`: of a part, in halves.
template <WeightFormat kFormat, bool kHidden>
__device__ __noinline__ void StreamExpert(const ExpertsBlock<kHidden>& b,
                                          int capacity, int pitch) {
  using F = Fragment<kFormat>;
  using Layout = StreamLayout<kFormat>;
  using Shape = ExpertsShape<kHidden>;
  constexpr int kMatrices = ExpertsBlock<kHidden>::kMatrices;
  constexpr int kMost = 8 / F::kColumns;  // slots at a time
  __shared__ uint32_t largest[Shape::kWarps];
  __shared__ float out_scale[kMost];
  uint8_t* const memory = b.memory;
  uint16_t* const parts = reinterpret_cast<uint16_t*>(memory + Shape::kRing);
  uint16_t* const factors =
      reinterpret_cast<uint16_t*>(memory + Shape::kRing + b.part_bytes);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int cols = static_cast<int>(b.cols), count = b.count;
  const int sharers = Shape::Sharers(b.cols), share = warp % sharers;
  const size_t block_rows = Shape::BlockRows(b.cols), rows = b.rows;
  const size_t block_row0 = b.row0;
  const size_t row0 = block_row0 + warp / sharers * kRowsOfWarp;
  const int factor_pitch = (cols / 32 + 7) / 8 * 8;
  const int factors_apart = static_cast<int>(block_rows + 1) * factor_pitch;
  for (int first = 0; first < count; first += capacity) {
    const int some = min(min(capacity, kMost), count - first);
    if (first > 0) __syncthreads();  // all have left the ring and the parts
    RowStream<kFormat, kMatrices> stream(b.m, min(row0, rows - 1),
                                         memory + warp * Layout::kRingOfWarp,
                                         share, sharers);
    SplitOperand<kFormat, Shape::kThreads>(
        [&](int i) { return b.Row(first + i); }, cols, some, pitch, parts,
        out_scale, largest,
        [&] {
          if (first > 0) return;
          const size_t some_rows = min(block_rows, rows - block_row0);
          const FactorLoad<kFormat, Shape::kThreads> one(
              *b.m[0], block_row0, some_rows, factor_pitch);
          const FactorLoad<kFormat, Shape::kThreads> two(
              *b.m[kMatrices - 1], block_row0, some_rows, factor_pitch);
          one.End(factors);
          if (kMatrices > 1) two.End(factors + factors_apart);
        });
    __syncthreads();
    const int g = lane / 4, t = lane % 4;
    const uint16_t* low[kMatrices];
    const uint16_t* high[kMatrices];
#pragma unroll
    for (int i = 0; i < kMatrices; ++i) {
      low[i] = high[i] = factors;
      if constexpr (F::kFactor == FactorPlace::kBeside) {
        const uint16_t* const own = factors + i * factors_apart;
        low[i] = own + FactorsAt<kFormat>(*b.m[i], row0 + g, block_row0,
                                          factor_pitch);
        high[i] = own + FactorsAt<kFormat>(*b.m[i], row0 + g + 8, block_row0,
                                           factor_pitch);
      }
    }
    const uint16_t* columns[1];
    FindColumns<kFormat, 1>(parts, pitch, some, columns);
    float sums[kMatrices][1][4];
    stream.template Multiply<1>(columns, low, high, cols / 32, sums);
    float(&flat)[kMatrices * 4] =
        *reinterpret_cast<float(*)[kMatrices * 4]>(&sums);
    if (!AddShares(flat, share, sharers, reinterpret_cast<float*>(memory)) ||
        row0 >= rows) {
      continue;
    }
    const float2 gate = AddParts<F::kColumns>(sums[0][0], t);
    const float2 up = AddParts<F::kColumns>(sums[kMatrices - 1][0], t);
    const int i = 2 * t / F::kColumns;
    if (i >= some || 2 * t % F::kColumns != 0) continue;
    const float scale = F::kPower * out_scale[i];
    if (g < stream.rows) {
      b.Store(first + i, row0 + g, gate.x * scale, up.x * scale);
    }
    if (g + 8 < stream.rows) {
      b.Store(first + i, row0 + g + 8, gate.y * scale, up.y * scale);
    }
  }
}

// Apart, so that its registers do not count in the kernel.
__device__ __noinline__ inline float AnyWeightValue(const Matrix& m, size_t row,
                                                    size_t k) {
  return WeightValue(m, row, k);
}

// Any format and alignment, a warp a row.
template <bool kHidden>
__device__ __noinline__ void ExpertByValue(const ExpertsBlock<kHidden>& b) {
  constexpr int kMatrices = ExpertsBlock<kHidden>::kMatrices;
  constexpr int kSlots = 4;
  using Shape = ExpertsShape<kHidden>;
  const size_t end = min(b.rows, b.row0 + Shape::BlockRows(b.cols));
  for (size_t row = b.row0 + threadIdx.x / kWarp; row < end;
       row += Shape::kWarps) {
    for (int first = 0; first < b.count; first += kSlots) {
      const int some = min(kSlots, b.count - first);
      float sums[kMatrices][kSlots] = {};
#pragma unroll
      for (int j = 0; j < kMatrices; ++j) {
        for (size_t k = threadIdx.x % kWarp; k < b.cols; k += kWarp) {
          const float w = AnyWeightValue(*b.m[j], row, k);
#pragma unroll
          for (int i = 0; i < kSlots; ++i) {
            if (i < some) sums[j][i] = fmaf(w, b.Row(first + i)[k], sums[j][i]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kSlots; ++i) {
        const float one = WarpSum(sums[0][i]);
        const float two = WarpSum(sums[kMatrices - 1][i]);
        if (i < some && threadIdx.x % kWarp == 0)
          b.Store(first + i, row, one, two);
      }
    }
  }
}

// Whether the streaming way takes the block's matrices; the inputs' parts then
// lie `pitch` apart and there is room for `capacity` slots.
template <WeightFormat kFormat, bool kHidden>
__device__ bool StreamedExpert(const ExpertsBlock<kHidden>& b) {
  using F = Fragment<kFormat>;
  const size_t cols = b.cols;
  uintptr_t bits = cols / 32 * F::kBlockBytes;
#pragma unroll
  for (const Matrix* m : b.m) {
    bits |= reinterpret_cast<uintptr_t>(m->data);
    if (m->format != kFormat) return false;
  }
  const int pitch = static_cast<int>((cols + 63) / 64 * 64 + 32);
  const int capacity =
      static_cast<int>(min(b.step.part_bytes / (size_t{2} * pitch * F::kPieces),
                           size_t{8 / F::kColumns}));
  if (cols % 32 != 0 || bits % F::kUnit != 0 || capacity == 0 ||
      reinterpret_cast<uintptr_t>(b.step.in) % 16 != 0) {
    return false;
  }
  StreamExpert<kFormat, kHidden>(b, capacity, pitch);
  return true;
}

template <bool kHidden>
__device__ bool StreamedExpert(const ExpertsBlock<kHidden>& b) {
  switch (b.m[0]->format) {
    case WeightFormat::kBF16: return StreamedExpert<WeightFormat::kBF16>(b);
    case WeightFormat::kQ8_0: return StreamedExpert<WeightFormat::kQ8_0>(b);
    case WeightFormat::kMXFP4: return StreamedExpert<WeightFormat::kMXFP4>(b);
    case WeightFormat::kFp8Tile32:
      return StreamedExpert<WeightFormat::kFp8Tile32>(b);
    case WeightFormat::kFp4Row32:
      return StreamedExpert<WeightFormat::kFp4Row32>(b);
    default: return false;
  }
}

template <bool kHidden>
__device__ void MultiplyExpert(const ExpertsStep& step, const Expert& e,
                               const int32_t* slots, int count,
                               uint8_t* memory) {
  const ExpertsArgs& a = step.args;
  const size_t rows = kHidden ? a.inner : a.dim;
  const size_t cols = kHidden ? a.dim : a.inner;
  const size_t row0 = blockIdx.x * ExpertsShape<kHidden>::BlockRows(cols);
  ExpertsBlock<kHidden> b{step,  {},    rows,   cols,           row0,
                          slots, count, memory, step.part_bytes};
  b.m[0] = kHidden ? &e.w1 : &e.w2;
  if constexpr (kHidden) b.m[1] = &e.w3;
  if (!StreamedExpert<kHidden>(b)) ExpertByValue<kHidden>(b);
}

// Block (rows, slot) of slots that blocks group for themselves, or (rows, some
// experts) of grouped ones, but for those that tiles take.
template <bool kHidden>
__global__ void __launch_bounds__(ExpertsShape<kHidden>::kThreads,
                                  ExpertsShape<kHidden>::kBlocks)
    ExpertsKernel(const __grid_constant__ ExpertsStep step) {
  extern __shared__ uint4 experts_memory[];
  __shared__ int32_t list[kFewSlots];
  const ExpertsArgs& a = step.args;
  LetNextStart();
  FetchDescriptions(a);
  WaitForEarlier();
  uint8_t* const memory = reinterpret_cast<uint8_t*>(experts_memory);
  const Groups& groups = step.groups;
  const bool grouped = groups.begin != nullptr;
  if (grouped && groups.refused[kHidden ? 0 : 1] == 0) return;
  const unsigned end = grouped ? static_cast<unsigned>(a.n_experts) : gridDim.y;
  for (unsigned i = blockIdx.y; i < end; i += gridDim.y) {
    const Expert& e = a.experts[grouped ? i : a.ids[i]];
    const int32_t* slots = list;
    int count = 0;
    if (!grouped) {
      count = SlotsLike(a.ids, static_cast<int>(a.tokens * a.topk), a.ids[i],
                        static_cast<int>(i), list);
    } else if (LeftByTiles<kHidden>(a, groups, static_cast<int>(i))) {
      slots = groups.slots + groups.begin[i];
      count = groups.begin[i + 1] - groups.begin[i];
    }
    if (count > 0) MultiplyExpert<kHidden>(step, e, slots, count, memory);
    __syncthreads();
  }
}

// One input at a time leaves room for all blocks on a multiprocessor; two at a
// time pay when experts have several slots. (An input of bf16 weights has three
// parts: it is taken with the room of two.)
template <bool kHidden>
void LaunchExperts(ExpertsStep step) {
  using Shape = ExpertsShape<kHidden>;
  const size_t cols = kHidden ? step.args.dim : step.args.inner;
  const size_t rows = kHidden ? step.args.inner : step.args.dim;
  const size_t part = 2 * ((cols + 63) / 64 * 64 + 32);
  const size_t block_rows = Shape::BlockRows(cols);
  const size_t factor_pitch = (cols / 32 + 7) / 8 * 8;
  const size_t factors =
      2 * (kHidden ? 2 : 1) * (block_rows + 1) * factor_pitch;
  size_t parts = step.args.tokens <= 32 ? 2 : 4;
  const size_t other = Shape::kRing + factors;
  // Short rows: the parts that all blocks have room for.
  while (parts < 8 && other + (parts + 1) * part <= Shape::kMemory) ++parts;
  while (parts > 0 && !FitsStreamMemory(other + parts * part)) --parts;
  step.part_bytes = parts * part;
  const size_t shared = parts > 0 ? other + step.part_bytes : 0;
  AllowSharedMemory(ExpertsKernel<kHidden>, shared, "experts");
  const size_t groups = step.groups.begin != nullptr
                            ? std::min<size_t>(step.args.n_experts, 16)
                            : step.args.tokens * step.args.topk;
  LaunchOverlapped(
      ExpertsKernel<kHidden>,
      dim3(Blocks(rows, block_rows), static_cast<unsigned>(groups)),
      Shape::kThreads, shared, "experts", step);
}

}  // namespace ecphory::cuda
