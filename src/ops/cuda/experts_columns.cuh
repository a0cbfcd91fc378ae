// The products of experts that are all alike for some tens of tokens
// (ops/cuda/column_products.cuh): the parts of up to 16 slots of an expert, or
// the one part of up to 32 slots of bf16 values, are the columns, so that its
// weights are read once. Each block groups the slots for itself.
#pragma once

#include <algorithm>

#include "ops/cuda/column_products.cuh"
#include "ops/cuda/experts_alike.cuh"
#include "ops/cuda/experts_many.cuh"
#include "ops/cuda/matmul_side.cuh"

namespace ecphory::cuda {

// Slots at a time, of kParts columns each: 2, or 1 where inputs are bf16
// values, of which a second part of fp16 would hold nothing.
template <int kParts>
inline constexpr int kColumnSlots = kMostColumns / kParts;

// Rows of a block: of w1 and w3 each, or of w2.
template <bool kHidden>
inline constexpr size_t kColumnBlockRows = kColumnRows / (kHidden ? 2 : 1);

// Slots first .. first + some of `list`.
template <WeightFormat kFormat, bool kHidden, int kParts, int kTiles>
__device__ void ColumnsOfSlots(const ExpertsTiles& step, const Expert& e,
                               const int32_t* list, int some, uint8_t* memory,
                               uint32_t* columns) {
  using F = Fragment<kFormat>;
  static_assert(F::kColumns == 2 && (kParts == 1 || kParts == 2));
  const ExpertsArgs& a = step.args;
  const size_t rows = kHidden ? a.inner : a.dim;
  const auto input_of = [&](int slot) {
    return static_cast<uint32_t>(kHidden ? slot / static_cast<int>(a.topk)
                                         : slot);
  };
  if (threadIdx.x < 8 * kTiles) {
    const int n = static_cast<int>(threadIdx.x);
    columns[n] =
        kParts * input_of(list[min(n / kParts, some - 1)]) + n % kParts;
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x / 32);
  const size_t row0 =
      blockIdx.x * kColumnBlockRows<kHidden> + warp * (kHidden ? 16 : 32);
  const ColumnRows of{{kHidden ? &e.w1 : &e.w2, kHidden ? &e.w3 : &e.w2},
                      {row0, kHidden ? row0 : row0 + 16}};
  float sums[2][kTiles][4];
  ColumnProducts<kFormat, kTiles>(of, step.in, columns, memory, sums);
  const int g = static_cast<int>(threadIdx.x % 32) / 4;
  const int t = static_cast<int>(threadIdx.x % 4);
  // Lane 4g + t has columns 2t and 2t + 1 of a tile: the parts of a slot, or
  // two slots.
  constexpr int kOfLane = 2 / kParts;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      const auto rows_of = [&](const float(&c)[4]) {
        return kParts == 1 ? make_float2(c[k], c[2 + k])
                           : AddParts<F::kColumns>(c, t);
      };
      const float2 first = rows_of(sums[0][j]), second = rows_of(sums[1][j]);
      const int i = (4 * j + t) * kOfLane + k;
      if (i >= some) continue;
      const int slot = list[i];
      const float scale = F::kPower * step.in.scales[input_of(slot)];
      float* const out = step.out + slot * rows;
      const auto store = [&](size_t row, float value, float up) {
        if (row >= rows) return;
        out[row] = kHidden
                       ? Swiglu(a, value * scale, up * scale, a.weights[slot])
                       : MaybeRound(value * scale, a.round_bf16);
      };
      store(row0 + g, first.x, second.x);
      store(row0 + g + 8, first.y, second.y);
      if constexpr (!kHidden) {
        store(row0 + g + 16, second.x, 0);
        store(row0 + g + 24, second.y, 0);
      }
    }
  }
}

