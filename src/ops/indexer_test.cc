#include "ops/indexer.h"

#include "ops/testing.h"

namespace ecphory {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class IndexerTest : public OpTest {};
ECPHORY_INSTANTIATE_OP_TEST(IndexerTest);

TEST_P(IndexerTest, ScoresMatchTheFormula) {
  Random random(22);
  const struct {
    RowFormat format;
    size_t dim;
  } kKeys[] = {{RowFormat::kF32, 1},         {RowFormat::kF32, 7},
               {RowFormat::kF32, 33},        {RowFormat::kF32, 128},
               {RowFormat::kFp4Block32, 32}, {RowFormat::kFp4Block32, 96},
               {RowFormat::kFp4Block32, 128}};
  for (const auto& key : kKeys) {
    for (const size_t heads : {1, 2, 3, 4, 5, 8, 32}) {
      for (const size_t ratio : {1, 2}) {
        constexpr size_t kTokens = 5;
        constexpr size_t kGroups = 19;
        const uint64_t first_position = 17;
        const size_t row_bytes = RowBytes(key.format, key.dim);
        const GuardedArray<float> q = random.Array(kTokens * heads * key.dim);
        const GuardedArray<float> w = random.Array(kTokens * heads);
        const GuardedArray<float> raw = random.Array(kGroups * key.dim);
        GuardedArray<uint8_t> rows(kGroups * row_bytes);
        std::vector<float> k(kGroups * key.dim);
        for (size_t g = 0; g < kGroups; ++g) {
          uint8_t* row = rows.data() + g * row_bytes;
          EncodeRow(key.format, raw.data() + g * key.dim, key.dim, row);
          DecodeRow(key.format, row, key.dim, k.data() + g * key.dim);
          // A row that no token sees yet may hold anything.
          if (g >= (first_position + kTokens) / ratio) {
            std::memset(row, 0xff, row_bytes);
          }
        }
        const float key_scale = 0.25f;
        const float head_scale = 0.5f;
        std::vector<Expected> expected(kTokens * kGroups);
        for (size_t i = 0; i < expected.size(); ++i) {
          for (size_t h = 0; h < heads; ++h) {
            const size_t qh = i / kGroups * heads + h;
            Expected dot;
            for (size_t c = 0; c < key.dim; ++c) {
              dot.Add(static_cast<double>(q[qh * key.dim + c]) *
                      k[i % kGroups * key.dim + c]);
            }
            const double weight = w[qh] * key_scale * head_scale;
            expected[i].value += std::max(dot.value, 0.0) * weight;
            expected[i].magnitude += dot.magnitude * std::fabs(weight);
          }
        }
        for (const size_t threads : {1, 2, 3}) {
          GuardedArray<float> scores(kTokens * kGroups);
          ops().index_scores({.q = q.data(),
                              .weights = w.data(),
                              .tokens = kTokens,
                              .heads = heads,
                              .dim = key.dim,
                              .first_position = first_position,
                              .ratio = ratio,
                              .key_format = key.format,
                              .key_rows = rows.data(),
                              .groups = kGroups,
                              .key_scale = key_scale,
                              .head_scale = head_scale,
                              .scores = scores.data()},
                             Pool(threads));
          for (size_t i = 0; i < expected.size(); ++i) {
            const uint64_t position = first_position + i / kGroups;
            if (i % kGroups >= (position + 1) / ratio) {
              EXPECT_EQ(-kInf, scores[i]) << "visible too early";
            } else {
              EXPECT_TRUE(AllClose({expected[i]}, scores.data() + i,
                                   SumBound(key.dim + heads)))
                  << RowFormatName(key.format) << " dim " << key.dim
                  << " heads " << heads;
            }
          }
        }
      }
    }
  }
}

TEST_P(IndexerTest, LiteralScores) {
  // Head 0 sees key . (1, 0), head 1 sees key . (0, 1); weights 2 and -3.
  const GuardedArray<float> q = {1, 0, 0, 1};
  const GuardedArray<float> w = {2, -3};
  const GuardedArray<float> keys = {5, 7, -5, 7, -5, -7};
  GuardedArray<float> scores(3);
  ops().index_scores({.q = q.data(),
                      .weights = w.data(),
                      .tokens = 1,
                      .heads = 2,
                      .dim = 2,
                      .first_position = 2,
                      .ratio = 1,
                      .key_rows = reinterpret_cast<const uint8_t*>(keys.data()),
                      .groups = 3,
                      .key_scale = 0.5f,
                      .head_scale = 4,
                      .scores = scores.data()},
                     Pool(1));
  EXPECT_EQ((std::vector<float>{-22, -42, 0}), scores.Copy());
}

// An index key's score must not depend on the chunk that asks for it.
TEST_P(IndexerTest, AScoresBitsDependOnNothingElse) {
  constexpr size_t kTokens = 33;
  constexpr size_t kGroups = 40;
  constexpr size_t kHeads = 5;
  constexpr size_t kDim = 64;
  Random random(23);
  const GuardedArray<float> q = random.Array(kTokens * kHeads * kDim);
  const GuardedArray<float> w = random.Array(kTokens * kHeads);
  const GuardedArray<float> raw = random.Array(kGroups * kDim);
  const size_t row_bytes = RowBytes(RowFormat::kFp4Block32, kDim);
  GuardedArray<uint8_t> keys(kGroups * row_bytes);
  for (size_t g = 0; g < kGroups; ++g) {
    EncodeRow(RowFormat::kFp4Block32, raw.data() + g * kDim, kDim,
              keys.data() + g * row_bytes);
  }
  const auto run = [&](size_t chunk, size_t groups, size_t threads) {
    GuardedArray<float> scores(kTokens * groups);
    for (size_t t = 0; t < kTokens; t += chunk) {
      ops().index_scores({.q = q.data() + t * kHeads * kDim,
                          .weights = w.data() + t * kHeads,
                          .tokens = std::min(chunk, kTokens - t),
                          .heads = kHeads,
                          .dim = kDim,
                          .first_position = 50 + t,
                          .ratio = 1,
                          .key_format = RowFormat::kFp4Block32,
                          .key_rows = keys.data(),
                          .groups = groups,
                          .key_scale = 0.125f,
                          .head_scale = 0.3f,
                          .scores = scores.data() + t * groups},
                         Pool(threads));
    }
    return scores.Copy();
  };
  const std::vector<float> whole = run(kTokens, kGroups, 1);
  for (const size_t chunk : {1, 7, 33}) {
    for (const size_t threads : {1, 2, 3}) {
      EXPECT_TRUE(SameBits(whole, run(chunk, kGroups, threads)));
    }
  }
  const std::vector<float> fewer = run(kTokens, 13, 1);
  for (size_t i = 0; i < fewer.size(); ++i) {
    ASSERT_EQ(whole[i / 13 * kGroups + i % 13], fewer[i]);
  }
}

// Scores with many ties: small integers, some invisible at the end.
GuardedArray<float> TiedScores(size_t tokens, size_t groups, size_t levels,
                               Random& random) {
  GuardedArray<float> scores(tokens * groups);
  for (size_t t = 0; t < tokens; ++t) {
    const size_t visible = random.Below(static_cast<uint32_t>(groups + 1));
    for (size_t g = 0; g < groups; ++g) {
      scores[t * groups + g] =
          g < visible
              ? static_cast<float>(random.Below(static_cast<uint32_t>(levels)))
              : -kInf;
    }
  }
  return scores;
}

TEST_P(IndexerTest, CandidatesAreTheBestBlocksAndTheNewest) {
  Random random(24);
  for (const size_t groups : {1, 7, 8, 9, 40, 100}) {
    for (const size_t block_size : {1, 4, 8}) {
      for (const size_t top_blocks : {1, 2, 3, 50}) {
        constexpr size_t kTokens = 7;
        const size_t blocks = (groups + block_size - 1) / block_size;
        const GuardedArray<float> scores =
            TiedScores(kTokens, groups, 5, random);
        std::vector<uint8_t> expected(kTokens * blocks, 0);
        for (size_t t = 0; t < kTokens; ++t) {
          std::vector<float> best(blocks, -kInf);
          size_t newest = blocks;
          for (size_t g = 0; g < groups; ++g) {
            const float score = scores[t * groups + g];
            if (score == -kInf) continue;
            newest = g / block_size;
            best[newest] = std::max(best[newest], score);
          }
          if (newest < blocks) best[newest] = kInf;
          for (size_t b = 0; b < blocks; ++b) {
            size_t ahead = 0;
            for (size_t o = 0; o < blocks; ++o) {
              ahead += best[o] > best[b] || (best[o] == best[b] && o < b);
            }
            expected[t * blocks + b] = best[b] > -kInf && ahead < top_blocks;
          }
        }
        for (const size_t threads : {1, 2, 3}) {
          GuardedArray<uint8_t> mask(kTokens * blocks);
          ops().candidate_blocks({.scores = scores.data(),
                                  .tokens = kTokens,
                                  .groups = groups,
                                  .block_size = block_size,
                                  .top_blocks = top_blocks,
                                  .mask = mask.data()},
                                 Pool(threads));
          EXPECT_TRUE(SameBits(expected, mask))
              << groups << " groups in blocks of " << block_size << ", top "
              << top_blocks;
        }
      }
    }
  }
}

TEST_P(IndexerTest, LiteralCandidates) {
  // Blocks of 2: best 9, 5, 5, 1; the newest visible entry lies in the last.
  const GuardedArray<float> scores = {9, 0, 5, 5, 5, -8, 1, -kInf};
  GuardedArray<uint8_t> mask(4);
  const auto run = [&](size_t top_blocks) {
    ops().candidate_blocks({.scores = scores.data(),
                            .tokens = 1,
                            .groups = 8,
                            .block_size = 2,
                            .top_blocks = top_blocks,
                            .mask = mask.data()},
                           Pool(1));
    return mask.Copy();
  };
  EXPECT_EQ((std::vector<uint8_t>{0, 0, 0, 1}), run(1));
  EXPECT_EQ((std::vector<uint8_t>{1, 0, 0, 1}), run(2));
  EXPECT_EQ((std::vector<uint8_t>{1, 1, 0, 1}), run(3));
}

TEST_P(IndexerTest, TopkKeepsTheBestInAscendingOrder) {
  Random random(25);
  for (const size_t groups : {1, 7, 8, 33, 1000, 5000}) {
    for (const size_t topk : {1, 2, 16, 512}) {
      for (const size_t block_size : {0, 8}) {
        constexpr size_t kTokens = 4;
        const size_t levels = groups < 100 ? 4 : 300;
        const GuardedArray<float> scores =
            TiedScores(kTokens, groups, levels, random);
        const size_t blocks = block_size != 0 ? (groups + 7) / 8 : 0;
        GuardedArray<uint8_t> mask(kTokens * blocks);
        for (uint8_t& m : mask) m = static_cast<uint8_t>(random.Below(2));
        std::vector<int32_t> expected;
        for (size_t t = 0; t < kTokens; ++t) {
          std::vector<int32_t> order;
          for (size_t g = 0; g < groups; ++g) {
            const bool candidate =
                block_size == 0 || mask[t * blocks + g / 8] != 0;
            if (candidate && scores[t * groups + g] > -kInf) {
              order.push_back(static_cast<int32_t>(g));
            }
          }
          const float* s = scores.data() + t * groups;
          std::stable_sort(order.begin(), order.end(),
                           [s](int32_t a, int32_t b) { return s[a] > s[b]; });
          order.resize(std::min(order.size(), topk));
          std::sort(order.begin(), order.end());
          order.resize(topk, -1);
          expected.insert(expected.end(), order.begin(), order.end());
        }
        for (const size_t threads : {1, 2, 3}) {
          GuardedArray<int32_t> selected(kTokens * topk);
          ops().select_topk({.scores = scores.data(),
                             .mask = block_size != 0 ? mask.data() : nullptr,
                             .tokens = kTokens,
                             .groups = groups,
                             .block_size = block_size,
                             .topk = topk,
                             .selected = selected.data()},
                            Pool(threads));
          EXPECT_TRUE(SameBits(expected, selected))
              << groups << " groups, top " << topk;
        }
      }
    }
  }
}

TEST_P(IndexerTest, LiteralTopk) {
  const GuardedArray<float> scores = {1, 3, -2, 3, 3, -kInf};
  const auto run = [&](size_t topk) {
    GuardedArray<int32_t> selected(topk);
    ops().select_topk({.scores = scores.data(),
                       .tokens = 1,
                       .groups = 6,
                       .topk = topk,
                       .selected = selected.data()},
                      Pool(1));
    return selected.Copy();
  };
  EXPECT_EQ((std::vector<int32_t>{1}), run(1));
  EXPECT_EQ((std::vector<int32_t>{1, 3}), run(2));
  EXPECT_EQ((std::vector<int32_t>{0, 1, 3, 4}), run(4));
  EXPECT_EQ((std::vector<int32_t>{0, 1, 2, 3, 4, -1, -1}), run(7));
}

}  // namespace
}  // namespace ecphory
