// The two warps of a split of many tokens that do not multiply: one fetches and
// adds, one makes factors and coefficients.
//
// The first must keep up with those that multiply, and what it does waits for
// memory or for an instruction's issue: it asks for a box of all of a stage and
// one of all of fn, and reads all sums before it sends any.
#pragma once

#include "ops/cuda/hc_split_many_memory.cuh"
#include "ops/cuda/overlap.cuh"

#if __CUDA_ARCH__ >= 900

namespace ecphory::cuda::four {

// --- The warp that fetches and adds -----------------------------------------

// By one lane.
template <typename Fn, typename W>
__device__ void FetchFn(const HcSplitArgs& a, const CUtensorMap& fn,
                        const Place& place, const Memory<W>& memory) {
  uint64_t* const barrier = &memory.shared->fn;
  ArriveExpecting(barrier, FnBytes(a.dim, sizeof(Fn)));
  CopyBox(memory.Box(W::kEarly), fn,
          place.rank * place.channels * sizeof(Fn) / kBoxBytes, 0, barrier);
}

// Four sums of a token over the block's warps.
__device__ inline float4 BlockSums(
    const Place& place, const float (&part)[kMaxWarps][kTokens][kSums],
    unsigned token, unsigned quad) {
  float4 sum[2] = {};  // of even and of odd pairs of slabs
#pragma unroll
  for (unsigned w = 0; w < kMaxWarps; ++w) {
    if (w >= place.warps) continue;
    const float4 of_warp = Load(&part[w][token][4 * quad]);
    sum[w % 2] = Plus(sum[w % 2], of_warp);
  }
  return Plus(sum[0], sum[1]);
}

// The first 16 lanes have the last sums of a token each; the others send the
// squares of all to a block each.
template <typename W>
__device__ void SendSquares(const Place& place, float4 sums, unsigned slot,
                            ManyShared<W>& shared) {
  const unsigned lane = threadIdx.x % kWarp, to = lane % kCluster;
  float x2[kTokens];
#pragma unroll
  for (unsigned t = 0; t < kTokens; ++t) {
    x2[t] = __shfl_sync(0xffffffffu, sums.y, t);
  }
  if (lane < kCluster) return;
  const uint32_t there = PlaceIn(to, shared.squares[slot][place.rank]);
  const uint32_t barrier = PlaceIn(to, &shared.arrived[slot]);
#pragma unroll
  for (unsigned t = 0; t < kTokens; t += 4) {
    SendTo(there + t * sizeof(float), {x2[t], x2[t + 1], x2[t + 2], x2[t + 3]},
           barrier);
  }
}

// Two sums of four a token at a time: all of a token to the block that makes
// its coefficients. All are read before any is sent, or each reading would wait
// for a sending.
template <typename W>
__device__ void SendSums(const Place& place, unsigned group,
                         ManyShared<W>& shared) {
  constexpr unsigned kQuads = kSums / 4, kTurns = (kQuads + 1) / 2;
  static_assert(kQuads % 2 == 1 && kCollapsed == 4 * (kQuads - 1) + 1);
  const unsigned slot = group % W::kSlots, part = group % W::kParts;
  const unsigned token = threadIdx.x % kTokens;
  const unsigned half = threadIdx.x % kWarp / kTokens;
  float4 sums[kTurns];
#pragma unroll
  for (unsigned i = 0; i < kTurns; ++i) {
    sums[i] = BlockSums(place, shared.part[part], token,
                        min(2 * i + half, kQuads - 1));
  }
  ArriveAsOne(&shared.added[part]);
  const uint32_t there = PlaceIn(token, shared.sums[slot][place.rank]);
  const uint32_t barrier = PlaceIn(token, &shared.arrived[slot]);
#pragma unroll
  for (unsigned i = 0; i < kTurns; ++i) {
    const unsigned quad = 2 * i + half;
    if (quad >= kQuads) continue;
    SendTo(there + 4 * quad * sizeof(float), sums[i], barrier);
  }
  __syncwarp();
  SendSquares(place, sums[kTurns - 1], slot, shared);
}

// The first column of stage `number` of the cluster's.
template <typename W>
__device__ unsigned ColumnOf(const HcSplitArgs& a, const Place& place,
                             unsigned number) {
  return (place.rank * W::kGroupStages + number % W::kGroupStages) *
         StageColumns<W>(a.dim);
}

// Stage `number` by one lane. Rows past the last token are zeros or another
// cluster's.
template <typename W>
__device__ void Fill(const HcSplitArgs& a, const CUtensorMap& streams,
                     const Place& place, unsigned number,
                     const Memory<W>& memory) {
  ManyShared<W>& shared = *memory.shared;
  const unsigned stage = number % kStages;
  uint64_t* const full = &shared.full[stage];
  const size_t first = place.FirstOf(number / W::kGroupStages);
  // Of the coefficients, by stream.
  const unsigned bytes = place.TokensOf(first) * kStreams * sizeof(float);
  ArriveExpecting(full, static_cast<unsigned>(memory.stage_bytes) +
                            (W::kExpand ? 2 + kStreams : 1) * bytes);
  CopyBox(memory.Box(stage), streams, ColumnOf<W>(a, place, number),
          static_cast<unsigned>(first), full);
  CopyBulk(shared.pre[stage], a.collapse_pre + first * kStreams, bytes, full);
  if constexpr (W::kExpand) {
    CopyBulk(shared.owed.post[stage], a.last_post + first * kStreams, bytes,
             full);
    CopyBulk(shared.owed.comb[stage], a.last_comb + first * kStreams * kStreams,
             kStreams * bytes, full);
  }
}

// y of a group, by one warp.
template <typename W>
__device__ void FetchY(const HcSplitArgs& a, const Place& place, unsigned group,
                       ManyShared<W>& shared) {
  const size_t first = place.FirstOf(group);
  const unsigned tokens = place.TokensOf(first), lane = threadIdx.x % kWarp;
  const unsigned bytes = place.channels * sizeof(float);
  if (lane == 0) ArriveExpecting(&shared.owed.there, tokens * bytes);
  __syncwarp();
  if (lane >= tokens) return;
  CopyBulk(shared.owed.y[lane],
           a.y + (first + lane) * a.dim + place.rank * place.channels, bytes,
           &shared.owed.there);
}

// The expanded streams of stage `number` to device memory, by one warp, when
// they are. The stage may be filled when its first lane's copies have been
// read.
template <typename W>
__device__ void WriteStreams(const HcSplitArgs& a, const CUtensorMap& streams,
                             const Place& place, unsigned number,
                             const Memory<W>& memory) {
  const Turn<kStages> stage(number);
  WaitForPhase(&memory.shared->owed.expanded[stage.at], stage.parity);
  if (threadIdx.x % kWarp != 0) return;
  WriteBox(streams, ColumnOf<W>(a, place, number),
           static_cast<unsigned>(place.FirstOf(number / W::kGroupStages)),
           memory.Box(stage.at));
  CommitWrites();
}

template <typename W>
__device__ void Add(const HcSplitArgs& a, const CUtensorMap& streams,
                    const Place& place, const Memory<W>& memory) {
  constexpr unsigned kBehind = W::kDelay + 1;
  ManyShared<W>& shared = *memory.shared;
  const bool first_lane = threadIdx.x % kWarp == 0;
  const unsigned stages = place.groups * W::kGroupStages;
  unsigned filled = 0;
  // The next stage, when all have left what was there.
  const auto fill = [&] {
    if (filled == stages) return;
    if (filled >= kStages) {
      const Turn<kStages> stage(filled - kStages);
      WaitForPhase(&shared.left[stage.at], stage.parity);
    }
    if (first_lane) {
      if (W::kExpand) WaitUntilWritesRead();
      Fill(a, streams, place, filled, memory);
    }
    __syncwarp();
    ++filled;
  };
  if constexpr (W::kExpand) FetchY(a, place, 0, shared);
  for (unsigned i = 0; i < kStages; ++i) {
    if (i == W::kEarly) WaitForPhase(&shared.fn_taken, 0);
    fill();
  }
  // Where sums are sent there are barriers.
  cooperative_groups::this_cluster().barrier_wait();
  for (unsigned group = 0; group < place.groups; ++group) {
    if constexpr (W::kExpand) {
      for (unsigned i = 0; i < W::kGroupStages; ++i) {
        WriteStreams(a, streams, place, group * W::kGroupStages + i, memory);
      }
      if (group + 1 < place.groups) FetchY(a, place, group + 1, shared);
    }
    for (unsigned i = 0; i < W::kGroupStages; ++i) fill();
    const Turn<W::kParts> part(group);
    WaitForPhase(&shared.summed[part.at], part.parity);
    if (group >= kBehind) {
      const Turn<W::kSlots> before(group - kBehind);
      WaitForPhase(&shared.taken[before.at], before.parity);
    }
    if (first_lane) {
      constexpr unsigned kBytes = kCluster * (kSums + kTokens) * sizeof(float);
      ArriveExpecting(&shared.arrived[group % W::kSlots], kBytes);
    }
    SendSums(place, group, shared);
  }
  if (W::kExpand && first_lane) WaitForWrites();
}

// --- The warp that serves ---------------------------------------------------

// The norm's, a lane a token.
template <typename W>
__device__ void MakeFactors(const HcSplitArgs& a, unsigned slot,
                            ManyShared<W>& shared) {
  const unsigned token = threadIdx.x % kWarp;
  if (token < kTokens) {
    float x2 = 0;
#pragma unroll
    for (unsigned r = 0; r < kCluster; ++r) {
      x2 += shared.squares[slot][r][token];
    }
    shared.factor[slot][token] =
        1.0f / sqrtf(x2 / static_cast<float>(a.dim) + a.norm_eps);
  }
  ArriveAsOne(&shared.ready[slot]);
}

// Matrices of a batch of groups that ends with `group`, a lane each.
template <typename W>
__device__ void BalanceBatch(const HcSplitArgs& a, const Place& place,
                             unsigned group, ManyShared<W>& shared) {
  const unsigned lane = threadIdx.x % kWarp;
  const size_t t = place.FirstOf(group - group % kBatch + lane) + place.rank;
  if (lane > group % kBatch || t >= place.end) return;
  Sinkhorn(shared.comb[lane], a.sinkhorn_iters, a.hc_eps);
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    Store(a.comb + (t * kStreams + j) * kStreams,
          Load(&shared.comb[lane][j * kStreams]));
  }
}

