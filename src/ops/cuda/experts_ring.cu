// Weights come through a ring of stages in shared memory, and inputs stay in
// registers. Blocks, one a multiprocessor, have shares of the rows of all
// experts in use that take equally long, and one of their warps asks for stage
// after stage of them, whole rows, by bulk copies: the ring goes on from an
// expert to the next. Others multiply: each has a share of the columns, of
// which it holds an expert's inputs as operands of tensor-core products, so
// that a stage is read and decoded once for up to 16 columns of parts of
// inputs. The shares of a sum are added in order by two more, tile by tile in
// turn.
#include "ops/cuda/experts_ring.cuh"

#include <algorithm>
#include <type_traits>

#include "ops/cuda/experts_many.cuh"
#include "ops/cuda/experts_ring_products.cuh"
#include "ops/cuda/shared_limit.cuh"

namespace ecphory::cuda {

namespace {

// The matrices of a step in the order in which stages of their rows follow.
template <bool kHidden>
constexpr int kMatrices = kHidden ? 2 : 1;
template <bool kHidden>
__device__ const Matrix& MatrixOf(const Expert& e, int i) {
  return !kHidden ? e.w2 : i == 0 ? e.w1 : e.w3;
}

// Asks for all stages of the block; by one warp.
template <bool kHidden>
__device__ void FetchStages(const RingStep& step, const RingWork& work,
                            uint8_t* ring, const RingBarriers& barriers) {
  const RingPlan& plan = step.plan;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const uint32_t row_bytes = static_cast<uint32_t>(plan.blocks) * 16;
  RingPlace stage;
  RingWalk walk(work, plan);
  const uint8_t* codes[kMatrices<kHidden>];
  const uint8_t* scales[kMatrices<kHidden>];
  while (walk.Next()) {
    if (walk.entered) {
      const Expert& e = step.of.args.experts[walk.Pass().expert];
#pragma unroll
      for (int i = 0; i < kMatrices<kHidden>; ++i) {
        const Matrix& m = MatrixOf<kHidden>(e, i);
        codes[i] = m.data + m.first_row * row_bytes;
        scales[i] = m.scales + m.first_row * plan.blocks;
      }
    }
#pragma unroll
    for (int i = 0; i < kMatrices<kHidden>; ++i) {
      const SharedPlace full = &barriers.stage_full[stage.number];
      WaitForPlace(barriers.stage_empty, stage, true);
      if (lane == 0) {
        ArriveExpecting(full, plan.Rows() * row_bytes + plan.ScaleBytes());
      }
      __syncwarp();
      uint8_t* const to = ring + stage.number * plan.stage_bytes;
      for (int row = lane; row < plan.Rows(); row += 32) {
        CopyBulk(to + row * plan.pitch,
                 codes[i] + (walk.row0 + row) * row_bytes, row_bytes, full);
      }
      if (lane == 31) {
        CopyBulk(to + plan.CodeBytes(), scales[i] + walk.row0 * plan.blocks,
                 plan.ScaleBytes(), full);
      }
      stage.Next(plan.stages);
    }
  }
}

// Where a multiplying warp is.
struct RingPosition {
  RingPlace stage, sums;
};

// All tiles of the walk's pass, of which the first has been entered; then the
// first of another has, or this returns false.
template <bool kHidden, int kParts, int kTiles>
__device__ bool MultiplyPass(const RingStep& step, RingWalk& walk,
                             const uint8_t* ring, float4* sums,
                             const RingBarriers& barriers, RingPosition& at) {
  const RingPlan& plan = step.plan;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int row_tile = warp / plan.Shares();
  // Blocks past a warp's share are multiplied by zeros.
  int first = warp % plan.Shares() * plan.share;
  const int have = max(0, min(plan.share, plan.blocks - first));
  if (have == 0) first = 0;
  constexpr int kBlocks = kRingHeld<kHidden>;
  uint4 held[kBlocks][kTiles];
  HoldInputs<kHidden, kParts, kTiles, kBlocks>(step, walk.Pass(), first, have,
                                               held);
  // In a stage, the lane's row of the matrices that it loads, and of scales.
  const int codes_at =
      (16 * row_tile + lane % 16) * plan.pitch + (first + lane / 16) * 16;
  const int scales_at =
      plan.CodeBytes() + (16 * row_tile + lane / 4) * plan.blocks + first;
  bool more = true;
  do {
#pragma unroll 1
    for (int i = 0; i < kMatrices<kHidden>; ++i) {
      const uint8_t* const stage = ring + at.stage.number * plan.stage_bytes;
      float of[kTiles][4];
      WaitForPlace(barriers.stage_full, at.stage);
      MultiplyStage<kTiles, kBlocks>(held, SharedAddress(stage) + codes_at,
                                     stage + scales_at, 8 * plan.blocks, of);
      ArriveAsOne(barriers.stage_empty + at.stage.number);
      at.stage.Next(plan.stages);
      WaitForPlace(barriers.sums_empty, at.sums, true);
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        sums[at.sums.number * kRingSums + (warp * kMostRingTiles + j) * 32 +
             lane] = make_float4(of[j][0], of[j][1], of[j][2], of[j][3]);
      }
      ArriveAsOne(barriers.sums_full + at.sums.number);
      at.sums.Next(kRingSumBuffers);
    }
    more = walk.Next();
  } while (more && !walk.entered);
  return more;
}

// Looks at the scales of every stage; by one warp.
template <bool kHidden>
__device__ void CheckStages(const RingStep& step, const RingWork& work,
                            const uint8_t* ring, RingBarriers& barriers) {
  const RingPlan& plan = step.plan;
  RingPosition at;
  RingWalk walk(work, plan);
  while (walk.Next()) {
    for (int i = 0; i < kMatrices<kHidden>; ++i) {
      WaitForPlace(barriers.stage_full, at.stage);
      const bool ordinary = AreOrdinary(
          ring + at.stage.number * plan.stage_bytes + plan.CodeBytes(),
          plan.ScaleBytes());
      ArriveAsOne(barriers.stage_empty + at.stage.number);
      at.stage.Next(plan.stages);
      WaitForPlace(barriers.sums_empty, at.sums, true);
      if (threadIdx.x % 32 == 0) barriers.ordinary[at.sums.number] = ordinary;
      ArriveAsOne(barriers.sums_full + at.sums.number);
      at.sums.Next(kRingSumBuffers);
    }
  }
}

// Adds up what the others have multiplied, and stores it; by one warp, which
// takes every kRingFinishWarps'th tile of rows from the turn'th on.
template <bool kHidden, int kParts>
struct RingFinish {
  static constexpr int kSlots = 8 / kParts;   // of an operand tile
  static constexpr int kOfLane = 2 / kParts;  // slots, of its two columns

