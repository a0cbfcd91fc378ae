// Operators that are called for several sequences at once do what they do for
// each by itself: sequences of any lengths, more of them than a launch takes,
// some of which have nothing to do.
#include "ops/calls.h"

#include "ops/ops.h"
#include "ops/testing.h"

namespace ecphory {
namespace {

constexpr size_t kSequences = 35;

class CallsTest : public OpTest {
 protected:
  // Runs the calls at once and one by one into outputs of `count` values each,
  // which `set` puts into the arguments.
  template <typename T, typename Args, typename SetOut>
  void Check(void (*op)(const Calls<Args>&, ThreadPool&),
             std::vector<Args> calls, size_t count, const SetOut& set) {
    GuardedArray<T> together(calls.size() * count);
    GuardedArray<T> alone(calls.size() * count);
    for (const size_t threads : {1, 3}) {
      together.Poison();
      alone.Poison();
      const auto into = [&](GuardedArray<T>& out) {
        for (size_t i = 0; i < calls.size(); ++i) {
          set(calls[i], out.data() + i * count);
        }
      };
      into(alone);
      for (const Args& args : calls) op(args, Pool(1));
      into(together);
      op(std::span<const Args>(calls), Pool(threads));
      ExpectSame(alone, together);
    }
  }

  void ExpectSame(const GuardedArray<float>& alone,
                  const GuardedArray<float>& together) {
    if (!is_cuda()) {
      EXPECT_TRUE(SameBits(alone, together));
      return;
    }
    // What shares a device is cut into other sums.
    for (size_t i = 0; i < alone.size(); ++i) {
      if (std::isnan(alone[i]) && std::isnan(together[i])) continue;
      if (alone[i] == together[i]) continue;
      EXPECT_NEAR(alone[i], together[i], 1e-5f * (1 + std::fabs(alone[i])))
          << i;
    }
  }
  template <typename T>
  void ExpectSame(const GuardedArray<T>& alone,
                  const GuardedArray<T>& together) {
    EXPECT_TRUE(SameBits(alone, together));
  }

  GuardedArray<uint8_t> PackedRows(RowFormat format, size_t rows, size_t dim) {
    const size_t row_bytes = RowBytes(format, dim);
    GuardedArray<uint8_t> packed(rows * row_bytes);
    for (size_t i = 0; i < rows; ++i) {
      const GuardedArray<float> x = random_.Array(dim);
      EncodeRow(format, x.data(), dim, packed.data() + i * row_bytes);
    }
    return packed;
  }

  // Of dim 512 and 16 heads or more on tensor cores, where there are any.
  void CheckAttention(size_t heads, size_t dim, bool selects) {
    constexpr size_t kMostTokens = 3, kTopk = 5, kLatents = 9;
    const AttentionArgs shape{.heads = heads,
                              .dim = dim,
                              .window_format = RowFormat::kFp8Block32,
                              .latent_format = RowFormat::kFp4Block16,
                              .scale = 0.1f,
                              .window = 6,
                              .topk = selects ? kTopk : 0};
    const GuardedArray<float> sink = random_.Array(heads);
    const GuardedArray<float> q = random_.Array(kMostTokens * heads * dim);
    GuardedArray<int32_t> selected(kMostTokens * kTopk);
    for (size_t i = 0; i < selected.size(); ++i) {
      selected[i] = i % kTopk < 3 ? static_cast<int32_t>(i % kTopk * 2) : -1;
    }
    std::vector<GuardedArray<uint8_t>> windows, latents;
    std::vector<AttentionArgs> calls;
    for (size_t i = 0; i < kSequences; ++i) {
      AttentionArgs args = shape;
      args.tokens = i % (kMostTokens + 1);
      args.first_position = 7 * i;
      args.window_capacity = 9 + i;
      args.window_begin = i % 3 == 0 ? args.first_position : 0;
      windows.push_back(
          PackedRows(args.window_format, args.window_capacity, dim));
      latents.push_back(PackedRows(args.latent_format, kLatents, dim));
      args.q = q.data();
      args.window_rows = windows.back().data();
      args.latent_rows = latents.back().data();
      args.selected = selects ? selected.data() : nullptr;
      args.sink = sink.data();
      calls.push_back(args);
    }
    Check<float>(ops().attention, calls, kMostTokens * heads * dim,
                 [](AttentionArgs& args, float* out) { args.out = out; });
  }

