// Drawing a token: a part of a row's logits a block, and the last block of a
// kernel puts the parts together. One kernel finds the best logit, one draws;
// between them, where top_k or top_p are given, four find the last logit that
// is kept, by eight bits of it a time from histograms of counts or of masses.
// Compiled without contraction, as ops/sample_math.h wants it.
#include "ops/sample.h"

#include <algorithm>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/select.cuh"
#include "ops/cuda/stream.cuh"
#include "ops/sample_math.h"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256, kWarps = kThreads / kWarp;
constexpr unsigned kBins = kThreads;                 // a thread each
constexpr unsigned kMaxBlocks = 128;                 // of a row
constexpr unsigned kLogitsPerBlock = 1024;           // or more
constexpr unsigned kBlocksAtOnce = 2048 / kThreads;  // of a multiprocessor
constexpr unsigned kRowsPerLaunch = 32;  // what kernel arguments hold

using Mass = unsigned long long;

// Of one row; zero before the first kernel.
struct State {
  Mass best;             // code << 32 | ~id; 0: none
  unsigned bad;          // ~id of the first NaN or +infinity; 0: none
  unsigned done[2 + 8];  // blocks, by kernel
  Cut cut;               // code 0: everything is kept
  unsigned all;          // the cut that is looked for keeps everything
  uint32_t prefix;       // of it, as far as it is known
  Mass wanted;           // inside of the prefix
  Mass bins[kBins];
  Mass above[kMaxBlocks];  // mass above the cut
  unsigned ties[kMaxBlocks];
};

struct Row {
  SampleRow sample;
  Sampled* sampled;
};
struct Rows {
  Row row[kRowsPerLaunch];
};

// A block's part of a row.
struct Part {
  __device__ explicit Part(size_t vocab) {
    const size_t each = CeilDiv(vocab, gridDim.x);
    begin = min(blockIdx.x * each, vocab);
    end = min(begin + each, vocab);
  }
  __device__ Part(size_t vocab, unsigned block) {
    const size_t each = CeilDiv(vocab, gridDim.x);
    begin = min(block * each, vocab);
    end = min(begin + each, vocab);
  }
  size_t begin, end;
};

// take(i, logit) for those of the thread, which it asks for some at a time.
template <typename Take>
__device__ void ForEachLogit(const SampleRow& row, const Part& part,
                             const Take& take) {
  constexpr unsigned kAtOnce = 4;
  for (size_t base = part.begin + threadIdx.x; base < part.end;
       base += kAtOnce * kThreads) {
    float logits[kAtOnce];
#pragma unroll
    for (unsigned j = 0; j < kAtOnce; ++j) {
      logits[j] = row.logits[min(base + j * kThreads, part.end - 1)];
    }
#pragma unroll
    for (unsigned j = 0; j < kAtOnce; ++j) {
      const size_t i = base + j * kThreads;
      if (i < part.end) take(i, logits[j]);
    }
  }
}

// The last of a row's blocks to come here sees what the others have written.
__device__ bool IsLast(unsigned* done) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(done, 1u) == gridDim.x - 1;
  __syncthreads();
  if (last) __threadfence();
  return last;
}

// Over the threads of the block: the sum of those before, and of all.
__device__ Mass Prefix(Mass value, Mass* total) {
  __shared__ Mass warps[kWarps];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  Mass sum = value;
  for (unsigned offset = 1; offset < kWarp; offset *= 2) {
    const Mass other = __shfl_up_sync(0xffffffffu, sum, offset);
    if (lane >= offset) sum += other;
  }
  if (lane == kWarp - 1) warps[warp] = sum;
  __syncthreads();
  Mass before = 0, all = 0;
  for (unsigned w = 0; w < kWarps; ++w) {
    if (w < warp) before += warps[w];
    all += warps[w];
  }
  __syncthreads();
  *total = all;
  return before + sum - value;
}

__device__ float LogitOf(uint32_t code) {
  return __uint_as_float((code & 0x80000000u) != 0 ? code ^ 0x80000000u
                                                   : ~code);
}

// Masses of a row's logits.
struct Masses {
  __device__ Masses(const State& state, size_t vocab)
      : bits(SampleMassBits(vocab)),
        top(LogitOf(static_cast<uint32_t>(state.best >> 32))) {}
  __device__ double Gap(float logit) const {
    return static_cast<double>(logit) - top;
  }
  __device__ Mass Of(float logit, double temperature) const {
    return SampleMass(Gap(logit) / temperature, bits);
  }
  int bits;
  double top;
};

__device__ void Give(const Row& row, int32_t id, SampleFault fault) {
  *row.sampled = {id, fault};
  if (row.sample.token != nullptr) *row.sample.token = id;
}