  __device__ size_t InputOf(int32_t slot) const {
    return static_cast<size_t>(
        kHidden ? slot / static_cast<unsigned>(step.of.args.topk) : slot);
  }
  // What does not change within a pass.
  __device__ void Enter(const RingPass& pass) {
    const ExpertsArgs& a = step.of.args;
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int j = 0; j < kMostRingTiles; ++j) {
#pragma unroll
      for (int k = 0; k < kOfLane; ++k) {
        const int n = kSlots * j + kOfLane * (lane % 4) + k;
        at[j][k] = -1, scale[j][k] = 0;
        if (n >= pass.count) continue;
        const int slot = pass.slots[n];
        at[j][k] =
            slot * static_cast<int>(kHidden ? a.inner : a.dim) + lane / 4;
        scale[j][k] = Fragment<WeightFormat::kFp4Row32>::kPower *
                      step.of.in.scales[InputOf(pass.slots[n])];
        if (kHidden) weight[j][k] = a.weights[slot];
      }
    }
  }
  // The sums of 16 rows and operand tile j: the lane's shares of the
  // multiplying warps begin at `from`.
  __device__ float4 Add(const float4* from, int j) const {
    float4 sum = {};
#pragma unroll
    for (int warp = 0; warp < kRingMultiplyWarps; ++warp) {
      if (warp >= step.plan.Shares()) break;
      const float4 more = from[warp * kMostRingTiles * 32];
      sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    const float first = scale[j][0], last = scale[j][kOfLane - 1];
    return make_float4(sum.x * first, sum.y * last, sum.z * first,
                       sum.w * last);
  }
  // The same weight by weight.
  __device__ float4 AddByValue(const RingPass& pass, int i, size_t row0,
                               int j) const {
    const ExpertsArgs& a = step.of.args;
    return SumsByValue<kParts>(
        MatrixOf<kHidden>(a.experts[pass.expert], i), row0,
        [&](int n) {
          return step.from + InputOf(pass.slots[kSlots * j + n]) *
                                 (kHidden ? a.dim : a.inner);
        },
        min(kSlots, pass.count - kSlots * j));
  }
  // Rows row0 + g and row0 + g + 8 of the lane's slots of operand tile j, by w1
  // and w3, or both by w2.
  __device__ void Store(size_t row0, int j, const float4& gate,
                        const float4& up) const {
    const ExpertsArgs& a = step.of.args;
    const auto of_slot = [&](const float4& v, int k) {
      return kParts == 2 ? make_float2(v.x + v.y, v.z + v.w)
             : k == 0    ? make_float2(v.x, v.z)
                         : make_float2(v.y, v.w);
    };
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      if (at[j][k] < 0) continue;
      const float2 one = of_slot(gate, k), two = of_slot(up, k);
      const auto value = [&](float x, float y) {
        return kHidden ? Swiglu(a, x, y, weight[j][k])
                       : MaybeRound(y, a.round_bf16);
      };
      float* const out = step.of.out + at[j][k] + row0;
      out[0] = value(one.x, two.x);
      out[8] = value(one.y, two.y);
    }
  }

