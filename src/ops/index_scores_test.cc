#include "ops/indexer.h"
#include "ops/testing.h"

namespace ecphory {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct ScoresCase {
  RowFormat format = RowFormat::kFp4Block32;
  size_t tokens = 1;
  size_t heads = 1;
  size_t dim = 32;
  size_t groups = 1;
  size_t ratio = 1;
  uint64_t first_position = 0;
  // Blocks of 32 channels of a key or a query differ by up to 2^spread.
  int spread = 0;
};

// Rows as `format` holds them: their bytes and exact values.
struct Rows {
  Rows(const ScoresCase& c, size_t n, Random& random)
      : row_bytes(RowBytes(c.format, c.dim)),
        bytes(n * row_bytes),
        values(n * c.dim) {
    for (size_t i = 0; i < n; ++i) {
      std::vector<float> x(c.dim);
      for (size_t b = 0; b < c.dim; b += 32) {
        const int exponent =
            static_cast<int>(random.Below(static_cast<uint32_t>(c.spread + 1)));
        for (size_t j = b; j < std::min(b + 32, c.dim); ++j) {
          x[j] = std::ldexp(random.Signed(), exponent - c.spread / 2);
        }
      }
      EncodeRow(c.format, x.data(), c.dim, row(i));
      DecodeRow(c.format, row(i), c.dim, values.data() + i * c.dim);
    }
  }

  uint8_t* row(size_t i) { return bytes.data() + i * row_bytes; }

  size_t row_bytes;
  GuardedArray<uint8_t> bytes;
  GuardedArray<float> values;
};

struct Inputs {
  Inputs(const ScoresCase& c, Random& random)
      : q(c, c.tokens * c.heads, random),
        keys(c, c.groups, random),
        weights(random.Array(c.tokens * c.heads)) {
    // A row that no token sees yet may hold anything.
    for (size_t g = (c.first_position + c.tokens) / c.ratio; g < c.groups;
         ++g) {
      std::memset(keys.row(g), 0xff, keys.row_bytes);
    }
  }

  Rows q;
  Rows keys;
  GuardedArray<float> weights;
};

constexpr float kKeyScale = 0.25f;
constexpr float kHeadScale = 0.5f;

IndexScoresArgs Args(const ScoresCase& c, const Inputs& in) {
  return {.q = in.q.values.data(),
          .weights = in.weights.data(),
          .tokens = c.tokens,
          .heads = c.heads,
          .dim = c.dim,
          .first_position = c.first_position,
          .ratio = c.ratio,
          .key_format = c.format,
          .key_rows = in.keys.bytes.data(),
          .groups = c.groups,
          .key_scale = kKeyScale,
          .head_scale = kHeadScale};
}

Expected ExpectedScore(const ScoresCase& c, const Inputs& in, size_t token,
                       size_t group) {
  Expected score;
  for (size_t h = 0; h < c.heads; ++h) {
    const size_t row = token * c.heads + h;
    Expected dot;
    for (size_t i = 0; i < c.dim; ++i) {
      dot.Add(static_cast<double>(in.q.values[row * c.dim + i]) *
              in.keys.values[group * c.dim + i]);
    }
    const double weight = in.weights[row] * kKeyScale * kHeadScale;
    score.value += std::max(dot.value, 0.0) * weight;
    score.magnitude += dot.magnitude * std::fabs(weight);
  }
  return score;
}

class IndexScoresTest : public OpTest {
 protected:
  // `mask` may be null.
  GuardedArray<float> Run(const ScoresCase& c, const Inputs& in, size_t threads,
                          const uint8_t* mask, size_t block_size) {
    GuardedArray<float> scores(c.tokens * c.groups);
    IndexScoresArgs args = Args(c, in);
    args.mask = mask;
    args.block_size = block_size;
    args.scores = scores.data();
    ops().index_scores(args, Pool(threads));
    return scores;
  }