// Block (rows, expert, every gridDim.z-th kColumnSlots slots), or, by_slot,
// (rows, slot that stands for its expert, ..).
template <WeightFormat kFormat, bool kHidden, int kParts>
__global__ void __launch_bounds__(kColumnThreads, 2)
    ColumnsKernel(const __grid_constant__ ExpertsTiles step, bool by_slot) {
  extern __shared__ uint4 column_memory[];
  __shared__ int32_t list[kFewSlots];
  __shared__ uint32_t columns[kMostColumns];
  const ExpertsArgs& a = step.args;
  LetNextStart();
  FetchDescriptions(a);
  WaitForEarlier();
  uint8_t* const memory = reinterpret_cast<uint8_t*>(column_memory);
  const int y = static_cast<int>(blockIdx.y);
  const int expert = by_slot ? a.ids[y] : y;
  const int count = SlotsLike(a.ids, static_cast<int>(a.tokens * a.topk),
                              expert, by_slot ? y : 0, list);
  const Expert& e = a.experts[expert];
  constexpr int kSlots = kColumnSlots<kParts>;
  for (int first = static_cast<int>(blockIdx.z) * kSlots; first < count;
       first += static_cast<int>(gridDim.z) * kSlots) {
    const int some = min(kSlots, count - first);
    const auto multiply = [&]<int kTiles>(std::integral_constant<int, kTiles>) {
      ColumnsOfSlots<kFormat, kHidden, kParts, kTiles>(step, e, list + first,
                                                       some, memory, columns);
    };
    if (some * kParts <= 8) {
      multiply(std::integral_constant<int, 1>());
    } else if (some * kParts <= 16) {
      multiply(std::integral_constant<int, 2>());
    } else {
      multiply(std::integral_constant<int, 4>());
    }
    __syncthreads();  // all have left the columns and the stages
  }
}

template <WeightFormat kFormat, bool kHidden, int kParts>
void LaunchColumns(ExpertsTiles step, const float* in) {
  constexpr auto kKernel = ColumnsKernel<kFormat, kHidden, kParts>;
  constexpr size_t kMemory = ColumnShape<kFormat>::kMemory;
  const ExpertsArgs& a = step.args;
  const size_t slots = a.tokens * a.topk;
  const size_t inputs = kHidden ? a.tokens : slots;
  if (!PlanTiles(step, inputs, kHidden ? a.dim : a.inner, kParts)) {
    return;  // noted
  }
  LaunchOverlapped(SplitInputsKernel<kHidden>,
                   dim3(static_cast<unsigned>(inputs)), kSplitThreads, 0,
                   "experts: split", step, in);
  AllowSharedMemory(kKernel, kMemory, "experts");
  LaunchOverlapped(
      kKernel,
      dim3(Blocks(kHidden ? a.inner : a.dim, kColumnBlockRows<kHidden>),
           static_cast<unsigned>(std::min(slots, a.n_experts)),
           Blocks(slots, a.n_experts * kColumnSlots<kParts>)),
      kColumnThreads, kMemory, "experts", step, slots < a.n_experts);
}

template <WeightFormat kFormat, int kParts>
void RunColumns(const ExpertsArgs& args, float* hidden, float* out) {
  LaunchColumns<kFormat, true, kParts>(
      {.args = args, .groups = {}, .in = {}, .out = hidden}, args.x);
  LaunchColumns<kFormat, false, kParts>(
      {.args = args, .groups = {}, .in = {}, .out = out}, hidden);
}

// Both steps, where experts are alike.
inline bool RunColumns(const ExpertsArgs& of_device, const ExpertsArgs& of_host,
                       float* hidden, float* out) {
  const auto run =
      [&]<WeightFormat kFormat>(std::integral_constant<WeightFormat, kFormat>) {
        if (!AreAlike<kFormat>(of_host) ||
            !FitsSharedMemory(ColumnShape<kFormat>::kMemory + 4096)) {
          return false;
        }
        IsBf16(of_host.input) ? RunColumns<kFormat, 1>(of_device, hidden, out)
                              : RunColumns<kFormat, 2>(of_device, hidden, out);
        return true;
      };
  return run(std::integral_constant<WeightFormat, WeightFormat::kFp4Row32>()) ||
         run(std::integral_constant<WeightFormat, WeightFormat::kFp8Tile32>());
}

}  // namespace ecphory::cuda
