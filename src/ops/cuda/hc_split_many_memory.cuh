// Where what splits of many tokens work on lies in shared memory, and who works
// on which part.
#pragma once

#include <cooperative_groups.h>

#include <algorithm>
#include <type_traits>

#include "ops/cuda/hc_split_four.cuh"
#include "ops/cuda/mbarrier.cuh"
#include "ops/cuda/tensor_map.cuh"

namespace ecphory::cuda::four {

inline constexpr unsigned kCluster = kWideParts;
static_assert(kCluster == kTokens);  // each makes a token's coefficients
inline constexpr unsigned kMaxWarps = 10, kServants = 2;
inline constexpr size_t kMaxManyDim = kMaxWarps * kPair * kCluster;
inline constexpr unsigned kStages = 3;
// Matrices that are balanced at a time, a lane each.
inline constexpr unsigned kBatch = kWarp;

// The ways in which the two files differ. kGroupStages: a group is so many
// stages, each has the channels of as many warps. kEarly: stages that are
// filled while fn comes. kDelay: x of a group is written while the one this
// much later is multiplied, by when the other blocks' squares have come.
// kParts: groups whose sums lie in a block, by warp.
template <typename T, bool expand, unsigned group_stages, unsigned early,
          unsigned delay, unsigned parts>
struct ManyWay {
  using Value = T;                         // of streams
  static constexpr bool kExpand = expand;  // whether one is owed
  static constexpr unsigned kGroupStages = group_stages, kEarly = early;
  static constexpr unsigned kDelay = delay, kParts = parts;
  // Groups whose sums may be under way between blocks. A block sends those of
  // a group when it has written x of the last but kDelay, for which all blocks
  // have sent theirs: none is more than kDelay + 1 groups behind another, and
  // its own x and coefficients no more than as many behind that.
  static constexpr unsigned kSlots = 2 * (kDelay + 1);
  // Rows of x end somewhat later, to have banks of their own.
  static constexpr unsigned kXPitch = kPair + 16 / sizeof(T);
};

// A stage is a box: columns of rows [stream, token] of 128 bytes.
inline constexpr unsigned kBox = kStreams * kTokens * kBoxBytes;
inline constexpr size_t kBoxAlignment = 1024;
template <typename W>
__host__ __device__ constexpr unsigned StageColumns(size_t dim) {
  return static_cast<unsigned>(dim * sizeof(typename W::Value) / kBoxBytes /
                               (kCluster * W::kGroupStages));
}
template <typename W>
__host__ __device__ constexpr size_t StageBytes(size_t dim) {
  return size_t{StageColumns<W>(dim)} * kBox;
}

// fn of a block: columns of rows [stream, output].
inline constexpr unsigned kFnRows = kStreams * kOutputs;
template <typename Fn>  // values of a row
inline constexpr size_t kFnRow = kBoxBytes / sizeof(Fn);
__host__ __device__ constexpr unsigned FnBytes(size_t dim, size_t value_bytes) {
  return static_cast<unsigned>(kFnRows * dim / kCluster * value_bytes);
}

// What is owed to a group's streams: y of its channels, rows of which end
// somewhat later as well, and by stage the coefficients of its tokens. Barriers
// that y is there, and a stage's streams are expanded.
struct Owed {
  uint64_t there, expanded[kStages];
  alignas(16) float y[kTokens][kMaxWarps * kPair + 8];
  float comb[kStages][kTokens][kStreams * kStreams];
  float post[kStages][kTokens][kStreams];
};
struct Nothing {};

// Collapsed tokens, and the sums of warps.
template <typename W>
struct Results {
  typename W::Value x[W::kDelay + 1][kMaxWarps][kTokens][W::kXPitch];
  float part[W::kParts][kMaxWarps][kTokens][kSums];
};

template <typename W>
constexpr size_t RestOfFn() {
  const size_t fn = FnBytes(kMaxManyDim, sizeof(float));
  const size_t there =
      (kStages - W::kEarly) * StageBytes<W>(kMaxManyDim) + sizeof(Results<W>);
  return fn > there ? fn - there : 0;
}

template <typename W>
struct alignas(16) ManyShared : Results<W> {
  // In the last stages, in the results and here fn lies at first.
  alignas(16) unsigned char rest[std::max(RestOfFn<W>(), size_t{16})];
  // Barriers: fn is there, and in registers; a stage is there, and has been
  // left; the sums of a block's warps, and taken; those of all blocks, the
  // factors that are made of them, and the coefficients' sums taken.
  uint64_t fn, fn_taken;
  uint64_t full[kStages], left[kStages];
  uint64_t summed[W::kParts], added[W::kParts];
  uint64_t arrived[W::kSlots], ready[W::kSlots], taken[W::kSlots];
  alignas(16) float sums[W::kSlots][kCluster][kSums];  // of the block's token
  float squares[W::kSlots][kCluster][kTokens];         // both by block
  float factor[W::kSlots][kTokens];
  float m[kSums];
  float comb[kBatch][kStreams * kStreams];
  float own_pre[kStreams];
  float weight[kMaxWarps * kPair];  // the norm's, of its channels
  float pre[kStages][kTokens][kStreams];
  [[no_unique_address]] std::conditional_t<W::kExpand, Owed, Nothing> owed;
};

// Stages, aligned, then what is shared.
template <typename W>
constexpr size_t SharedBytes(size_t dim) {
  return kBoxAlignment + kStages * StageBytes<W>(dim) + sizeof(ManyShared<W>);
}
inline constexpr size_t kMostShared = 227 * 1024;  // that a block may have

// A group's place among `kCount`, and the parity of its turn there.
template <unsigned kCount>
struct Turn {
  __device__ explicit Turn(unsigned group)
      : at(group % kCount), parity(group / kCount % 2) {}
  unsigned at, parity;
};

#if __CUDA_ARCH__ >= 900

// A thread's part of the work.
struct Place {
  __device__ explicit Place(const HcSplitArgs& a)
      : rank(cooperative_groups::this_cluster().block_rank()),
        warp(threadIdx.x / kWarp),
        warps(blockDim.x / kWarp - kServants),
        channels(warps * kPair) {
    // Groups of 16 tokens, shared out evenly among the clusters.
    const size_t all = CeilDiv(a.tokens, kTokens);
    const size_t cluster = blockIdx.x / kCluster;
    const size_t clusters = gridDim.x / kCluster;
    begin = all * cluster / clusters * kTokens;
    end = min(all * (cluster + 1) / clusters * kTokens, a.tokens);
    groups = CeilDiv(end - begin, kTokens);
  }
  __device__ size_t FirstOf(unsigned group) const {
    return begin + group * size_t{kTokens};
  }
  __device__ unsigned TokensOf(size_t first) const {
    return static_cast<unsigned>(min(size_t{kTokens}, end - first));
  }
  Lane lane;
  unsigned rank;
  unsigned warp, warps;  // that multiply; the others serve them
  unsigned channels;     // of the block
  size_t begin, end;     // the cluster's tokens
  unsigned groups;
};

// The stages' boxes, and the rest behind them.
template <typename W>
struct Memory {
  __device__ Memory(unsigned char* bytes, size_t dim)
      : stage_bytes(StageBytes<W>(dim)) {
    const uint32_t past = SharedAddress(bytes) % kBoxAlignment;
    boxes = bytes + (past == 0 ? 0 : kBoxAlignment - past);
    shared = reinterpret_cast<ManyShared<W>*>(boxes + kStages * stage_bytes);
  }
  __device__ unsigned char* Box(unsigned stage) const {
    return boxes + stage * stage_bytes;
  }
  // fn of output `row` < 8 and a channel of the block in stream 0, with the
  // others of its 16 bytes.
  template <typename Fn>
  __device__ const Fn* FnOf(unsigned row, unsigned channel) const {
    const unsigned byte = channel * sizeof(Fn);
    const unsigned piece = byte % kBoxBytes / 16 ^ row;
    return reinterpret_cast<const Fn*>(
        Box(W::kEarly) + (byte / kBoxBytes * kFnRows + row) * kBoxBytes +
        piece * 16 + byte % 16);
  }
  size_t stage_bytes;
  unsigned char* boxes;
  ManyShared<W>* shared;
};

#endif

}  // namespace ecphory::cuda::four