  void Check(const ScoresCase& c, size_t threads) {
    const Inputs in(c, random_);
    const GuardedArray<float> scores = Run(c, in, threads, nullptr, 0);
    for (size_t i = 0; i < scores.size(); ++i) {
      const size_t token = i / c.groups, group = i % c.groups;
      if (group >= (c.first_position + token + 1) / c.ratio) {
        EXPECT_EQ(-kInf, scores[i]) << "visible too early";
        continue;
      }
      EXPECT_TRUE(AllClose({ExpectedScore(c, in, token, group)},
                           scores.data() + i, SumBound(c.dim + c.heads)))
          << RowFormatName(c.format) << " dim " << c.dim << " heads " << c.heads
          << " token " << token << " group " << group;
    }
  }

  Random random_{22};
};
ECPHORY_INSTANTIATE_OP_TEST(IndexScoresTest);

TEST_P(IndexScoresTest, MatchTheFormula) {
  const struct {
    RowFormat format;
    size_t dim;
  } kKeys[] = {{RowFormat::kF32, 1},          {RowFormat::kF32, 7},
               {RowFormat::kF32, 33},         {RowFormat::kF32, 128},
               {RowFormat::kFp4Block32, 32},  {RowFormat::kFp4Block32, 96},
               {RowFormat::kFp4Block32, 128}, {RowFormat::kFp4Block32, 160}};
  for (const auto& key : kKeys) {
    for (const size_t heads : {1, 2, 3, 4, 5, 8, 32}) {
      for (const size_t ratio : {1, 2}) {
        Check({.format = key.format,
               .tokens = 5,
               .heads = heads,
               .dim = key.dim,
               .groups = 19,
               .ratio = ratio,
               .first_position = 17},
              1 + heads % 3);
      }
    }
  }
}

// Around the sizes of tiles, all visible and not.
TEST_P(IndexScoresTest, EveryNumberOfKeys) {
  for (const size_t groups : {1, 2, 15, 16, 17, 63, 64, 65, 129, 200}) {
    for (const uint64_t position : {uint64_t{0}, uint64_t{40}, uint64_t{199}}) {
      Check({.tokens = 3,
             .heads = 3,
             .dim = 64,
             .groups = groups,
             .first_position = position},
            1 + groups % 3);
    }
  }
}

TEST_P(IndexScoresTest, BlocksOfVeryDifferentScales) {
  for (const int spread : {1, 4, 12, 30, 60}) {
    Check({.tokens = 2,
           .heads = 4,
           .dim = 128,
           .groups = 70,
           .first_position = 100,
           .spread = spread},
          2);
  }
}

// The largest codes of one sign add up without overflow.
TEST_P(IndexScoresTest, LargestCodes) {
  constexpr size_t kDim = 128;
  for (const float sign : {1.0f, -1.0f}) {
    GuardedArray<float> q(kDim);
    std::fill(q.begin(), q.end(), 6.0f);
    std::vector<float> key(kDim, 6 * sign);
    GuardedArray<uint8_t> row(RowBytes(RowFormat::kFp4Block32, kDim));
    EncodeRow(RowFormat::kFp4Block32, key.data(), kDim, row.data());
    const GuardedArray<float> weight = {1};
    GuardedArray<float> score(1);
    ops().index_scores(IndexScoresArgs{.q = q.data(),
                                       .weights = weight.data(),
                                       .tokens = 1,
                                       .heads = 1,
                                       .dim = kDim,
                                       .first_position = 0,
                                       .ratio = 1,
                                       .key_format = RowFormat::kFp4Block32,
                                       .key_rows = row.data(),
                                       .groups = 1,
                                       .key_scale = 1,
                                       .head_scale = 1,
                                       .scores = score.data()},
                       Pool(1));
    EXPECT_EQ(sign > 0 ? 36.0f * kDim : 0.0f, score[0]);
  }
}

TEST_P(IndexScoresTest, LiteralScores) {
  // Head 0 sees key . (1, 0), head 1 sees key . (0, 1); weights 2 and -3.
  const GuardedArray<float> q = {1, 0, 0, 1};
  const GuardedArray<float> w = {2, -3};
  const GuardedArray<float> keys = {5, 7, -5, 7, -5, -7};
  GuardedArray<float> scores(3);
  ops().index_scores(
      IndexScoresArgs{.q = q.data(),
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

// A NaN reaches every score that it belongs to and no other.
TEST_P(IndexScoresTest, NaNs) {
  for (const RowFormat format : {RowFormat::kF32, RowFormat::kFp4Block32}) {
    const ScoresCase c{.format = format,
                       .tokens = 2,
                       .heads = 3,
                       .dim = 64,
                       .groups = 30,
                       .first_position = 100};
    Inputs in(c, random_);
    std::vector<float> x(c.dim, 1.0f);
    x[40] = std::numeric_limits<float>::quiet_NaN();
    EncodeRow(format, x.data(), c.dim, in.keys.row(7));
    // Token 1, head 2: the whole block, as rounding leaves it.
    for (size_t i = 32; i < 64; ++i) {
      in.q.values[(1 * c.heads + 2) * c.dim + i] =
          std::numeric_limits<float>::quiet_NaN();
    }
    const GuardedArray<float> scores = Run(c, in, 2, nullptr, 0);
    for (size_t i = 0; i < scores.size(); ++i) {
      EXPECT_EQ(i % c.groups == 7 || i / c.groups == 1, std::isnan(scores[i]))
          << RowFormatName(format) << " " << i;
    }
  }
}

// Candidates score as if there were no mask, all others nothing.
TEST_P(IndexScoresTest, Masked) {
  for (const RowFormat format : {RowFormat::kF32, RowFormat::kFp4Block32}) {
    for (const size_t block_size : {1, 3, 8}) {
      for (const size_t tokens : {1, 9}) {
        const ScoresCase c{.format = format,
                           .tokens = tokens,
                           .heads = 5,
                           .dim = 64,
                           .groups = 333,
                           .ratio = 2,
                           .first_position = 640};
        const Inputs in(c, random_);
        const size_t blocks = (c.groups + block_size - 1) / block_size;
        GuardedArray<uint8_t> mask(c.tokens * blocks);
        for (size_t i = 0; i < mask.size(); ++i) {
          // Token 4 has no candidates.
          mask[i] = i / blocks != 4 && random_.Below(3) == 0 ? 1 : 0;
        }
        const GuardedArray<float> all = Run(c, in, 1, nullptr, 0);
        for (const size_t threads : {1, 2, 3}) {
          const GuardedArray<float> some =
              Run(c, in, threads, mask.data(), block_size);
          std::vector<float> expected = all.Copy();
          for (size_t i = 0; i < expected.size(); ++i) {
            const size_t block = i % c.groups / block_size;
            if (mask[i / c.groups * blocks + block] == 0) expected[i] = -kInf;
          }
          EXPECT_TRUE(SameBits(expected, some))
              << RowFormatName(format) << " " << block_size;
        }
      }
    }
  }
}

// A score depends neither on the chunk that asks for it nor on how many
// entries there are.
TEST_P(IndexScoresTest, AScoresBitsDependOnNothingElse) {
  const ScoresCase c{.tokens = 33,
                     .heads = 5,
                     .dim = 64,
                     .groups = 140,
                     .first_position = 150,
                     .spread = 9};
  const Inputs in(c, random_);
  const auto run = [&](size_t chunk, size_t groups, size_t threads) {
    GuardedArray<float> scores(c.tokens * groups);
    for (size_t t = 0; t < c.tokens; t += chunk) {
      IndexScoresArgs args = Args(c, in);
      args.q += t * c.heads * c.dim;
      args.weights += t * c.heads;
      args.tokens = std::min(chunk, c.tokens - t);
      args.first_position += t;
      args.groups = groups;
      args.scores = scores.data() + t * groups;
      ops().index_scores(args, Pool(threads));
    }
    return scores.Copy();
  };
  const std::vector<float> whole = run(c.tokens, c.groups, 1);
  for (const size_t chunk : {1, 7, 33}) {
    for (const size_t threads : {1, 2, 3}) {
      EXPECT_TRUE(SameBits(whole, run(chunk, c.groups, threads)));
    }
  }
  const std::vector<float> fewer = run(c.tokens, 13, 1);
  for (size_t i = 0; i < fewer.size(); ++i) {
    ASSERT_EQ(whole[i / 13 * c.groups + i % 13], fewer[i]);
  }
}

TEST_P(IndexScoresTest, LongContext) {
  Check({.tokens = 2,
         .heads = 2,
         .dim = 32,
         .groups = 40003,
         .ratio = 2,
         .first_position = 80003},
        3);
}

}  // namespace
}  // namespace ecphory
