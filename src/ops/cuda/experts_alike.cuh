// The products of few slots with experts that are all alike, of formats with
// e8m0 scales beside their codes: straight from memory (ops/cuda/
// experts_rows.cuh), in kernels of one format.
#pragma once

#include <algorithm>

#include "ops/cuda/experts_even.cuh"
#include "ops/cuda/experts_few.cuh"
#include "ops/cuda/experts_rows.cuh"
#include "ops/cuda/shared_limit.cuh"

namespace ecphory::cuda {

// What the sharers of 16 rows add up to, in the first of them, through
// `memory`, which holds kSums * 32 bytes a warp. False for the others.
template <int kSums>
struct RowShares {
  static __device__ bool Add(float (&sums)[kSums], int share, int sharers,
                             float* memory) {
    if (sharers == 1) return true;
    const int warp = static_cast<int>(threadIdx.x / kWarp);
    const int g = static_cast<int>(threadIdx.x % kWarp) / 4;
    __syncthreads();
    if (threadIdx.x % 4 == 0) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        memory[(warp * kSums + i) * 8 + g] = sums[i];
      }
    }
    __syncthreads();
    if (share != 0) return false;
    for (int s = 1; s < sharers; ++s) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        sums[i] += memory[((warp + s) * kSums + i) * 8 + g];
      }
    }
    return true;
  }
};

// How a launch divides its work and its shared memory.
struct RowsPlan {
  int sharers;         // warps that share 16 rows
  int capacity;        // slots at a time
  size_t scale_bytes;  // of one matrix's rows
  size_t scales_at;    // bytes from the start: behind parts and zeros
};

// `some` slots from `first` on, whose parts are in shared memory.
template <WeightFormat kFormat, bool kHidden, int kSlots>
__device__ void FinishRows(const ExpertsBlock<kHidden>& b, int first, int some,
                           size_t row0, int share, const RowsPlan& plan,
                           const uint8_t* scales, const float* out_scale,
                           RowPiece<kFormat>& now, RowWalk<kFormat>& walk) {
  constexpr int kMatrices = ExpertsBlock<kHidden>::kMatrices;
  constexpr int kSums = kMatrices * kSlots * 2;
  float sums[kMatrices][kSlots][2];
  const uint16_t* const parts = reinterpret_cast<const uint16_t*>(b.memory);
  MultiplyRows<kFormat, kMatrices, kSlots>(
      b.m, b.row0, row0, share, plan.sharers, scales, plan.scale_bytes, parts,
      RowPartPitch(b.cols), plan.capacity, now, walk, sums);
  float(&flat)[kSums] = *reinterpret_cast<float(*)[kSums]>(&sums);
  if (!RowShares<kSums>::Add(flat, share, plan.sharers,
                             reinterpret_cast<float*>(b.memory))) {
    return;
  }
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    if (s != t || s >= some) continue;
    const float scale = Fragment<kFormat>::kPower * out_scale[s];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const size_t row = row0 + g + 8 * half;
      if (row >= b.rows) continue;
      b.Store(first + s, row, sums[0][s][half] * scale,
              sums[kMatrices - 1][s][half] * scale);
    }
  }
}

inline constexpr int kMostRowSlots = 4;  // at a time
// Behind the parts of inputs.
inline constexpr size_t kZeroBytes = 32 * sizeof(uint16_t);

