// Candidate blocks and top-k.
#include "ops/indexer.h"

#include <functional>

#include "ops/testing.h"

namespace ecphory {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class SelectTest : public OpTest {};
ECPHORY_INSTANTIATE_OP_TEST(SelectTest);

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

TEST_P(SelectTest, CandidatesAreTheBestBlocksAndTheNewest) {
  Random random(24);
  for (const size_t groups : {1, 7, 8, 9, 40, 100, 4999}) {
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
          ops().candidate_blocks(CandidateBlocksArgs{.scores = scores.data(),
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

TEST_P(SelectTest, LiteralCandidates) {
  // Blocks of 2: best 9, 5, 5, 1; the newest visible entry lies in the last.
  const GuardedArray<float> scores = {9, 0, 5, 5, 5, -8, 1, -kInf};
  GuardedArray<uint8_t> mask(4);
  const auto run = [&](size_t top_blocks) {
    ops().candidate_blocks(CandidateBlocksArgs{.scores = scores.data(),
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

TEST_P(SelectTest, TopkKeepsTheBestInAscendingOrder) {
  Random random(25);
  for (const size_t groups : {1, 7, 8, 33, 512, 1000, 2049, 5000, 20011}) {
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
          ops().select_topk(
              SelectTopkArgs{.scores = scores.data(),
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

TEST_P(SelectTest, LiteralTopk) {
  const GuardedArray<float> scores = {1, 3, -2, 3, 3, -kInf};
  const auto run = [&](size_t topk) {
    GuardedArray<int32_t> selected(topk);
    ops().select_topk(SelectTopkArgs{.scores = scores.data(),
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

// --- Long contexts ----------------------------------------------------------

// Distributions that a floor guessed from a sample serves well and badly.
enum class Scores { kRandom, kRising, kFalling, kFewLevels, kEqual, kRare };
constexpr Scores kScores[] = {Scores::kRandom,  Scores::kRising,
                              Scores::kFalling, Scores::kFewLevels,
                              Scores::kEqual,   Scores::kRare};

// One token's scores, with holes that are no number.
GuardedArray<float> LongScores(Scores kind, size_t groups, Random& random) {
  GuardedArray<float> scores(groups);
  for (size_t g = 0; g < groups; ++g) {
    const float at = static_cast<float>(g);
    switch (kind) {
      case Scores::kRandom: scores[g] = 100 * random.Signed(); break;
      case Scores::kRising: scores[g] = at - 1e4f; break;
      case Scores::kFalling: scores[g] = -0.5f * at; break;
      case Scores::kFewLevels:
        scores[g] = static_cast<float>(random.Below(7));
        break;
      case Scores::kEqual: scores[g] = -0.0f; break;
      // So few finite ones that a sample finds next to none.
      case Scores::kRare:
        scores[g] = random.Below(50) == 0 ? random.Signed() : -kInf;
        break;
    }
    if (random.Below(97) == 0) {
      const float kOdd[] = {-kInf, kInf,
                            std::numeric_limits<float>::quiet_NaN()};
      scores[g] = kOdd[random.Below(3)];
    }
  }
  return scores;
}

// Stable sorting keeps the lower entry of equals first.
std::vector<int32_t> BestByScore(const float* scores, size_t n, size_t count,
                                 const std::function<bool(size_t)>& allowed) {
  std::vector<int32_t> order;
  for (size_t g = 0; g < n; ++g) {
    if (std::isfinite(scores[g]) && allowed(g)) {
      order.push_back(static_cast<int32_t>(g));
    }
  }
  std::stable_sort(order.begin(), order.end(), [scores](int32_t a, int32_t b) {
    return scores[a] > scores[b];
  });
  order.resize(std::min(order.size(), count));
  std::sort(order.begin(), order.end());
  return order;
}

TEST_P(SelectTest, LongContexts) {
  Random random(26);
  for (const size_t groups : {4095, 8192, 8193, 40003}) {
    for (const Scores kind : kScores) {
      const GuardedArray<float> scores = LongScores(kind, groups, random);
      GuardedArray<uint8_t> mask((groups + 7) / 8);
      for (uint8_t& m : mask) m = static_cast<uint8_t>(random.Below(3) / 2);
      for (const bool masked : {false, true}) {
        for (const size_t topk : {1, 64, 512, 5000}) {
          std::vector<int32_t> expected = BestByScore(
              scores.data(), groups, topk,
              [&](size_t g) { return !masked || mask[g / 8] != 0; });
          expected.resize(topk, -1);
          for (const size_t threads : {1, 3}) {
            GuardedArray<int32_t> selected(topk);
            ops().select_topk(
                SelectTopkArgs{.scores = scores.data(),
                               .mask = masked ? mask.data() : nullptr,
                               .tokens = 1,
                               .groups = groups,
                               .block_size = 8,
                               .topk = topk,
                               .selected = selected.data()},
                Pool(threads));
            EXPECT_TRUE(SameBits(expected, selected))
                << groups << " groups, top " << topk << ", kind "
                << static_cast<int>(kind);
          }
        }
      }
    }
  }
}

TEST_P(SelectTest, ManyTokens) {
  Random random(28);
  constexpr size_t kTokens = 70, kBlock = 8;
  for (const size_t groups : {1, 600, 2048, 2049, 4096, 8191, 8193}) {
    const size_t blocks = (groups + kBlock - 1) / kBlock;
    GuardedArray<float> scores(kTokens * groups);
    GuardedArray<uint8_t> mask(kTokens * blocks);
    for (uint8_t& m : mask) m = static_cast<uint8_t>(random.Below(3) / 2);
    for (size_t t = 0; t < kTokens; ++t) {
      const GuardedArray<float> of_token =
          LongScores(kScores[t % std::size(kScores)], groups, random);
      std::copy(of_token.begin(), of_token.end(), scores.data() + t * groups);
    }
    for (const bool masked : {false, true}) {
      for (const size_t topk : {1, 512, 9000}) {
        std::vector<int32_t> expected;
        for (size_t t = 0; t < kTokens; ++t) {
          std::vector<int32_t> best = BestByScore(
              scores.data() + t * groups, groups, topk, [&](size_t g) {
                return !masked || mask[t * blocks + g / kBlock] != 0;
              });
          best.resize(topk, -1);
          expected.insert(expected.end(), best.begin(), best.end());
        }
        GuardedArray<int32_t> selected(kTokens * topk);
        ops().select_topk(SelectTopkArgs{.scores = scores.data(),
                                         .mask = masked ? mask.data() : nullptr,
                                         .tokens = kTokens,
                                         .groups = groups,
                                         .block_size = kBlock,
                                         .topk = topk,
                                         .selected = selected.data()},
                          Pool(2));
        EXPECT_TRUE(SameBits(expected, selected))
            << groups << " groups, top " << topk;
      }
    }
  }
}

TEST_P(SelectTest, LongCandidates) {
  Random random(27);
  for (const size_t groups : {40003, 65536}) {
    for (const Scores kind : kScores) {
      for (const size_t block : {5, 8, 16}) {
        const size_t blocks = (groups + block - 1) / block;
        const GuardedArray<float> scores = LongScores(kind, groups, random);
        std::vector<float> best(blocks, -kInf);
        size_t newest = 0;
        for (size_t g = 0; g < groups; ++g) {
          if (!std::isfinite(scores[g])) continue;
          newest = g / block;
          best[newest] = std::max(best[newest], scores[g]);
        }
        for (const size_t top_blocks : {1, 2, 300, 2048}) {
          std::vector<uint8_t> expected(blocks, 0);
          for (const int32_t b :
               BestByScore(best.data(), newest, top_blocks - 1,
                           [](size_t) { return true; })) {
            expected[static_cast<size_t>(b)] = 1;
          }
          expected[newest] = 1;
          GuardedArray<uint8_t> mask(blocks);
          ops().candidate_blocks(CandidateBlocksArgs{.scores = scores.data(),
                                                     .tokens = 1,
                                                     .groups = groups,
                                                     .block_size = block,
                                                     .top_blocks = top_blocks,
                                                     .mask = mask.data()},
                                 Pool(1 + block % 3));
          EXPECT_TRUE(SameBits(expected, mask))
              << groups << " groups in blocks of " << block << ", top "
              << top_blocks << ", kind " << static_cast<int>(kind);
        }
      }
    }
  }
}

TEST_P(SelectTest, NothingVisible) {
  GuardedArray<float> scores(20000);
  std::fill(scores.begin(), scores.end(), -kInf);
  GuardedArray<uint8_t> mask(2500);
  ops().candidate_blocks(CandidateBlocksArgs{.scores = scores.data(),
                                             .tokens = 1,
                                             .groups = scores.size(),
                                             .block_size = 8,
                                             .top_blocks = 100,
                                             .mask = mask.data()},
                         Pool(2));
  for (const uint8_t m : mask) ASSERT_EQ(0, m);
  GuardedArray<int32_t> selected(64);
  ops().select_topk(SelectTopkArgs{.scores = scores.data(),
                                   .mask = mask.data(),
                                   .tokens = 1,
                                   .groups = scores.size(),
                                   .block_size = 8,
                                   .topk = selected.size(),
                                   .selected = selected.data()},
                    Pool(2));
  for (const int32_t id : selected) ASSERT_EQ(-1, id);
}

}  // namespace
}  // namespace ecphory