  __device__ void Run(const RingWork& work, const float4* sums,
                      const RingBarriers& barriers) {
    constexpr int kAll = kMatrices<kHidden>;
    const RingPlan& plan = step.plan;
    const int lane = static_cast<int>(threadIdx.x % 32);
    RingPlace buffer;
    RingWalk walk(work, plan);
    int entered = -1;
    for (int tile = 0; walk.Next(); ++tile) {
      RingPlace buffers[kAll];
#pragma unroll
      for (int i = 0; i < kAll; ++i) {
        buffers[i] = buffer;
        buffer.Next(kRingSumBuffers);
      }
      if (tile % kRingFinishWarps != turn) continue;
      const RingPass& pass = walk.Pass();
      if (walk.pass != entered) Enter(pass), entered = walk.pass;
      bool ordinary[kAll];
#pragma unroll
      for (int i = 0; i < kAll; ++i) {
        WaitForPlace(barriers.sums_full, buffers[i]);
        ordinary[i] = barriers.ordinary[buffers[i].number];
      }
      float4 of[kMostRingRowTiles][kMostRingTiles][kAll];
      const auto for_each_tile = [&](const auto& body) {
#pragma unroll
        for (int row_tile = 0; row_tile < kMostRingRowTiles; ++row_tile) {
#pragma unroll
          for (int j = 0; j < kMostRingTiles; ++j) {
            if (row_tile < plan.row_tiles && pass.count > kSlots * j) {
              body(row_tile, j, of[row_tile][j]);
            }
          }
        }
      };
      for_each_tile([&](int row_tile, int j, float4(&sum)[kAll]) {
        const int first = row_tile * plan.Shares() * kMostRingTiles + j;
#pragma unroll
        for (int i = 0; i < kAll; ++i) {
          sum[i] =
              Add(sums + buffers[i].number * kRingSums + first * 32 + lane, j);
        }
      });
#pragma unroll
      for (int i = 0; i < kAll; ++i) {
        ArriveAsOne(barriers.sums_empty + buffers[i].number);
      }
      for_each_tile([&](int row_tile, int j, float4(&sum)[kAll]) {
        const size_t row0 = walk.row0 + 16 * row_tile;
#pragma unroll
        for (int i = 0; i < kAll; ++i) {
          if (!ordinary[i]) sum[i] = AddByValue(pass, i, row0, j);
        }
        Store(row0, j, sum[0], sum[kAll - 1]);
      });
    }
  }

  const RingStep& step;
  int turn;
  int at[kMostRingTiles][kOfLane];  // the lane's first value; -1: none
  float scale[kMostRingTiles][kOfLane], weight[kMostRingTiles][kOfLane];
};

// Parts of the step's inputs, a block each. When the step's blocks start the
// router has ended, so that they need not wait to know their experts and to ask
// for weights.
template <bool kHidden>
__global__ void __launch_bounds__(kSplitThreads)
    RingSplitKernel(const __grid_constant__ RingStep step) {
  const ExpertsArgs& a = step.of.args;
  if (kHidden) FetchDescriptions(a), WaitForEarlier();
  LetNextStart();
  if (!kHidden) WaitForEarlier();
  const size_t cols = kHidden ? a.dim : a.inner;
  SplitRow<WeightFormat::kFp4Row32>(step.from + blockIdx.x * cols,
                                    static_cast<int>(cols), blockIdx.x,
                                    step.of.in);
}