// Shared memory: the parts of inputs, then the sharers' sums in their place.
template <WeightFormat kFormat, bool kHidden, int kMost>
__device__ void ExpertByRows(const ExpertsBlock<kHidden>& b,
                             const RowsPlan& plan) {
  using Shape = ExpertsShape<kHidden>;
  __shared__ uint32_t largest[Shape::kWarps];
  __shared__ float out_scale[kMostRowSlots];
  const int cols = static_cast<int>(b.cols), pitch = RowPartPitch(b.cols);
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int sharers = plan.sharers, share = warp % sharers;
  const int capacity = plan.capacity;
  const size_t row0 = b.row0 + warp / sharers * kRowsOfWarp;
  uint16_t* const parts = reinterpret_cast<uint16_t*>(b.memory);
  uint8_t* const scales = b.memory + plan.scales_at;
  for (int first = 0; first < b.count; first += capacity) {
    const int some = min(capacity, b.count - first);
    if (first > 0) __syncthreads();  // all have left the parts
    RowWalk<kFormat> walk(*b.m[0], row0, share, sharers);
    RowPiece<kFormat> now;
    walk.Load(now);
    if (first == 0) {
      const size_t block_rows = Shape::kWarps / sharers * kRowsOfWarp;
      const size_t rows = min(block_rows, b.rows - b.row0);
#pragma unroll
      for (int i = 0; i < ExpertsBlock<kHidden>::kMatrices; ++i) {
        RowScales<kFormat>::template Load<Shape::kThreads>(
            *b.m[i], b.row0, rows, scales + i * plan.scale_bytes);
      }
    }
    if (threadIdx.x < 32) parts[2 * capacity * pitch + threadIdx.x] = 0;
    for (int i = cols + threadIdx.x; i < RowPartCols(b.cols);
         i += Shape::kThreads) {
      for (int part = 0; part < 2 * some; ++part) parts[part * pitch + i] = 0;
    }
    if (!kHidden && first == 0) WaitForEarlier();
    SplitOperand<kFormat, Shape::kThreads>(
        [&](int i) { return b.Row(first + i); }, cols, some, pitch, parts,
        out_scale, largest, [] {});
    WaitForCopies<0>();
    __syncthreads();
    const auto finish = [&]<int kSlots>(std::integral_constant<int, kSlots>) {
      FinishRows<kFormat, kHidden, kSlots>(b, first, some, row0, share, plan,
                                           scales, out_scale, now, walk);
    };
    if (kMost == 1 || some == 1) {
      finish(std::integral_constant<int, 1>());
    } else if (some == 2) {
      finish(std::integral_constant<int, 2>());
    } else {
      finish(std::integral_constant<int, kMost>());
    }
  }
}

// Block (rows, slot); up to kMost slots of an expert at a time.
template <WeightFormat kFormat, bool kHidden, int kMost>
__global__ void __launch_bounds__(ExpertsShape<kHidden>::kThreads,
                                  ExpertsShape<kHidden>::kBlocks)
    AlikeKernel(const __grid_constant__ ExpertsStep step, const RowsPlan plan) {
  extern __shared__ uint4 experts_memory[];
  __shared__ int32_t list[kFewSlots];
  const ExpertsArgs& a = step.args;
  // The second step starts behind the router, and need not wait for the first
  // to know its experts and to ask for their weights.
  if (kHidden) FetchDescriptions(a), WaitForEarlier();
  LetNextStart();
  const Expert& e = a.experts[a.ids[blockIdx.y]];
  const int slot = static_cast<int>(blockIdx.y);
  const int count = SlotsLike(a.ids, static_cast<int>(a.tokens * a.topk),
                              a.ids[slot], slot, list);
  if (count == 0) return;
  const size_t rows = kHidden ? a.inner : a.dim;
  const size_t cols = kHidden ? a.dim : a.inner;
  const size_t block_rows =
      ExpertsShape<kHidden>::kWarps / plan.sharers * kRowsOfWarp;
  const size_t row0 = blockIdx.x * block_rows;
  ExpertsBlock<kHidden> b{
      step, {},   rows,  cols,
      row0, list, count, reinterpret_cast<uint8_t*>(experts_memory),
      0};
  b.m[0] = kHidden ? &e.w1 : &e.w2;
  if constexpr (kHidden) b.m[1] = &e.w3;
  ExpertByRows<kFormat, kHidden, kMost>(b, plan);
}