__device__ bool IsDrawn(const Row& row, const State& state) {
  return row.sample.temperature != 0 && state.bad == 0 && state.best != 0;
}

__global__ void __launch_bounds__(kThreads) ClearKernel(State* states) {
  static_assert(sizeof(State) % sizeof(unsigned) == 0);
  LetNextStart();
  WaitForEarlier();
  unsigned* const words = reinterpret_cast<unsigned*>(states + blockIdx.x);
  for (size_t i = threadIdx.x; i < sizeof(State) / sizeof(unsigned);
       i += kThreads) {
    words[i] = 0;
  }
}

__global__ void __launch_bounds__(kThreads)
    CopyKernel(const float* from, size_t count, float* to) {
  const Part part(count);
  for (size_t i = part.begin + threadIdx.x; i < part.end; i += kThreads) {
    to[i] = from[i];
  }
}

__global__ void __launch_bounds__(kThreads)
    PenalizeKernel(SampleRow row, float* logits) {
  for (size_t i = threadIdx.x; i < row.n_penalized; i += kThreads) {
    float& x = logits[row.penalized[i]];
    x = x > 0 ? x / row.repeat_penalty : x * row.repeat_penalty;
  }
}

__global__ void __launch_bounds__(kThreads)
    BestKernel(const __grid_constant__ Rows rows, State* states, size_t vocab) {
  LetNextStart();
  WaitForEarlier();
  const Row& row = rows.row[blockIdx.y];
  State& state = states[blockIdx.y];
  Mass best = 0;
  unsigned bad = 0;
  ForEachLogit(row.sample, Part(vocab), [&](size_t i, float logit) {
    const unsigned place = ~static_cast<unsigned>(i);
    const uint32_t code = CodeOf(logit);
    if (code != 0) {
      best = max(best, static_cast<Mass>(code) << 32 | place);
    } else if (!(logit < 0)) {
      bad = max(bad, place);
    }
  });
  for (unsigned offset = kWarp / 2; offset > 0; offset /= 2) {
    best = max(best, __shfl_xor_sync(0xffffffffu, best, offset));
    bad = max(bad, __shfl_xor_sync(0xffffffffu, bad, offset));
  }
  __shared__ Mass bests[kWarps];
  if (threadIdx.x % kWarp == 0) {
    bests[threadIdx.x / kWarp] = best;
    if (bad != 0) atomicMax(&state.bad, bad);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned w = 1; w < kWarps; ++w) best = max(best, bests[w]);
    atomicMax(&state.best, best);
  }
  if (!IsLast(&state.done[0]) || threadIdx.x != 0) return;
  best = __ldcg(&state.best);
  bad = __ldcg(&state.bad);
  if (bad != 0) {
    const int32_t id = static_cast<int32_t>(~bad);
    Give(row, id,
         isnan(row.sample.logits[id]) ? SampleFault::kNaN
                                      : SampleFault::kInfinity);
  } else if (best == 0) {
    Give(row, 0, SampleFault::kNoToken);
  } else if (row.sample.temperature == 0) {
    Give(row, static_cast<int32_t>(~static_cast<unsigned>(best)),
         SampleFault::kNone);
  }
}

__device__ bool Cuts(const Row& row, bool by_mass) {
  return by_mass ? row.sample.top_p < 1 : row.sample.top_k > 0;
}

// Takes the next eight bits of the cut from the bins, which are cleared.
__device__ void Narrow(const Row& row, State* state, Mass mass_of_bin,
                       int shift, bool by_mass) {
  __shared__ Mass left;
  const unsigned bin = kBins - 1 - threadIdx.x;  // from the top
  Mass total = 0;
  const Mass before = Prefix(mass_of_bin, &total);
  if (threadIdx.x == 0) {
    left = shift < 24 ? state->wanted
           : by_mass  ? SampleShare(row.sample.top_p, total)
                      : row.sample.top_k;
    // A cut that all pass is none. That by masses is one in any case.
    if (shift == 24) state->all = !by_mass && total <= row.sample.top_k;
  }
  __syncthreads();
  state->bins[bin] = 0;
  if (before < left && left <= before + mass_of_bin) {
    state->prefix |= static_cast<uint32_t>(bin) << shift;
    state->wanted = left - before;
  }
}