template <bool kHidden, int kParts>
__global__ void __launch_bounds__(kRingThreads, 1)
    RingKernel(const __grid_constant__ RingStep step) {
#ifdef ECPHORY_WGMMA
  extern __shared__ uint4 ring_memory[];
  __shared__ RingWork work;
  __shared__ RingBarriers barriers;
  const ExpertsArgs& a = step.of.args;
  if (threadIdx.x == 0) barriers.Init();
  LetNextStart();
  constexpr int kSlots = 8 / kParts;  // of a tile
  float4* const sums = reinterpret_cast<float4*>(ring_memory);
  uint8_t* const ring =
      reinterpret_cast<uint8_t*>(ring_memory) + kRingSumMemory;
  for (int i = static_cast<int>(threadIdx.x);
       i < step.plan.stages * (kRingStagePad / 4); i += kRingThreads) {
    const int stage = i / (kRingStagePad / 4), word = i % (kRingStagePad / 4);
    uint8_t* const end = ring + (stage + 1) * step.plan.stage_bytes;
    reinterpret_cast<uint32_t*>(end - kRingStagePad)[word] = 0;
  }
  ShareOutPasses<kHidden, kParts>(
      a, static_cast<int>((kHidden ? a.inner : a.dim) / step.plan.Rows()),
      work);
  const int warp = static_cast<int>(threadIdx.x / 32);
  if (warp >= kRingMultiplyWarps) {
    GiveRegisters<kRingOtherRegisters>();
    if (warp == kRingFetchWarp) {
      FetchStages<kHidden>(step, work, ring, barriers);
    } else if (warp == kRingCheckWarp) {
      CheckStages<kHidden>(step, work, ring, barriers);
    } else {
      WaitForEarlier();
      RingFinish<kHidden, kParts>{step, warp - kRingFinishWarp}.Run(work, sums,
                                                                    barriers);
    }
    return;
  }
  TakeRegisters<kRingMultiplyRegisters>();
  WaitForEarlier();
  RingWalk walk(work, step.plan);
  RingPosition at;
  for (bool more = walk.Next(); more;) {
    more = walk.Pass().count <= kSlots
               ? MultiplyPass<kHidden, kParts, 1>(step, walk, ring, sums,
                                                  barriers, at)
               : MultiplyPass<kHidden, kParts, 2>(step, walk, ring, sums,
                                                  barriers, at);
  }
#endif
}

// Whether a block can hold inputs of a step, and rows are whole stages.
template <bool kHidden>
bool TakesShape(size_t rows, size_t cols) {
  if (cols % 32 != 0) return false;
  const RingPlan plan = PlanRing<kHidden>(cols);
  return plan.share <= kRingHeld<kHidden> && plan.stages > 1 &&
         rows % static_cast<size_t>(plan.Rows()) == 0;
}

// Whether rows can be copied in bulk.
bool TakesRows(const Matrix& m) {
  const uintptr_t bits =
      reinterpret_cast<uintptr_t>(m.data) |
      reinterpret_cast<uintptr_t>(m.scales + m.first_row * (m.cols / 32));
  return m.format == WeightFormat::kFp4Row32 && bits % 16 == 0;
}

bool TakesRing(const ExpertsArgs& args) {
  const size_t slots = args.tokens * args.topk;
  return HasWgmmaCode() &&
         FitsSharedMemory(kRingSumMemory + kRingMemory + kRingPad +
                          sizeof(RingWork) + sizeof(RingBarriers)) &&
         slots <= kFewSlots && args.n_experts <= kMostRingExperts &&
         2 * slots / static_cast<size_t>(Multiprocessors()) + 2 <=
             kMostRingPasses &&
         reinterpret_cast<uintptr_t>(args.x) % 16 == 0 &&
         TakesShape<true>(args.inner, args.dim) &&
         TakesShape<false>(args.dim, args.inner) &&
         std::all_of(
             args.experts, args.experts + args.n_experts, [](const Expert& e) {
               return TakesRows(e.w1) && TakesRows(e.w3) && TakesRows(e.w2);
             });
}

template <bool kHidden, int kParts>
void Launch(const ExpertsArgs& args, const float* from, float* out) {
  constexpr auto kKernel = RingKernel<kHidden, kParts>;
  const size_t cols = kHidden ? args.dim : args.inner;
  const size_t inputs = kHidden ? args.tokens : args.tokens * args.topk;
  RingStep step{.of = {.args = args, .groups = {}, .in = {}, .out = out},
                .from = from,
                .plan = PlanRing<kHidden>(cols)};
  if (!PlanTiles(step.of, inputs, cols, kParts)) return;  // noted
  LaunchOverlapped(RingSplitKernel<kHidden>,
                   dim3(static_cast<unsigned>(inputs)), kSplitThreads, 0,
                   "experts: split", step);
  const size_t memory =
      kRingSumMemory + kRingPad +
      static_cast<size_t>(step.plan.stages) * step.plan.stage_bytes;
  AllowSharedMemory(kKernel, memory, "experts");
  LaunchOverlapped(kKernel, dim3(static_cast<unsigned>(Multiprocessors())),
                   kRingThreads, memory, "experts", step);
}

}  // namespace

bool RunRing(const ExpertsArgs& of_device, const ExpertsArgs& of_host,
             float* hidden, float* out) {
  if (!TakesRing(of_host)) return false;
  const auto run = [&]<int kParts>(std::integral_constant<int, kParts>) {
    Launch<true, kParts>(of_device, of_device.x, hidden);
    Launch<false, kParts>(of_device, hidden, out);
  };
  // Of bf16 values a second part of fp16 would hold nothing.
  IsBf16(of_host.input) ? run(std::integral_constant<int, 1>())
                        : run(std::integral_constant<int, 2>());
  return true;
}

}  // namespace ecphory::cuda
