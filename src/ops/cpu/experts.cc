// Mixture of experts: the slots (token, choice) of a block of tokens are
// grouped by expert, so that each chosen expert's weights are read once.
// Threads split the rows of every expert, which balances however the tokens
// fall, in two phases: hidden vectors, then outputs.
#include <algorithm>

#include "base/ceil_div.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/expert_math.h"
#include "ops/cpu/gemm_bf16.h"
#include "ops/cpu/int8_rows.h"
#include "ops/cpu/matmul_rows.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/scratch_plan.h"
#include "ops/moe.h"

namespace ecphory {

namespace {

// Bound of the hidden values of a block, 32 MB: 606 tokens at released sizes.
constexpr size_t kHiddenFloats = 8 << 20;

// Values of an expert's slots that a thread holds at a time, for some of its
// rows: 128 KB, a part of L2.
constexpr size_t kTileFloats = 32 << 10;

// bf16 inputs are packed in blocks of 32.
constexpr size_t kPackedRows = 32;

size_t BlockTokens(size_t topk, size_t inner) {
  return std::max<size_t>(1, kHiddenFloats / (topk * inner));
}

// A matrix of floats and pointers to its rows, in this thread's scratch.
template <typename Purpose>
float** ThreadTile(size_t rows, size_t cols) {
  float* const values = ThreadScratch<Purpose>(rows * cols);
  float** const pointers = ThreadScratch<Purpose, float*>(rows);
  for (size_t i = 0; i < rows; ++i) pointers[i] = values + i * cols;
  return pointers;
}

// Whether the block's products are formed from bf16, of `slots` slots.
bool ExpertsTakeBf16(const ExpertsArgs& args, size_t slots) {
  const Expert& first = args.experts[0];
  const size_t mean = slots / args.n_experts;
  if (!TakesBf16(first.w1, args.input, mean) ||
      !TakesBf16(first.w2, args.input, mean)) {
    return false;
  }
  // One packing serves all.
  return std::all_of(args.experts, args.experts + args.n_experts,
                     [&](const Expert& expert) {
                       return expert.w1.format == first.w1.format &&
                              expert.w3.format == first.w1.format &&
                              expert.w2.format == first.w2.format;
                     });
}

// One block of tokens. Slots are numbered token by token; their data lie in
// expert order.
class ExpertBlock {
 public:
  ExpertBlock(const ExpertsArgs& args, size_t first_token, size_t tokens);
  void Run(ThreadPool& pool);

 private:
  // Some rows of an expert and all its slots, in expert order.
  struct Visit {
    const Expert& expert;
    size_t first_slot, slots;
    size_t row, rows;
  };

  void GroupByExpert();
  void ListRows();
  void PackInputs(ThreadPool& pool);
  void RoundInputs(ThreadPool& pool);
  void RoundHidden(ThreadPool& pool);
  void HiddenRows(const Visit& visit);
  void OutputRows(const Visit& visit);
  void ClearRows(size_t begin, size_t end);
  template <typename Body>
  void VisitExperts(size_t begin, size_t end, const Body& body);
  size_t token_of(size_t i) const {
    return first_token_ + slot_of_[i] / args_.topk;
  }