// Level `shift` of the cut.
template <bool kByMass>
__global__ void __launch_bounds__(kThreads)
    CutKernel(const __grid_constant__ Rows rows, State* states, size_t vocab,
              int shift, unsigned kernel) {
  LetNextStart();
  WaitForEarlier();
  const Row& row = rows.row[blockIdx.y];
  State& state = states[blockIdx.y];
  if (!Cuts(row, kByMass) || !IsDrawn(row, state)) return;
  if (shift < 24 && state.all != 0) return;
  __shared__ Mass bins[kBins];
  bins[threadIdx.x] = 0;
  __syncthreads();
  const uint32_t known = shift == 24 ? 0 : ~0u << (shift + 8);
  const uint32_t prefix = shift == 24 ? 0 : state.prefix;
  const Cut floor = state.cut;  // of top_k; what is above it is seen by top_p
  const Masses masses(state, vocab);
  ForEachLogit(row.sample, Part(vocab), [&](size_t, float logit) {
    const uint32_t code = CodeOf(logit);
    if (code <= floor.code || (code & known) != prefix) return;
    atomicAdd(&bins[code >> shift & (kBins - 1)],
              kByMass ? masses.Of(logit, 1) : Mass{1});
  });
  __syncthreads();
  if (bins[threadIdx.x] != 0) {
    atomicAdd(&state.bins[threadIdx.x], bins[threadIdx.x]);
  }
  if (!IsLast(&state.done[kernel])) return;

  const unsigned bin = kBins - 1 - threadIdx.x;
  Mass mass_of_bin = __ldcg(&state.bins[bin]);
  // Of those at the floor only some were left.
  if (kByMass && floor.code != 0 && (floor.code & known) == prefix &&
      (floor.code >> shift & (kBins - 1)) == bin) {
    mass_of_bin += floor.ties * masses.Of(LogitOf(floor.code), 1);
  }
  if (shift == 24 && threadIdx.x == 0) state.prefix = 0;
  __syncthreads();
  Narrow(row, &state, mass_of_bin, shift, kByMass);
  __syncthreads();
  if (shift > 0 || threadIdx.x != 0 || state.all != 0) return;
  const Mass each = kByMass ? masses.Of(LogitOf(state.prefix), 1) : 1;
  state.cut = {state.prefix,
               static_cast<unsigned>(CeilDiv(state.wanted, each))};
}

// A logit's mass where it is above the cut, and whether it lies at it.
struct Kept {
  __device__ Kept(const Row& row, const State& state, const Masses& masses,
                  float logit) {
    const uint32_t code = CodeOf(logit);
    if (code == 0 || code < state.cut.code) return;
    if (!(masses.Gap(logit) >= row.sample.min_gap)) return;
    mass = masses.Of(logit, row.sample.temperature);
    tie = code == state.cut.code;
  }
  Mass mass = 0;
  bool tie = false;
};

// What a thread's run of logits weighs, and where it begins.
struct Run {
  // All threads of the block: runs follow each other in their order.
  // `ties_before` at the cut, of which `allowed` are kept in all.
  __device__ Run(Mass above, Mass ties, Mass tie_mass, Mass ties_before,
                 Mass allowed) {
    Mass unused = 0;
    first_tie = ties_before + Prefix(ties, &unused);
    const Mass kept =
        first_tie < allowed ? min(ties, allowed - first_tie) : Mass{0};
    mass = above + kept * tie_mass;
    begin = Prefix(mass, &total);
  }
  __device__ bool Has(Mass target) const {
    return begin <= target && target < begin + mass;
  }
  Mass first_tie, mass, begin, total;
};