// Whether all of the experts, which lie in the host's memory, are of kFormat
// and their rows multiples of 16 bytes.
template <WeightFormat kFormat>
bool AreAlike(const ExpertsArgs& args) {
  const auto takes = [](const Matrix& m) {
    const uintptr_t bits = reinterpret_cast<uintptr_t>(m.data) | m.row_bytes();
    return m.format == kFormat && m.cols % 32 == 0 && bits % 16 == 0;
  };
  return reinterpret_cast<uintptr_t>(args.x) % 16 == 0 &&
         std::all_of(args.experts, args.experts + args.n_experts,
                     [&](const Expert& e) {
                       return takes(e.w1) && takes(e.w3) && takes(e.w2);
                     });
}

// Whether such kernels take all of the experts.
template <WeightFormat kFormat>
bool TakesAlike(const ExpertsArgs& args) {
  const size_t most = std::max(args.dim, args.inner);
  const size_t slot =
      size_t{2} * sizeof(uint16_t) * static_cast<size_t>(RowPartPitch(most));
  const size_t scales = 2 * RowScales<kFormat>::Bytes(128, most);
  return FitsStreamMemory(slot + kZeroBytes + scales) &&
         AreAlike<kFormat>(args);
}

template <WeightFormat kFormat, bool kHidden, int kMost>
void LaunchAlike(const ExpertsStep& step) {
  using Shape = ExpertsShape<kHidden>;
  constexpr auto kKernel = AlikeKernel<kFormat, kHidden, kMost>;
  const ExpertsArgs& a = step.args;
  const size_t cols = kHidden ? a.dim : a.inner;
  // Of one expert, as many blocks as there are tiles of 16 rows.
  RowsPlan plan{};
  plan.sharers = a.n_experts == 1 ? Shape::kWarps : Shape::Sharers(cols);
  const size_t block_rows = Shape::kWarps / plan.sharers * kRowsOfWarp;
  plan.scale_bytes = RowScales<kFormat>::Bytes(block_rows, cols);
  const size_t scales = (kHidden ? 2 : 1) * plan.scale_bytes;
  const size_t slot =
      size_t{2} * sizeof(uint16_t) * static_cast<size_t>(RowPartPitch(cols));
  const size_t sums = size_t{Shape::kWarps} * 32 * 4 * kMost;
  plan.capacity = kMost;
  while (plan.capacity > 1 &&
         plan.capacity * slot + kZeroBytes + scales > Shape::kMemory) {
    plan.capacity /= 2;
  }
  plan.scales_at = std::max(plan.capacity * slot + kZeroBytes, sums);
  const size_t shared = plan.scales_at + scales;
  AllowSharedMemory(kKernel, shared, "experts");
  const dim3 grid(Blocks(kHidden ? a.inner : a.dim, block_rows),
                  static_cast<unsigned>(a.tokens * a.topk));
  LaunchOverlapped(kKernel, grid, Shape::kThreads, shared, "experts", step,
                   plan);
}

// Both steps, where experts are alike.
inline bool RunAlike(const ExpertsArgs& of_device, const ExpertsArgs& of_host,
                     float* hidden, float* out) {
  const auto run =
      [&]<WeightFormat kFormat>(std::integral_constant<WeightFormat, kFormat>) {
        if (!TakesAlike<kFormat>(of_host)) return false;
        const ExpertsStep first{
            .args = of_device, .groups = {}, .in = of_device.x, .out = hidden};
        const ExpertsStep last{
            .args = of_device, .groups = {}, .in = hidden, .out = out};
        if (of_device.tokens == 1) {
          if (kFormat == kEvenFormat && TakesEven(of_host)) {
            LaunchEven(first);
          } else {
            LaunchAlike<kFormat, true, 1>(first);
          }
          LaunchAlike<kFormat, false, 1>(last);
        } else {
          LaunchAlike<kFormat, true, kMostRowSlots>(first);
          LaunchAlike<kFormat, false, kMostRowSlots>(last);
        }
        return true;
      };
  return run(std::integral_constant<WeightFormat, WeightFormat::kFp4Row32>()) ||
         run(std::integral_constant<WeightFormat, WeightFormat::kFp8Tile32>());
}

}  // namespace ecphory::cuda