  const ExpertsArgs& args_;
  size_t first_token_;
  size_t tokens_;
  size_t slots_;
  size_t inner_;
  bool bf16_;
  ExpertsInt8 int8_;
  size_t* group_begin_;  // [n_experts + 1] into the arrays in expert order
  size_t* slot_of_;      // [slots], in expert order
  // Inputs and hidden vectors, [slots] in expert order; one of each pair.
  const float** x_;
  float** hidden_;
  const uint16_t** x16_;
  uint16_t** hidden16_;
  // Rounded to int8, where int8_ says so.
  uint8_t** x8_;
  uint8_t** hidden8_;
};

ExpertBlock::ExpertBlock(const ExpertsArgs& args, size_t first_token,
                         size_t tokens)
    : args_(args),
      first_token_(first_token),
      tokens_(tokens),
      slots_(tokens * args.topk),
      inner_(args.experts[0].w1.rows),
      bf16_(ExpertsTakeBf16(args, slots_)),
      int8_(args) {
  struct Groups;
  group_begin_ = ThreadScratch<Groups, size_t>(args.n_experts + 1 + slots_);
  slot_of_ = group_begin_ + args.n_experts + 1;
  struct Rows;
  x_ = ThreadScratch<Rows, const float*>(slots_);
  hidden_ = ThreadScratch<Rows, float*>(slots_);
  x16_ = ThreadScratch<Rows, const uint16_t*>(slots_);
  hidden16_ = ThreadScratch<Rows, uint16_t*>(slots_);
  x8_ = ThreadScratch<Rows, uint8_t*>(2 * slots_);
  hidden8_ = x8_ + slots_;
}

// A counting sort, stable, so that an expert's tokens come in order.
void ExpertBlock::GroupByExpert() {
  const int32_t* const ids = args_.ids + first_token_ * args_.topk;
  std::fill(group_begin_, group_begin_ + args_.n_experts + 1, size_t{0});
  for (size_t slot = 0; slot < slots_; ++slot) ++group_begin_[ids[slot] + 1];
  for (size_t e = 0; e < args_.n_experts; ++e) {
    group_begin_[e + 1] += group_begin_[e];
  }
  for (size_t slot = 0; slot < slots_; ++slot) {
    slot_of_[group_begin_[ids[slot]]++] = slot;
  }
  // Each begin has moved to its group's end, the next one's begin.
  std::copy_backward(group_begin_, group_begin_ + args_.n_experts,
                     group_begin_ + args_.n_experts + 1);
  group_begin_[0] = 0;
}

void ExpertBlock::ListRows() {
  struct Hidden;
  if (bf16_) {
    uint16_t* const hidden = ThreadScratch<Hidden, uint16_t>(slots_ * inner_);
    for (size_t i = 0; i < slots_; ++i) hidden16_[i] = hidden + i * inner_;
    return;
  }
  float* const hidden = ThreadScratch<Hidden>(slots_ * inner_);
  for (size_t i = 0; i < slots_; ++i) {
    x_[i] = args_.x + token_of(i) * args_.dim;
    hidden_[i] = hidden + i * inner_;
  }
}

// Each token's input once, for all of its slots.
void ExpertBlock::PackInputs(ThreadPool& pool) {
  struct Packed;
  const size_t dim = args_.dim;
  uint16_t* const packed = ThreadScratch<Packed, uint16_t>(tokens_ * dim);
  pool.ParallelFor(tokens_, GrainFor(dim),
                   [&](size_t begin, size_t end, size_t) {
                     for (size_t t = begin; t < end; ++t) {
                       PackBf16Input(args_.experts[0].w1.format,
                                     args_.x + (first_token_ + t) * dim, dim,
                                     packed + t * dim);
                     }
                   });
  for (size_t i = 0; i < slots_; ++i) {
    x16_[i] = packed + (token_of(i) - first_token_) * dim;
  }
}

// Each token's input once, for all of its slots.
void ExpertBlock::RoundInputs(ThreadPool& pool) {
  struct RoundedInputs;
  const size_t bytes = Int8RowBytes(args_.dim);
  uint8_t* const rounded =
      ThreadScratch<RoundedInputs, uint8_t>(tokens_ * bytes);
  RoundRowsToInt8(args_.experts[0].w1.format,
                  args_.x + first_token_ * args_.dim, args_.dim, args_.dim,
                  tokens_, rounded, pool);
  for (size_t i = 0; i < slots_; ++i) {
    x8_[i] = rounded + (token_of(i) - first_token_) * bytes;
  }
}

void ExpertBlock::RoundHidden(ThreadPool& pool) {
  struct RoundedHidden;
  const size_t bytes = Int8RowBytes(inner_);
  uint8_t* const rounded =
      ThreadScratch<RoundedHidden, uint8_t>(slots_ * bytes);
  RoundRowsToInt8(args_.experts[0].w2.format, hidden_[0], inner_, inner_,
                  slots_, rounded, pool);
  for (size_t i = 0; i < slots_; ++i) hidden8_[i] = rounded + i * bytes;
}

// body(visit) for rows [begin, end) of each expert that has slots.
template <typename Body>
void ExpertBlock::VisitExperts(size_t begin, size_t end, const Body& body) {
  for (size_t e = 0; e < args_.n_experts; ++e) {
    const size_t first = group_begin_[e];
    const size_t slots = group_begin_[e + 1] - first;
    if (slots == 0) continue;
    const size_t step =
        std::max<size_t>(1, kTileFloats / slots / kPackedRows) * kPackedRows;
    for (size_t row = begin; row < end; row += step) {
      body(Visit{args_.experts[e], first, slots, row,
                 std::min(step, end - row)});
    }
  }
}

// The rows of every slot's hidden vector.
void ExpertBlock::HiddenRows(const Visit& v) {
  struct Gate;
  struct Up;
  float** const up = ThreadTile<Up>(v.slots, v.rows);
  float** const gate = ThreadTile<Gate>(v.slots, bf16_ ? v.rows : 0);
  if (!bf16_) {
    for (size_t i = 0; i < v.slots; ++i) {
      gate[i] = hidden_[v.first_slot + i] + v.row;
    }
  }
  const auto multiply = [&](const Matrix& weight, float* const* y) {
    MatmulRows(weight.RowBlock(v.row, v.rows),
               {bf16_ ? nullptr : x_ + v.first_slot, y, v.slots,
                bf16_ ? x16_ + v.first_slot : nullptr,
                int8_.x ? x8_ + v.first_slot : nullptr},
               0, v.rows);
  };
  multiply(v.expert.w1, gate);
  multiply(v.expert.w3, up);
  const float* const weights = args_.weights + first_token_ * args_.topk;
  for (size_t i = 0; i < v.slots; ++i) {
    Swiglu({.gate = gate[i],
            .up = up[i],
            .n = v.rows,
            .weight = weights[slot_of_[v.first_slot + i]],
            .limit = args_.swiglu_limit,
            .round_bf16 = args_.round_bf16});
    if (!bf16_) continue;
    PackBf16Input(v.expert.w2.format, gate[i], v.rows,
                  hidden16_[v.first_slot + i] + v.row);
  }
}

// Adds to the rows of the outputs.
void ExpertBlock::OutputRows(const Visit& v) {
  struct Output;
  float** const out = ThreadTile<Output>(v.slots, v.rows);
  MatmulRows(v.expert.w2.RowBlock(v.row, v.rows),
             {bf16_ ? nullptr : hidden_ + v.first_slot, out, v.slots,
              bf16_ ? hidden16_ + v.first_slot : nullptr,
              int8_.hidden ? hidden8_ + v.first_slot : nullptr},
             0, v.rows);
  for (size_t i = 0; i < v.slots; ++i) {
    AddOutput(out[i], v.rows, args_.round_bf16,
              args_.y + token_of(v.first_slot + i) * args_.dim + v.row);
  }
}

void ExpertBlock::ClearRows(size_t begin, size_t end) {
  for (size_t t = first_token_; t < first_token_ + tokens_; ++t) {
    float* const y = args_.y + t * args_.dim;
    std::fill(y + begin, y + end, 0.0f);
  }
}

void ExpertBlock::Run(ThreadPool& pool) {
  GroupByExpert();
  ListRows();
  if (bf16_) PackInputs(pool);
  if (int8_.x) RoundInputs(pool);
  const auto run_rows = [&](size_t rows, size_t row_work, auto body) {
    const size_t unit = bf16_ ? kPackedRows : kMatmulRowBlock;
    pool.ParallelFor(CeilDiv(rows, unit), GrainFor(unit * row_work),
                     [&](size_t begin, size_t end, size_t) {
                       const DenormalsAreZero denormals(args_.input);
                       body(begin * unit, std::min(rows, end * unit));
                     });
  };
  run_rows(inner_, 2 * args_.dim * slots_, [&](size_t begin, size_t end) {
    VisitExperts(begin, end, [&](const Visit& v) { HiddenRows(v); });
  });
  if (int8_.hidden) RoundHidden(pool);
  run_rows(args_.dim, inner_ * slots_, [&](size_t begin, size_t end) {
    if (!args_.accumulate) ClearRows(begin, end);
    VisitExperts(begin, end, [&](const Visit& v) { OutputRows(v); });
  });
}

}  // namespace

void CpuExperts(const ExpertsArgs& args, ThreadPool& pool) {
  const size_t block = BlockTokens(args.topk, args.experts[0].w1.rows);
  for (size_t t = 0; t < args.tokens; t += block) {
    ExpertBlock(args, t, std::min(block, args.tokens - t)).Run(pool);
  }
}

namespace {

bool TakesBf16(const ScratchExperts& e, const ScratchShape& shape,
               size_t tokens) {
  const size_t mean = tokens * e.topk / e.experts;
  return TakesBf16({.format = e.up, .rows = e.inner, .cols = shape.dim},
                   shape.input, mean) &&
         TakesBf16({.format = e.down, .rows = shape.dim, .cols = e.inner},
                   shape.input, mean);
}

// Values of a tile of `rows` rows that are split among threads.
uint64_t TileFloats(size_t slots, size_t rows, size_t threads) {
  const size_t step =
      std::max<size_t>(1, kTileFloats / slots / kPackedRows) * kPackedRows;
  return slots * std::min(step, CeilDiv(rows, threads));
}

}  // namespace

// In the caller the slots' hidden values, inputs as bf16 or int8, and pointers;
// in each thread tiles of ups and outputs, and with bf16 of gates.
uint64_t ExpertsScratchBytes(const ScratchShape& shape) {
  constexpr uint64_t kPointers = 7 * sizeof(void*);
  uint64_t most_slots = 0, hidden = 0, hidden16 = 0, packed = 0, rounded = 0;
  uint64_t rounded_hidden = 0, up = 0, gate = 0, out = 0;
  const auto raise = [](uint64_t& most, uint64_t value) {
    most = std::max(most, value);
  };
  for (const ScratchExperts& e : shape.experts) {
    const size_t tokens = std::min(shape.tokens, BlockTokens(e.topk, e.inner));
    const uint64_t slots = tokens * e.topk;
    const bool bf16 = TakesBf16(e, shape, tokens);
    raise(most_slots, slots);
    raise(bf16 ? hidden16 : hidden, slots * e.inner);
    if (bf16) raise(packed, tokens * shape.dim);
    if (shape.input == MatmulInput::kInt8) {
      if (TakesInt8(e.up)) raise(rounded, tokens * Int8RowBytes(shape.dim));
      if (TakesInt8(e.down)) {
        raise(rounded_hidden, slots * Int8RowBytes(e.inner));
      }
    }
    const size_t likely = LikelySlots(e, tokens);
    raise(up, TileFloats(likely, e.inner, shape.threads));
    if (bf16) raise(gate, TileFloats(likely, e.inner, shape.threads));
    raise(out, TileFloats(likely, shape.dim, shape.threads));
  }
  return most_slots * kPointers + hidden * sizeof(float) +
         (hidden16 + packed) * sizeof(uint16_t) + rounded + rounded_hidden +
         (up + gate + out) * sizeof(float) * shape.threads;
}

}  // namespace ecphory