  // FP4 keys of 128 values on tensor cores likewise.
  void CheckScores(size_t heads, size_t dim, bool masked) {
    constexpr size_t kMostTokens = 10, kMostGroups = 100, kBlock = 8;
    GuardedArray<float> q = random_.Array(kMostTokens * heads * dim);
    RefOps().round_rows({.x = q.data(),
                         .rows = kMostTokens * heads,
                         .dim = dim,
                         .format = RowFormat::kFp4Block32},
                        Pool(1));
    const GuardedArray<float> weights = random_.Array(kMostTokens * heads);
    GuardedArray<uint8_t> mask(kMostTokens * kMostGroups);
    for (uint8_t& of_block : mask) of_block = random_.Below(2) == 0;
    std::vector<GuardedArray<uint8_t>> keys;
    std::vector<IndexScoresArgs> calls;
    for (size_t i = 0; i < kSequences; ++i) {
      const size_t groups = i * 37 % (kMostGroups + 1);
      keys.push_back(PackedRows(RowFormat::kFp4Block32, groups, dim));
      calls.push_back({.q = q.data(),
                       .weights = weights.data(),
                       .tokens = i % (kMostTokens + 1),
                       .heads = heads,
                       .dim = dim,
                       .first_position = 2 * groups,
                       .ratio = 2,
                       .key_format = RowFormat::kFp4Block32,
                       .key_rows = keys.back().data(),
                       .groups = groups,
                       .key_scale = 0.5f,
                       .head_scale = 0.25f,
                       .mask = masked && i % 4 != 0 ? mask.data() : nullptr,
                       .block_size = kBlock});
    }
    Check<float>(ops().index_scores, calls, kMostTokens * kMostGroups,
                 [](IndexScoresArgs& args, float* out) { args.scores = out; });
  }

  Random random_{41};
};
ECPHORY_INSTANTIATE_OP_TEST(CallsTest);

TEST_P(CallsTest, StoreRows) {
  constexpr size_t kDim = 64, kMostRows = 5, kCapacity = 11;
  const GuardedArray<float> x = random_.Array(kMostRows * kDim);
  for (const RowFormat format :
       {RowFormat::kF32, RowFormat::kFp8Block32, RowFormat::kFp4Block16}) {
    std::vector<StoreRowsArgs> calls;
    for (size_t i = 0; i < kSequences; ++i) {
      calls.push_back({.x = x.data(),
                       .rows = i % (kMostRows + 1),
                       .dim = kDim,
                       .format = format,
                       .first_row = 3 * i,
                       .capacity = kCapacity - i % 3});
    }
    Check<uint8_t>(ops().store_rows, calls, kCapacity * RowBytes(format, kDim),
                   [](StoreRowsArgs& args, uint8_t* out) { args.cache = out; });
  }
}

TEST_P(CallsTest, PoolGroups) {
  constexpr size_t kDim = 40, kMostGroups = 3;
  std::vector<GuardedArray<float>> kv, gate;
  std::vector<PoolGroupsArgs> calls;
  for (size_t i = 0; i < kSequences; ++i) {
    const size_t capacity = 8 + i % 3;
    kv.push_back(random_.Array(capacity * kDim));
    gate.push_back(random_.Array(capacity * kDim));
    calls.push_back({.kv = kv.back().data(),
                     .gate = gate.back().data(),
                     .capacity = capacity,
                     .dim = kDim,
                     .ratio = 2,
                     .first_group = i,
                     .groups = i % (kMostGroups + 1)});
  }
  Check<float>(ops().pool_groups, calls, kMostGroups * kDim,
               [](PoolGroupsArgs& args, float* out) { args.latent = out; });
}

TEST_P(CallsTest, Attention) {
  CheckAttention(3, 64, /*selects=*/true);
  CheckAttention(2, 32, /*selects=*/false);
  CheckAttention(40, 512, /*selects=*/true);
  CheckAttention(16, 512, /*selects=*/false);
}

TEST_P(CallsTest, IndexScores) {
  for (const bool masked : {false, true}) {
    CheckScores(3, 64, masked);
    CheckScores(32, 128, masked);
  }
}

// Of few entries and many, of which a cluster of blocks takes a token's.
TEST_P(CallsTest, BlocksAndTopk) {
  constexpr size_t kMostTokens = 2, kBlock = 4, kTopk = 12;
  for (const size_t most : {size_t{300}, size_t{17000}}) {
    const size_t blocks = most / kBlock;
    GuardedArray<float> scores = random_.Array(kMostTokens * most);
    for (size_t i = 0; i < scores.size(); i += 5) {
      scores[i] = -std::numeric_limits<float>::infinity();
    }
    GuardedArray<uint8_t> mask(kMostTokens * blocks);
    for (uint8_t& of_block : mask) of_block = random_.Below(3) == 0;
    std::vector<CandidateBlocksArgs> choices;
    std::vector<SelectTopkArgs> selections;
    for (size_t i = 0; i < kSequences; ++i) {
      const size_t groups = i * 1009 % (most + 1), tokens = i % 3;
      choices.push_back({.scores = scores.data(),
                         .tokens = tokens,
                         .groups = groups,
                         .block_size = kBlock,
                         .top_blocks = 5});
      selections.push_back({.scores = scores.data(),
                            .mask = i % 4 == 1 ? mask.data() : nullptr,
                            .tokens = tokens,
                            .groups = groups,
                            .block_size = kBlock,
                            .topk = kTopk});
    }
    Check<uint8_t>(
        ops().candidate_blocks, choices, kMostTokens * blocks,
        [](CandidateBlocksArgs& args, uint8_t* out) { args.mask = out; });
    Check<int32_t>(
        ops().select_topk, selections, kMostTokens * kTopk,
        [](SelectTopkArgs& args, int32_t* out) { args.selected = out; });
  }
}

}  // namespace
}  // namespace ecphory
