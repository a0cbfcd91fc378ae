// Mixture of experts: the slots (token, choice) of a block of tokens are
// grouped by expert, so that each chosen expert's weights are read once.
// Threads split the rows of every expert, which balances however the tokens
// fall.
#include <algorithm>

#include "base/ceil_div.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/expert_math.h"
#include "ops/cpu/matmul_rows.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"
#include "ops/moe.h"

namespace ecphory {

namespace {

// Bound of the working memory, 32 MB: a block of 1,800 tokens of the bundled
// model, or of 84 at released sizes.
constexpr size_t kScratchFloats = 8 << 20;

// One block of tokens. Slots are numbered token by token; their data lie in
// expert order.
class ExpertBlock {
 public:
  ExpertBlock(const ExpertsArgs& args, size_t first_token, size_t tokens);
  void Run(ThreadPool& pool);

 private:
  void GroupByExpert();
  void ListRows();
  void HiddenRows(size_t begin, size_t end);
  void OutputRows(size_t begin, size_t end);
  template <typename Visit>
  void ForEachExpert(const Visit& visit);

  const ExpertsArgs& args_;
  size_t first_token_;
  size_t tokens_;
  size_t slots_;
  size_t inner_;
  size_t* group_begin_;   // [n_experts + 1] into the arrays in expert order
  size_t* slot_of_;       // [slots], in expert order
  const float** x_;       // [slots], in expert order
  float** gate_;          // [slots], in expert order
  float** up_;            // [slots], in expert order
  float** out_;           // [slots], in expert order
  const float** result_;  // [slots], by slot: where out_ of the slot lies
};

ExpertBlock::ExpertBlock(const ExpertsArgs& args, size_t first_token,
                         size_t tokens)
    : args_(args),
      first_token_(first_token),
      tokens_(tokens),
      slots_(tokens * args.topk),
      inner_(args.experts[0].w1.rows) {
  struct Groups;
  struct Inputs;
  struct Outputs;
  group_begin_ = ThreadScratch<Groups, size_t>(args.n_experts + 1 + slots_);
  slot_of_ = group_begin_ + args.n_experts + 1;
  x_ = ThreadScratch<Inputs, const float*>(2 * slots_);
  result_ = x_ + slots_;
  gate_ = ThreadScratch<Outputs, float*>(3 * slots_);
  up_ = gate_ + slots_;
  out_ = up_ + slots_;
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
  struct Values;
  float* const gate = ThreadScratch<Values>(slots_ * (2 * inner_ + args_.dim));
  float* const up = gate + slots_ * inner_;
  float* const out = up + slots_ * inner_;
  for (size_t i = 0; i < slots_; ++i) {
    const size_t token = first_token_ + slot_of_[i] / args_.topk;
    x_[i] = args_.x + token * args_.dim;
    gate_[i] = gate + i * inner_;
    up_[i] = up + i * inner_;
    out_[i] = out + i * args_.dim;
    result_[slot_of_[i]] = out_[i];
  }
}

// visit(expert, first, count) for each expert that has slots.
template <typename Visit>
void ExpertBlock::ForEachExpert(const Visit& visit) {
  for (size_t e = 0; e < args_.n_experts; ++e) {
    const size_t count = group_begin_[e + 1] - group_begin_[e];
    if (count > 0) visit(args_.experts[e], group_begin_[e], count);
  }
}

// Rows [begin, end) of every slot's hidden vector, left in gate_.
void ExpertBlock::HiddenRows(size_t begin, size_t end) {
  const float* const weights = args_.weights + first_token_ * args_.topk;
  ForEachExpert([&](const Expert& expert, size_t first, size_t count) {
    MatmulRows(expert.w1, {x_ + first, gate_ + first, count}, begin, end);
    MatmulRows(expert.w3, {x_ + first, up_ + first, count}, begin, end);
    for (size_t i = first; i < first + count; ++i) {
      Swiglu({.gate = gate_[i] + begin,
              .up = up_[i] + begin,
              .n = end - begin,
              .weight = weights[slot_of_[i]],
              .limit = args_.swiglu_limit,
              .round_bf16 = args_.round_bf16});
    }
  });
}

// Rows [begin, end) of every token's output.
void ExpertBlock::OutputRows(size_t begin, size_t end) {
  ForEachExpert([&](const Expert& expert, size_t first, size_t count) {
    MatmulRows(expert.w2, {gate_ + first, out_ + first, count}, begin, end);
  });
  for (size_t t = 0; t < tokens_; ++t) {
    SumSlots({.slots = result_ + t * args_.topk,
              .count = args_.topk,
              .begin = begin,
              .end = end,
              .round_bf16 = args_.round_bf16,
              .accumulate = args_.accumulate,
              .y = args_.y + (first_token_ + t) * args_.dim});
  }
}

void ExpertBlock::Run(ThreadPool& pool) {
  GroupByExpert();
  ListRows();
  const auto run_rows = [&](size_t rows, size_t row_work, auto body) {
    pool.ParallelFor(
        CeilDiv(rows, kMatmulRowBlock), GrainFor(kMatmulRowBlock * row_work),
        [&](size_t begin, size_t end, size_t) {
          body(begin * kMatmulRowBlock, std::min(rows, end * kMatmulRowBlock));
        });
  };
  run_rows(inner_, 2 * args_.dim * slots_,
           [&](size_t begin, size_t end) { HiddenRows(begin, end); });
  run_rows(args_.dim, inner_ * slots_,
           [&](size_t begin, size_t end) { OutputRows(begin, end); });
}

}  // namespace

void CpuExperts(const ExpertsArgs& args, ThreadPool& pool) {
  const size_t inner = args.experts[0].w1.rows;
  const size_t token_floats = args.topk * (2 * inner + args.dim);
  const size_t block = std::max<size_t>(1, kScratchFloats / token_floats);
  for (size_t t = 0; t < args.tokens; t += block) {
    ExpertBlock(args, t, std::min(block, args.tokens - t)).Run(pool);
  }
}

}  // namespace ecphory