__device__ void DrawFrom(const Row& row, const State& state,
                         const Masses& masses, size_t vocab) {
  __shared__ unsigned block;
  __shared__ Mass target, ties_before;
  const Mass allowed = state.cut.ties;
  const Mass tie_mass = state.cut.code == 0 ? 0
                                            : masses.Of(LogitOf(state.cut.code),
                                                        row.sample.temperature);
  // First runs are the blocks' parts, then neighbours in the part that has it.
  const unsigned b = threadIdx.x;
  const bool is_block = b < gridDim.x;
  const Run part_run(is_block ? __ldcg(&state.above[b]) : 0,
                     is_block ? __ldcg(&state.ties[b]) : 0, tie_mass, 0,
                     allowed);
  const Mass wanted = SampleTarget(row.sample.random, part_run.total);
  if (part_run.Has(wanted)) {
    block = b;
    target = wanted - part_run.begin;
    ties_before = part_run.first_tie;
  }
  __syncthreads();
  const Part part(vocab, block);
  const size_t each = CeilDiv(part.end - part.begin, kThreads);
  const size_t first = min(part.begin + threadIdx.x * each, part.end);
  const size_t end = min(first + each, part.end);
  const auto kept_at = [&](size_t i) {
    return Kept(row, state, masses, row.sample.logits[i]);
  };
  Mass above = 0, ties = 0;
  for (size_t i = first; i < end; ++i) {
    const Kept kept = kept_at(i);
    ties += kept.tie;
    if (!kept.tie) above += kept.mass;
  }
  const Run run(above, ties, tie_mass, ties_before, allowed);
  if (!run.Has(target)) return;
  Mass passed = run.begin, tie = run.first_tie;
  for (size_t i = first; i < end; ++i) {
    const Kept kept = kept_at(i);
    if (!kept.tie || tie++ < allowed) passed += kept.mass;
    if (target < passed) {
      return Give(row, static_cast<int32_t>(i), SampleFault::kNone);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    DrawKernel(const __grid_constant__ Rows rows, State* states, size_t vocab) {
  LetNextStart();
  WaitForEarlier();
  const Row& row = rows.row[blockIdx.y];
  State& state = states[blockIdx.y];
  if (!IsDrawn(row, state)) return;
  const Masses masses(state, vocab);
  Mass above = 0, ties = 0;
  ForEachLogit(row.sample, Part(vocab), [&](size_t, float logit) {
    const Kept kept(row, state, masses, logit);
    ties += kept.tie;
    if (!kept.tie) above += kept.mass;
  });
  Mass all_above = 0, all_ties = 0;
  Prefix(above, &all_above);
  Prefix(ties, &all_ties);
  if (threadIdx.x == 0) {
    state.above[blockIdx.x] = all_above;
    state.ties[blockIdx.x] = static_cast<unsigned>(all_ties);
  }
  if (IsLast(&state.done[1])) DrawFrom(row, state, masses, vocab);
}

// Copies of the rows whose logits are penalized take their place.
bool Penalize(size_t vocab, size_t n_rows, Rows* rows) {
  struct Copies;
  const cudaStream_t stream = Current().stream;
  float* copy = nullptr;
  for (size_t i = 0; i < n_rows; ++i) {
    SampleRow& row = rows->row[i].sample;
    if (row.n_penalized == 0) continue;
    if (copy == nullptr) copy = Scratch<Copies>(n_rows * vocab);
    if (copy == nullptr) return false;
    CopyKernel<<<Blocks(vocab, kLogitsPerBlock), kThreads, 0, stream>>>(
        row.logits, vocab, copy + i * vocab);
    NoteLaunch("sample");
    PenalizeKernel<<<1, kThreads, 0, stream>>>(row, copy + i * vocab);
    NoteLaunch("sample");
    row.logits = copy + i * vocab;
  }
  return true;
}

template <bool kByMass>
void FindCuts(const Rows& rows, dim3 grid, State* states, size_t vocab) {
  for (int level = 0; level < 4; ++level) {
    LaunchOverlapped(CutKernel<kByMass>, grid, kThreads, 0, "sample", rows,
                     states, vocab, 24 - 8 * level,
                     2u + static_cast<unsigned>(level) + (kByMass ? 4u : 0u));
  }
}

void SampleRows(const SampleRow* begin, size_t n_rows, size_t vocab,
                Sampled* sampled) {
  struct States;
  State* const states = Scratch<States, State>(kRowsPerLaunch);
  if (states == nullptr) return;
  LaunchOverlapped(ClearKernel, dim3(static_cast<unsigned>(n_rows)), kThreads,
                   0, "sample", states);
  Rows rows = {};
  for (size_t i = 0; i < n_rows; ++i) rows.row[i] = {begin[i], sampled + i};
  if (!Penalize(vocab, n_rows, &rows)) return;
  const auto any = [&](const auto& is) {
    return std::any_of(begin, begin + n_rows, is);
  };
  // As many blocks as are on the device at a time, and no more.
  const unsigned rows_in_all = static_cast<unsigned>(n_rows);
  const unsigned room =
      std::max(1u, kBlocksAtOnce * Multiprocessors() / rows_in_all);
  const dim3 grid(std::min({Blocks(vocab, kLogitsPerBlock), kMaxBlocks, room}),
                  rows_in_all);
  LaunchOverlapped(BestKernel, grid, kThreads, 0, "sample", rows, states,
                   vocab);
  const auto drawn = [](const SampleRow& row) { return row.temperature != 0; };
  if (!any(drawn)) return;
  if (any([&](auto& row) { return drawn(row) && row.top_k > 0; })) {
    FindCuts<false>(rows, grid, states, vocab);
  }
  if (any([&](auto& row) { return drawn(row) && row.top_p < 1; })) {
    FindCuts<true>(rows, grid, states, vocab);
  }
  LaunchOverlapped(DrawKernel, grid, kThreads, 0, "sample", rows, states,
                   vocab);
}

}  // namespace

void Sample(const SampleArgs& args, ThreadPool&) {
  for (size_t i = 0; i < args.n_rows; i += kRowsPerLaunch) {
    SampleRows(args.rows + i, std::min<size_t>(args.n_rows - i, kRowsPerLaunch),
               args.vocab, args.sampled + i);
  }
}

}  // namespace ecphory::cuda
