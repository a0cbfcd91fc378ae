// Mixture of experts: the slots (token, choice) of a block of tokens are
// grouped by expert, so that each chosen expert's weights are read once.
// Threads split the rows of every expert, which balances however the tokens
// fall, in two phases: hidden vectors, then outputs.
#include <algorithm>
#include <atomic>

#include "base/ceil_div.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/digits.h"
#include "ops/cpu/expert_math.h"
#include "ops/cpu/gemm_amx.h"
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
static_assert(kPackedRows == kAmxBlock);

// Rows of all experts that a thread takes at a time, of few tokens: 80 KB of
// FP4 with 5,120 columns each.
constexpr size_t kPieceRows = 32;

// Slots that are taken at a time where their inputs or hidden vectors are
// packed for AMX or split into digits, unless one expert has more.
constexpr size_t kBatchSlots = 512;

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

// Whether one packing of inputs and of hidden vectors serves all experts.
bool OfOneFormat(const ExpertsArgs& args) {
  const Expert& first = args.experts[0];
  return std::all_of(args.experts, args.experts + args.n_experts,
                     [&](const Expert& expert) {
                       return expert.w1.format == first.w1.format &&
                              expert.w3.format == first.w1.format &&
                              expert.w2.format == first.w2.format;
                     });
}

// Whether the block's products are formed from bf16, of `slots` slots.
bool ExpertsTakeBf16(const ExpertsArgs& args, size_t slots) {
  const Expert& first = args.experts[0];
  const size_t mean = slots / args.n_experts;
  return TakesBf16(first.w1, args.input, mean) &&
         TakesBf16(first.w2, args.input, mean) && OfOneFormat(args);
}

bool ExpertsTakeAmx(const ExpertsArgs& args) {
  const Expert& first = args.experts[0];
  return TakesAmx(first.w1, args.input, args.tokens) &&
         TakesAmx(first.w2, args.input, args.tokens) && OfOneFormat(args);
}

// What is split into digits, once for all experts: x and the hidden vectors, of
// weights that all experts have in one format. (Where their formats differ,
// products are fp32.)
struct ExpertsDigits {
  ExpertsDigits(const ExpertsArgs& args, const ExpertsInt8& int8) {
    const Expert& first = args.experts[0];
    const bool one = OfOneFormat(args);
    x = one && !int8.x && TakesDigits(first.w1.format);
    hidden = one && !int8.hidden && TakesDigits(first.w2.format);
  }
  bool x, hidden;
};

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

  // Experts [begin, end) and their slots.
  struct Batch {
    size_t begin, end;
    size_t first_slot, slots;
  };

  void GroupByExpert();
  void ListRows();
  void RunBatch(const Batch& batch, ThreadPool& pool);
  Batch BatchFrom(size_t expert) const;
  void MeasureInputs(ThreadPool& pool);
  void PackBatch(const Batch& batch, ThreadPool& pool);
  AmxInputs AmxOf(const AmxInputs& batch, size_t slot, size_t slots) const;
  void PackHidden(const Visit& visit, float* const* gate);
  void PackInputs(ThreadPool& pool);
  void RoundInputs(ThreadPool& pool);
  void RoundHidden(ThreadPool& pool);
  void SplitInputs(ThreadPool& pool);
  void SplitHidden(const Batch& batch, ThreadPool& pool);
  void HiddenRows(const Visit& visit);
  void OutputRows(const Visit& visit);
  void ClearRows(size_t begin, size_t end);
  template <typename Body>
  void VisitExperts(const Batch& batch, size_t begin, size_t end,
                    const Body& body);
  size_t slots_of(size_t expert) const {
    return group_begin_[expert + 1] - group_begin_[expert];
  }
  size_t token_of(size_t i) const {
    return first_token_ + slot_of_[i] / args_.topk;
  }

  const ExpertsArgs& args_;
  size_t first_token_;
  size_t tokens_;
  size_t slots_;
  size_t inner_;
  ExpertsInt8 int8_;
  ExpertsDigits digits_;
  bool amx_;
  bool bf16_;
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
  // As digits, where digits_ says so.
  DigitRow* x_digits_;
  DigitRow* hidden_digits_;
  // Packed for AMX, of a batch of experts that begins at batch_first_.
  AmxInputs amx_x_, amx_hidden_;
  uint64_t input_ids_;  // TokenRows::input_id of the tokens' x
  size_t batch_first_ = 0;
  uint32_t* largest_;  // [tokens]
};

