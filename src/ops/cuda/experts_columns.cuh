// The products of experts that are all alike for some tens of tokens
// (ops/cuda/column_products.cuh): the parts of up to 16 slots of an expert are
// the columns, so that its weights are read once. Each block groups the slots
// for itself.
#pragma once

#include <algorithm>

#include "ops/cuda/column_products.cuh"
#include "ops/cuda/experts_alike.cuh"
#include "ops/cuda/experts_many.cuh"
#include "ops/cuda/matmul_side.cuh"

namespace ecphory::cuda {

inline constexpr int kColumnSlots = kMostColumns / 2;  // at a time

// Rows of a block: of w1 and w3 each, or of w2.
template <bool kHidden>
inline constexpr size_t kColumnBlockRows = kColumnRows / (kHidden ? 2 : 1);

// Slots first .. first + some of `list`.
template <WeightFormat kFormat, bool kHidden, int kTiles>
__device__ void ColumnsOfSlots(const ExpertsTiles& step, const Expert& e,
                               const int32_t* list, int some, uint8_t* memory,
                               uint32_t* columns) {
  using F = Fragment<kFormat>;
  static_assert(F::kColumns == 2);
  const ExpertsArgs& a = step.args;
  const size_t rows = kHidden ? a.inner : a.dim;
  const auto input_of = [&](int slot) {
    return static_cast<uint32_t>(kHidden ? slot / static_cast<int>(a.topk)
                                         : slot);
  };
  if (threadIdx.x < 8 * kTiles) {
    const int n = static_cast<int>(threadIdx.x);
    columns[n] = 2 * input_of(list[min(n / 2, some - 1)]) + n % 2;
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
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    const float2 first = AddParts<F::kColumns>(sums[0][j], t);
    const float2 second = AddParts<F::kColumns>(sums[1][j], t);
    if (4 * j + t >= some) continue;
    const int slot = list[4 * j + t];
    const float scale = F::kPower * step.in.scales[input_of(slot)];
    float* const out = step.out + slot * rows;
    const auto store = [&](size_t row, float value, float up) {
      if (row >= rows) return;
      out[row] = kHidden ? Swiglu(a, value * scale, up * scale, a.weights[slot])
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

// Block (rows, expert, every gridDim.z-th 16 slots), or, by_slot, (rows, slot
// that stands for its expert, ..).
template <WeightFormat kFormat, bool kHidden>
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
  for (int first = static_cast<int>(blockIdx.z) * kColumnSlots; first < count;
       first += static_cast<int>(gridDim.z) * kColumnSlots) {
    const int some = min(kColumnSlots, count - first);
    const auto multiply = [&]<int kTiles>(std::integral_constant<int, kTiles>) {
      ColumnsOfSlots<kFormat, kHidden, kTiles>(step, e, list + first, some,
                                               memory, columns);
    };
    if (some <= 4) {
      multiply(std::integral_constant<int, 1>());
    } else if (some <= 8) {
      multiply(std::integral_constant<int, 2>());
    } else {
      multiply(std::integral_constant<int, 4>());
    }
    __syncthreads();  // all have left the columns and the stages
  }
}

template <WeightFormat kFormat, bool kHidden>
void LaunchColumns(ExpertsTiles step, const float* in) {
  constexpr auto kKernel = ColumnsKernel<kFormat, kHidden>;
  constexpr size_t kMemory = ColumnShape<kFormat>::kMemory;
  const ExpertsArgs& a = step.args;
  const size_t slots = a.tokens * a.topk;
  const size_t inputs = kHidden ? a.tokens : slots;
  // Both parts, whatever the inputs are rounded to.
  if (!PlanTiles(step, inputs, kHidden ? a.dim : a.inner, 2)) return;  // noted
  LaunchOverlapped(SplitInputsKernel<kHidden>,
                   dim3(static_cast<unsigned>(inputs)), kSplitThreads, 0,
                   "experts: split", step, in);
  AllowSharedMemory(kKernel, kMemory, "experts");
  LaunchOverlapped(
      kKernel,
      dim3(Blocks(kHidden ? a.inner : a.dim, kColumnBlockRows<kHidden>),
           static_cast<unsigned>(std::min(slots, a.n_experts)),
           Blocks(slots, a.n_experts * kColumnSlots)),
      kColumnThreads, kMemory, "experts", step, slots < a.n_experts);
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
        LaunchColumns<kFormat, true>(
            {.args = of_device, .groups = {}, .in = {}, .out = hidden},
            of_device.x);
        LaunchColumns<kFormat, false>(
            {.args = of_device, .groups = {}, .in = {}, .out = out}, hidden);
        return true;
      };
  return run(std::integral_constant<WeightFormat, WeightFormat::kFp4Row32>()) ||
         run(std::integral_constant<WeightFormat, WeightFormat::kFp8Tile32>());
}

// Hidden vectors of one expert that every token has.
__global__ void DenseHiddenKernel(ExpertsArgs a, const float* gate,
                                  const float* up, float* hidden) {
  LetNextStart();
  WaitForEarlier();
  const size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (i >= a.tokens * a.inner) return;
  hidden[i] = Swiglu(a, gate[i], up[i], a.weights[i / a.inner]);
}

// Both steps as products of all tokens, where the only expert is every token's
// only choice. The outputs are not yet rounded.
inline bool RunDense(const ExpertsArgs& of_device, const ExpertsArgs& of_host,
                     float* hidden, float* out) {
  const ExpertsArgs& a = of_device;
  if (a.n_experts != 1 || a.topk != 1) return false;
  const Expert& e = of_host.experts[0];
  struct Gates;
  const auto product = [&](const Matrix& m, const float* x, float* y) {
    return TileArgs{m, x, y, a.tokens, m.cols, m.rows};
  };
  TileArgs first[2] = {product(e.w1, a.x, nullptr),
                       product(e.w3, a.x, nullptr)};
  const TileArgs last = product(e.w2, hidden, out);
  if (!CanSide(first[0]) || !CanSide(first[1]) || !CanSide(last) ||
      e.w1.format != e.w3.format) {
    return false;
  }
  const size_t all = a.tokens * a.inner;
  float* const gates = Scratch<Gates>(2 * all);
  if (gates == nullptr) return true;  // noted
  first[0].y = gates, first[1].y = gates + all;
  RunSide(first);
  LaunchOverlapped(DenseHiddenKernel, dim3(Blocks(all, 256)), 256, 0,
                   "experts: hidden", a, gates, gates + all, hidden);
  RunSide({&last, 1});
  return true;
}

}  // namespace ecphory::cuda