template <typename W>
__device__ void MakeCoefficients(const HcSplitArgs& a, const Place& place,
                                 unsigned group, const Affine& affine,
                                 ManyShared<W>& shared) {
  const unsigned lane = threadIdx.x % kWarp, slot = group % W::kSlots;
  if (lane < kSums) {
    float sum = 0;
#pragma unroll
    for (unsigned r = 0; r < kCluster; ++r) sum += shared.sums[slot][r][lane];
    shared.m[lane] = sum;
  }
  ArriveAsOne(&shared.taken[slot]);
  const size_t t = place.FirstOf(group) + place.rank;
  if (t < place.end && lane < kOutputs) {
    StoreOutput(a, t, shared.m, lane, affine, shared.own_pre,
                shared.comb[group % kBatch]);
  }
  __syncwarp();
  if (group % kBatch == kBatch - 1 || group + 1 == place.groups) {
    BalanceBatch(a, place, group, shared);
  }
  __syncwarp();
}

// To the end of all that other blocks send here.
template <typename W>
__device__ void Serve(const HcSplitArgs& a, const Place& place,
                      ManyShared<W>& shared) {
  const Affine affine(a, threadIdx.x % kWarp);
  for (unsigned group = 0; group < place.groups; ++group) {
    const Turn<W::kSlots> turn(group);
    WaitForCluster(&shared.arrived[turn.at], turn.parity);
    MakeFactors(a, turn.at, shared);
    MakeCoefficients(a, place, group, affine, shared);
  }
}

}  // namespace ecphory::cuda::four

#endif