ExpertBlock::ExpertBlock(const ExpertsArgs& args, size_t first_token,
                         size_t tokens)
    : args_(args),
      first_token_(first_token),
      tokens_(tokens),
      slots_(tokens * args.topk),
      inner_(args.experts[0].w1.rows),
      int8_(args),
      digits_(args, int8_),
      amx_(ExpertsTakeAmx(args)),
      bf16_(!amx_ && ExpertsTakeBf16(args, slots_)),
      input_ids_(NewInputIds(tokens)) {
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
  x_digits_ = ThreadScratch<Rows, DigitRow>(
      digits_.x || digits_.hidden ? 2 * slots_ : 0);
  hidden_digits_ = x_digits_ + slots_;
  largest_ = ThreadScratch<Rows, uint32_t>(amx_ ? tokens_ : 0);
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
  for (size_t i = 0; i < slots_; ++i) {
    x_[i] = args_.x + token_of(i) * args_.dim;
  }
  if (amx_) return;
  float* const hidden = ThreadScratch<Hidden>(slots_ * inner_);
  for (size_t i = 0; i < slots_; ++i) hidden_[i] = hidden + i * inner_;
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

// Each token's input once, for all of its slots.
void ExpertBlock::SplitInputs(ThreadPool& pool) {
  struct SplitInputs;
  const WeightFormat format = args_.experts[0].w1.format;
  uint8_t* const digits = ThreadScratch<SplitInputs, uint8_t>(
      tokens_ * DigitRowBytes(format, args_.dim));
  DigitRow* const rows = ThreadScratch<SplitInputs, DigitRow>(tokens_);
  SplitRowsToDigits(format, args_.x + first_token_ * args_.dim, args_.dim,
                    args_.dim, tokens_, digits, rows, pool);
  for (size_t i = 0; i < slots_; ++i) {
    x_digits_[i] = rows[token_of(i) - first_token_];
  }
}

void ExpertBlock::SplitHidden(const Batch& batch, ThreadPool& pool) {
  struct SplitHidden;
  const WeightFormat format = args_.experts[0].w2.format;
  uint8_t* const digits = ThreadScratch<SplitHidden, uint8_t>(
      batch.slots * DigitRowBytes(format, inner_));
  if (batch.slots == 0) return;
  SplitRowsToDigits(format, hidden_[batch.first_slot], inner_, inner_,
                    batch.slots, digits, hidden_digits_ + batch.first_slot,
                    pool);
}

// The largest magnitude of each token.
void ExpertBlock::MeasureInputs(ThreadPool& pool) {
  const float* const x = args_.x + first_token_ * args_.dim;
  pool.ParallelFor(
      tokens_, GrainFor(args_.dim), [&](size_t begin, size_t end, size_t) {
        for (size_t t = begin; t < end; ++t) {
          largest_[t] = LargestMagnitude(x + t * args_.dim, args_.dim);
        }
      });
}

// The part of a batch's packed values that belongs to an expert.
AmxInputs ExpertBlock::AmxOf(const AmxInputs& batch, size_t slot,
                             size_t slots) const {
  AmxInputs one = batch;
  const size_t first = slot - batch_first_;
  one.values += first * batch.cols;
  one.largest += first;
  if (batch.x != nullptr) one.x += first;
  one.tokens = slots;
  return one;
}

// Inputs of all slots of a batch, expert by expert; place for hidden vectors.
void ExpertBlock::PackBatch(const Batch& batch, ThreadPool& pool) {
  struct Inputs;
  struct Hidden;
  const auto inputs = [&](size_t cols, uint16_t* values, uint32_t* largest) {
    return AmxInputs{.values = values,
                     .largest = largest,
                     .tokens = batch.slots,
                     .cols = cols,
                     .set_tokens = kAmxSetTokens};
  };
  amx_x_ = inputs(args_.dim,
                  ThreadScratch<Inputs, uint16_t>(batch.slots * args_.dim),
                  ThreadScratch<Inputs, uint32_t>(batch.slots));
  amx_hidden_ =
      inputs(inner_, ThreadScratch<Hidden, uint16_t>(batch.slots * inner_),
             ThreadScratch<Hidden, uint32_t>(batch.slots));
  amx_x_.x = x_ + batch.first_slot;
  batch_first_ = batch.first_slot;
  for (size_t i = 0; i < batch.slots; ++i) {
    amx_x_.largest[i] = largest_[token_of(batch.first_slot + i) - first_token_];
  }
  std::fill_n(amx_hidden_.largest, batch.slots, uint32_t{0});
  // Each is a group of an expert.
  struct Groups;
  struct Group {
    size_t expert, group;
  };
  size_t n = 0;
  for (size_t e = batch.begin; e < batch.end; ++e) {
    n += AmxOf(amx_x_, group_begin_[e], slots_of(e)).groups();
  }
  Group* const groups = ThreadScratch<Groups, Group>(n);
  Group* next = groups;
  for (size_t e = batch.begin; e < batch.end; ++e) {
    const size_t count = AmxOf(amx_x_, group_begin_[e], slots_of(e)).groups();
    for (size_t g = 0; g < count; ++g) *next++ = {e, g};
  }
  pool.ParallelFor(
      n, GrainFor(kAmxTile * args_.dim), [&](size_t begin, size_t end, size_t) {
        for (size_t i = begin; i < end; ++i) {
          const size_t first = group_begin_[groups[i].expert];
          PackAmxGroup(args_.experts[0].w1.format,
                       AmxOf(amx_x_, first, slots_of(groups[i].expert)),
                       groups[i].group, 0, args_.dim / kAmxBlock, x_ + first);
        }
      });
}

// Rows of the hidden vectors of an expert, of which other threads pack others.
void ExpertBlock::PackHidden(const Visit& v, float* const* gate) {
  const AmxInputs hidden = AmxOf(amx_hidden_, v.first_slot, v.slots);
  for (size_t i = 0; i < v.slots; ++i) {
    const std::atomic_ref<uint32_t> largest(hidden.largest[i]);
    const uint32_t mine = LargestMagnitude(gate[i], v.rows);
    uint32_t known = largest.load(std::memory_order_relaxed);
    while (known < mine && !largest.compare_exchange_weak(
                               known, mine, std::memory_order_relaxed)) {
    }
  }
  for (size_t g = 0; g < hidden.groups(); ++g) {
    PackAmxGroup(v.expert.w2.format, hidden, g, v.row / kAmxBlock,
                 (v.row + v.rows) / kAmxBlock, gate);
  }
}

// body(visit) for rows [begin, end) of each expert of a batch that has slots.
template <typename Body>
void ExpertBlock::VisitExperts(const Batch& batch, size_t begin, size_t end,
                               const Body& body) {
  for (size_t e = batch.begin; e < batch.end; ++e) {
    const size_t first = group_begin_[e];
    const size_t slots = slots_of(e);
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
  const bool packs = bf16_ || amx_;
  float** const gate = ThreadTile<Gate>(v.slots, packs ? v.rows : 0);
  if (!packs) {
    for (size_t i = 0; i < v.slots; ++i) {
      gate[i] = hidden_[v.first_slot + i] + v.row;
    }
  }
  const auto multiply = [&](const Matrix& weight, float* const* y) {
    const Matrix rows = weight.RowBlock(v.row, v.rows);
    if (amx_) {
      return MatmulRowsAmx(rows, AmxOf(amx_x_, v.first_slot, v.slots), y, 0,
                           v.rows);
    }
    MatmulRows(
        rows,
        {bf16_ ? nullptr : x_ + v.first_slot, y, v.slots,
         bf16_ ? x16_ + v.first_slot : nullptr,
         int8_.x ? x8_ + v.first_slot : nullptr,
         digits_.x ? x_digits_ + v.first_slot : nullptr, /*apart=*/0,
         v.slots == 1 ? input_ids_ + token_of(v.first_slot) - first_token_ : 0},
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
  if (amx_) PackHidden(v, gate);
}

// Adds to the rows of the outputs.
void ExpertBlock::OutputRows(const Visit& v) {
  struct Output;
  float** const out = ThreadTile<Output>(v.slots, v.rows);
  const Matrix rows = v.expert.w2.RowBlock(v.row, v.rows);
  if (amx_) {
    MatmulRowsAmx(rows, AmxOf(amx_hidden_, v.first_slot, v.slots), out, 0,
                  v.rows);
  } else {
    MatmulRows(rows,
               {bf16_ ? nullptr : hidden_ + v.first_slot, out, v.slots,
                bf16_ ? hidden16_ + v.first_slot : nullptr,
                int8_.hidden ? hidden8_ + v.first_slot : nullptr,
                digits_.hidden ? hidden_digits_ + v.first_slot : nullptr},
               0, v.rows);
  }
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

void ExpertBlock::RunBatch(const Batch& batch, ThreadPool& pool) {
  if (amx_) PackBatch(batch, pool);
  const auto run_rows = [&](size_t rows, size_t row_work, auto body) {
    const size_t unit = bf16_ || amx_ ? kPackedRows : kMatmulRowBlock;
    const size_t grain = GrainFor(unit * row_work);
    const auto range = [&](size_t begin, size_t end, size_t) {
      const DenormalsAreZero denormals(args_.input);
      body(begin * unit, std::min(rows, end * unit));
    };
    if (args_.tokens <= kMaxFewTokens) {
      pool.ParallelForPieces(CeilDiv(rows, unit),
                             std::max(grain, kPieceRows / unit), range);
    } else {
      pool.ParallelFor(CeilDiv(rows, unit), grain, range);
    }
  };
  run_rows(inner_, 2 * args_.dim * batch.slots, [&](size_t begin, size_t end) {
    VisitExperts(batch, begin, end, [&](const Visit& v) { HiddenRows(v); });
  });
  if (int8_.hidden) RoundHidden(pool);
  if (digits_.hidden) SplitHidden(batch, pool);
  run_rows(args_.dim, inner_ * batch.slots, [&](size_t begin, size_t end) {
    if (batch.begin == 0 && !args_.accumulate) ClearRows(begin, end);
    VisitExperts(batch, begin, end, [&](const Visit& v) { OutputRows(v); });
  });
}

// As many experts as bound what is packed or split, if anything is; else all of
// them.
ExpertBlock::Batch ExpertBlock::BatchFrom(size_t expert) const {
  Batch batch{expert, expert, group_begin_[expert], 0};
  while (batch.end < args_.n_experts &&
         (!(amx_ || digits_.hidden) || batch.slots == 0 ||
          batch.slots + slots_of(batch.end) <= kBatchSlots)) {
    batch.slots += slots_of(batch.end++);
  }
  return batch;
}

void ExpertBlock::Run(ThreadPool& pool) {
  GroupByExpert();
  ListRows();
  if (bf16_) PackInputs(pool);
  if (int8_.x) RoundInputs(pool);
  if (digits_.x) SplitInputs(pool);
  if (amx_) MeasureInputs(pool);
  for (size_t expert = 0; expert < args_.n_experts;) {
    const Batch batch = BatchFrom(expert);
    RunBatch(batch, pool);
    expert = batch.end;
  }
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

bool TakesAmx(const ScratchExperts& e, const ScratchShape& shape) {
  return TakesAmx(Matrix{.format = e.up, .rows = e.inner, .cols = shape.dim},
                  shape.input, shape.tokens) &&
         TakesAmx(Matrix{.format = e.down, .rows = shape.dim, .cols = e.inner},
                  shape.input, shape.tokens);
}

// Values of a tile of `rows` rows that are split among threads.
uint64_t TileFloats(size_t slots, size_t rows, size_t threads) {
  const size_t step =
      std::max<size_t>(1, kTileFloats / slots / kPackedRows) * kPackedRows;
  return slots * std::min(step, CeilDiv(rows, threads));
}

}  // namespace

// In the caller the slots' hidden values, inputs as bf16, int8 or digits, and
// pointers; in each thread tiles of ups and outputs, and with bf16 and AMX of
// gates. With AMX inputs and hidden values are those of a batch of experts, and
// so are digits of hidden values.
uint64_t ExpertsScratchBytes(const ScratchShape& shape) {
  constexpr uint64_t kPointers = 7 * sizeof(void*);
  uint64_t most_slots = 0, hidden = 0, hidden16 = 0, packed = 0, rounded = 0;
  uint64_t rounded_hidden = 0, up = 0, gate = 0, out = 0, amx_packed = 0;
  uint64_t split = 0, split_hidden = 0, digit_rows = 0;
  const auto raise = [](uint64_t& most, uint64_t value) {
    most = std::max(most, value);
  };
  for (const ScratchExperts& e : shape.experts) {
    const size_t tokens = std::min(shape.tokens, BlockTokens(e.topk, e.inner));
    const uint64_t slots = tokens * e.topk;
    const bool amx = TakesAmx(e, shape);
    const bool bf16 = !amx && TakesBf16(e, shape, tokens);
    const uint64_t batch = std::min<uint64_t>(
        slots, std::max(kBatchSlots, LikelySlots(e, tokens)));
    raise(most_slots, slots);
    if (amx) {
      raise(amx_packed, batch * (shape.dim + e.inner));
      raise(hidden, kMaxFewTokens * e.topk * e.inner);  // of few tokens
    } else {
      raise(bf16 ? hidden16 : hidden, slots * e.inner);
    }
    if (bf16) raise(packed, tokens * shape.dim);
    if (shape.input == MatmulInput::kInt8) {
      if (TakesInt8(e.up)) raise(rounded, tokens * Int8RowBytes(shape.dim));
      if (TakesInt8(e.down)) {
        raise(rounded_hidden, slots * Int8RowBytes(e.inner));
      }
    }
    const auto splits = [&](WeightFormat format) {
      const bool int8 = shape.input == MatmulInput::kInt8 && TakesInt8(format);
      return !int8 && TakesDigits(format);
    };
    if (splits(e.up)) {
      raise(split,
            tokens * (DigitRowBytes(e.up, shape.dim) + sizeof(DigitRow)));
    }
    if (splits(e.down)) {
      raise(split_hidden, batch * DigitRowBytes(e.down, e.inner));
    }
    if (splits(e.up) || splits(e.down)) {
      raise(digit_rows, 2 * slots * sizeof(DigitRow));
    }
    const size_t likely = LikelySlots(e, tokens);
    raise(up, TileFloats(likely, e.inner, shape.threads));
    if (bf16 || amx) raise(gate, TileFloats(likely, e.inner, shape.threads));
    raise(out, TileFloats(likely, shape.dim, shape.threads));
  }
  return most_slots * kPointers + hidden * sizeof(float) +
         (hidden16 + packed + amx_packed) * sizeof(uint16_t) + rounded +
         rounded_hidden + split + split_hidden + digit_rows +
         (up + gate + out) * sizeof(float) * shape.threads;
}

}  // namespace ecphory
