#include "ops/attention.h"

#include "ops/testing.h"

namespace ecphory {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Rows of random values as a cache holds them, and their exact values.
struct PackedRows {
  PackedRows(RowFormat row_format, size_t n, size_t dim, Random& random)
      : format(row_format),
        bytes(n * RowBytes(row_format, dim)),
        values(n * dim) {
    const GuardedArray<float> x = random.Array(n * dim);
    for (size_t i = 0; i < n; ++i) {
      uint8_t* row = bytes.data() + i * RowBytes(format, dim);
      EncodeRow(format, x.data() + i * dim, dim, row);
      DecodeRow(format, row, dim, values.data() + i * dim);
    }
  }

  // Makes row i decode to NaN, in codes and scales alike.
  void PoisonRow(size_t i, size_t dim) {
    const size_t row_bytes = RowBytes(format, dim);
    std::memset(bytes.data() + i * row_bytes, 0xff, row_bytes);
  }

  RowFormat format;
  GuardedArray<uint8_t> bytes;
  std::vector<float> values;
};

struct AttentionCase {
  size_t tokens = 1;
  size_t heads = 1;
  size_t dim = 32;
  uint64_t first_position = 0;
  size_t window = 4;
  uint64_t window_begin = 0;
  RowFormat window_format = RowFormat::kF32;
  RowFormat latent_format = RowFormat::kF32;
  size_t latents = 0;  // 0: no compressed entries at all
  size_t topk = 0;
  float sink = 0.5f;
  bool bf16 = false;  // queries are bf16 values, but those of each third token
};

class AttentionTest : public OpTest {
 protected:
  // Inputs of one call; every cache row that no token may read is NaN.
  struct Inputs {
    Inputs(const AttentionCase& c, Random& random)
        : q(random.Array(c.tokens * c.heads * c.dim, 2)),
          window(c.window_format, c.window + c.tokens - 1, c.dim, random),
          latent(c.latent_format, c.latents, c.dim, random),
          selected(c.tokens * c.topk),
          sink(random.Array(c.heads)) {
      for (float& s : sink) s += c.sink;
      for (size_t i = 0; c.bf16 && i < q.size(); ++i) {
        if (i / (c.heads * c.dim) % 3 != 2) q[i] = RoundToBF16(q[i]);
      }
      const size_t capacity = c.window + c.tokens - 1;
      for (size_t row = 0; row < capacity; ++row) {
        bool attended = false;
        for (size_t t = 0; t < c.tokens; ++t) {
          for (const uint64_t p : Window(c, t)) attended |= p % capacity == row;
        }
        if (!attended) window.PoisonRow(row, c.dim);
      }
      FillSelection(c, random);
    }

    static std::vector<uint64_t> Window(const AttentionCase& c, size_t t) {
      std::vector<uint64_t> positions;
      const uint64_t last = c.first_position + t;
      for (uint64_t back = 0; back < c.window && back <= last - c.window_begin;
           ++back) {
        positions.push_back(last - back);
      }
      return positions;
    }

    // Ascending selections of every length, 0 and topk included.
    void FillSelection(const AttentionCase& c, Random& random) {
      std::vector<bool> used(c.latents);
      for (size_t t = 0; t < c.tokens; ++t) {
        std::vector<int32_t> ids;
        const size_t wanted = std::min(t % (c.topk + 1), c.latents);
        for (size_t i = 0; i < wanted; ++i) {
          ids.push_back(static_cast<int32_t>(
              random.Below(static_cast<uint32_t>(c.latents))));
        }
        std::sort(ids.begin(), ids.end());
        ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
        for (const int32_t id : ids) used[static_cast<size_t>(id)] = true;
        ids.resize(c.topk, -1);
        std::copy(ids.begin(), ids.end(), selected.begin() + t * c.topk);
      }
      for (size_t i = 0; i < c.latents; ++i) {
        if (!used[i]) latent.PoisonRow(i, c.dim);
      }
    }

    GuardedArray<float> q;
    PackedRows window;
    PackedRows latent;
    GuardedArray<int32_t> selected;
    GuardedArray<float> sink;
  };

  AttentionArgs Args(const AttentionCase& c, const Inputs& in,
                     GuardedArray<float>& out) {
    return {.q = in.q.data(),
            .tokens = c.tokens,
            .heads = c.heads,
            .dim = c.dim,
            .first_position = c.first_position,
            .window_format = c.window_format,
            .latent_format = c.latent_format,
            .scale = Scale(c),
            .window_rows = in.window.bytes.data(),
            .window_capacity = c.window + c.tokens - 1,
            .window = c.window,
            .window_begin = c.window_begin,
            .latent_rows = in.latent.bytes.data(),
            .selected = c.latents != 0 ? in.selected.data() : nullptr,
            .topk = c.topk,
            .sink = in.sink.data(),
            .out = out.data()};
  }

  static float Scale(const AttentionCase& c) {
    return 1 / std::sqrt(static_cast<float>(c.dim));
  }

  // The output of one token and head.
  static std::vector<Expected> ExpectedHead(const AttentionCase& c,
                                            const Inputs& in, size_t t,
                                            size_t head) {
    std::vector<const float*> rows;
    const size_t capacity = c.window + c.tokens - 1;
    for (const uint64_t p : Inputs::Window(c, t)) {
      rows.push_back(in.window.values.data() + p % capacity * c.dim);
    }
    for (size_t i = 0; c.latents != 0 && i < c.topk; ++i) {
      const int32_t id = in.selected[t * c.topk + i];
      if (id < 0) break;
      rows.push_back(in.latent.values.data() + static_cast<size_t>(id) * c.dim);
    }
    std::vector<double> weights;
    double denominator = std::exp(static_cast<double>(in.sink[head]));
    for (const float* row : rows) {
      double dot = 0;
      for (size_t i = 0; i < c.dim; ++i) {
        dot += static_cast<double>(in.q[(t * c.heads + head) * c.dim + i]) *
               row[i];
      }
      weights.push_back(std::exp(dot * Scale(c)));
      denominator += weights.back();
    }
    std::vector<Expected> out(c.dim);
    for (size_t r = 0; r < rows.size(); ++r) {
      for (size_t i = 0; i < c.dim; ++i) {
        out[i].Add(weights[r] / denominator * rows[r][i]);
      }
    }
    return out;
  }

  void Check(const AttentionCase& c, size_t threads) {
    const Inputs in(c, random_);
    GuardedArray<float> out(c.tokens * c.heads * c.dim);
    ops().attention(Args(c, in, out), Pool(threads));
    GuardedArray<float> rounded(out.size());
    AttentionArgs rounds = Args(c, in, rounded);
    rounds.round_bf16 = true;
    ops().attention(rounds, Pool(threads));
    EXPECT_TRUE(SameBits(RoundedToBf16(out), rounded));
    for (size_t t = 0; t < c.tokens; ++t) {
      for (size_t head = 0; head < c.heads; ++head) {
        const float* actual = out.data() + (t * c.heads + head) * c.dim;
        // exp() passes on the absolute error of its argument, a dot product of
        // magnitude below sqrt(dim); sums over rows add theirs.
        const double bound =
            SumBound(c.dim) * (2 + std::sqrt(static_cast<double>(c.dim))) +
            SumBound(c.window + c.topk);
        EXPECT_TRUE(AllClose(ExpectedHead(c, in, t, head), actual, bound))
            << RowFormatName(c.window_format) << "/"
            << RowFormatName(c.latent_format) << " dim " << c.dim << " heads "
            << c.heads << " window " << c.window << " topk " << c.topk
            << " position " << c.first_position + t;
      }
    }
  }

  Random random_{21};
};
ECPHORY_INSTANTIATE_OP_TEST(AttentionTest);

TEST_P(AttentionTest, EveryLengthInF32) {
  for (const size_t dim : {1, 3, 7, 8, 9, 15, 16, 17, 32, 33, 127, 512}) {
    Check({.tokens = 3, .heads = 2, .dim = dim, .latents = 5, .topk = 3}, 1);
  }
}

TEST_P(AttentionTest, PackedCaches) {
  for (const size_t dim : {32, 64, 96, 512}) {
    for (const size_t heads : {1, 2, 3, 4, 5, 8, 9}) {
      Check({.tokens = 4,
             .heads = heads,
             .dim = dim,
             .first_position = 9,
             .window_format = RowFormat::kFp8Block32,
             .latent_format = RowFormat::kFp4Block16,
             .latents = 20,
             .topk = 6},
            1 + heads % 3);
    }
  }
}

// Windows that have not filled yet, are full, and have wrapped many times.
TEST_P(AttentionTest, WindowStartAndRing) {
  for (const size_t window : {1, 2, 4, 8, 33}) {
    for (const uint64_t position : {uint64_t{0}, uint64_t{1}, uint64_t{3},
                                    uint64_t{100}, uint64_t{1} << 33}) {
      for (const size_t tokens : {1, 2, 7}) {
        Check({.tokens = tokens,
               .heads = 3,
               .dim = 32,
               .first_position = position,
               .window = window},
              1 + tokens % 3);
      }
    }
  }
}

// Rows that are not there are NaN in this test, whatever the window's length.
TEST_P(AttentionTest, WindowsThatBeginLate) {
  for (const uint64_t begin : {1, 20, 28, 29, 30}) {
    for (const size_t tokens : {1, 2, 7, 40}) {
      Check({.tokens = tokens,
             .heads = 3,
             .dim = 32,
             .first_position = 30,
             .window = 8,
             .window_begin = begin,
             .window_format = RowFormat::kFp8Block32,
             .latents = 9,
             .topk = 4},
            1 + tokens % 3);
    }
  }
}

TEST_P(AttentionTest, LongSelections) {
  Check({.tokens = 140,
         .heads = 4,
         .dim = 64,
         .first_position = 500,
         .window = 128,
         .window_format = RowFormat::kFp8Block32,
         .latent_format = RowFormat::kFp4Block16,
         .latents = 300,
         .topk = 139},
        3);
}

// Heads are taken several at a time, and what is left fewer at a time: every
// remainder, over whole vectors, a single one and less than one, of rows that
// stay unpacked and of more than do.
TEST_P(AttentionTest, EveryNumberOfHeads) {
  for (size_t heads = 1; heads <= 13; ++heads) {
    for (const size_t dim : {32, 45, 72}) {
      Check({.tokens = 2, .heads = heads, .dim = dim, .latents = 5, .topk = 3},
            1);
    }
    Check({.tokens = 1,
           .heads = heads,
           .dim = 544,
           .first_position = 140,
           .window = 121,
           .window_format = RowFormat::kFp8Block32},
          1 + heads % 3);
  }
}

// Sets too large to be kept unpacked: one token and several, a last tile that
// is not full, and rows that are no whole number of vectors.
TEST_P(AttentionTest, MoreRowsThanACacheHolds) {
  for (const size_t tokens : {1, 7}) {
    Check({.tokens = tokens,
           .heads = 7,
           .dim = 512,
           .first_position = 1000,
           .window = 128,
           .window_format = RowFormat::kFp8Block32,
           .latent_format = RowFormat::kFp4Block16,
           .latents = 90,
           .topk = 61},
          1 + tokens % 3);
    Check({.tokens = tokens,
           .heads = 3,
           .dim = 608,
           .first_position = 130,
           .window = 150,
           .window_format = RowFormat::kFp8Block32},
          3);
    Check({.tokens = tokens,
           .heads = 2,
           .dim = 701,
           .first_position = 300,
           .window = 100},
          2);
  }
}

// The shape of the release: few tokens and many, window alone, selections of
// every length.
TEST_P(AttentionTest, ManyHeadsOfTheReleasedShape) {
  for (const size_t heads : {16, 40, 64, 80}) {
    Check({.tokens = heads == 64 ? size_t{7} : size_t{2},
           .heads = heads,
           .dim = 512,
           .first_position = 1000,
           .window = 128,
           .window_format = RowFormat::kFp8Block32,
           .latent_format = RowFormat::kFp4Block16,
           .latents = 400,
           .topk = heads == 64 ? size_t{6} : size_t{70}},
          2);
    Check({.tokens = 3,
           .heads = heads,
           .dim = 512,
           .first_position = 20,
           .window = 50,
           .window_begin = 9,
           .window_format = RowFormat::kFp8Block32},
          3);
  }
  Check({.tokens = 150,
         .heads = 16,
         .dim = 512,
         .first_position = 3,
         .window = 33,
         .window_format = RowFormat::kFp8Block32,
         .latent_format = RowFormat::kFp4Block16,
         .latents = 160,
         .topk = 149},
        2);
  for (const size_t heads : {40, 64, 80}) {
    Check({.tokens = 70,
           .heads = heads,
           .dim = 512,
           .first_position = 1000,
           .window = 128,
           .window_format = RowFormat::kFp8Block32,
           .latent_format = RowFormat::kFp4Block16,
           .latents = 400,
           .topk = 70,
           .bf16 = true},
          2);
  }
  for (const float sink : {-1e30f, -50.0f, 20.0f}) {
    Check({.tokens = 1,
           .heads = 64,
           .dim = 512,
           .first_position = 600,
           .window = 128,
           .window_format = RowFormat::kFp8Block32,
           .sink = sink},
          1);
  }
}

TEST_P(AttentionTest, SinksOfEverySize) {
  for (const float sink : {-1e30f, -50.0f, 0.0f, 20.0f}) {
    Check({.tokens = 3,
           .heads = 2,
           .dim = 32,
           .latents = 4,
           .topk = 2,
           .sink = sink},
          1);
  }
}

// One visible row: the output is the row times its share against the sink.
class AttentionOneRow : public AttentionTest {
 protected:
  std::vector<float> Run(const std::vector<float>& q, float sink) {
    const GuardedArray<float> row = {1, -2, 4};
    GuardedArray<float> query(q.size());
    std::copy(q.begin(), q.end(), query.begin());
    const GuardedArray<float> sinks = {sink};
    GuardedArray<float> out(3);
    ops().attention(
        AttentionArgs{
            .q = query.data(),
            .tokens = 1,
            .heads = 1,
            .dim = 3,
            .first_position = 0,
            .scale = 0.5f,
            .window_rows = reinterpret_cast<const uint8_t*>(row.data()),
            .window_capacity = 1,
            .window = 1,
            .sink = sinks.data(),
            .out = out.data()},
        Pool(1));
    return out.Copy();
  }
};
ECPHORY_INSTANTIATE_OP_TEST(AttentionOneRow);

TEST_P(AttentionOneRow, NoSinkGivesTheRow) {
  EXPECT_EQ((std::vector<float>{1, -2, 4}), Run({1, 1, 1}, -kInf));
  EXPECT_EQ((std::vector<float>{1, -2, 4}), Run({1, 1, 1}, -3e38f));
}

TEST_P(AttentionOneRow, ASinkEqualToTheScoreHalvesIt) {
  // 0.5 * (2*1 + 1*-2 + 1*4) = 2
  const std::vector<float> out = Run({2, 1, 1}, 2);
  EXPECT_NEAR(0.5, out[0], 1e-6);
  EXPECT_NEAR(-1, out[1], 1e-6);
  EXPECT_NEAR(2, out[2], 1e-6);
}

TEST_P(AttentionOneRow, LargeScoresAndSinksDoNotOverflow) {
  EXPECT_EQ((std::vector<float>{1, -2, 4}), Run({1000, 0, 1000}, 0));
  for (const float value : Run({1, 1, 1}, 1e4f)) {
    EXPECT_NEAR(0, value, 1e-30);
  }
  for (const float value : Run({-1000, 0, -1000}, 0)) {
    EXPECT_NEAR(0, value, 1e-30);
  }
}

class AttentionBits : public AttentionTest {
 protected:
  // The bits of a whole chunk, then those of parts of it on 1 to 3 threads.
  void Check(const AttentionCase& c, const std::vector<size_t>& chunks) {
    const Inputs in(c, random_);
    GuardedArray<float> whole(c.tokens * c.heads * c.dim);
    ops().attention(Args(c, in, whole), Pool(1));
    for (const size_t chunk : chunks) {
      for (const size_t threads : {1, 2, 3}) {
        GuardedArray<float> out(whole.size());
        for (size_t t = 0; t < c.tokens; t += chunk) {
          AttentionArgs args = Args(c, in, out);
          args.tokens = std::min(chunk, c.tokens - t);
          args.first_position += t;
          args.q += t * c.heads * c.dim;
          args.selected += t * c.topk;
          args.out += t * c.heads * c.dim;
          ops().attention(args, Pool(threads));
        }
        EXPECT_TRUE(SameBits(whole, out)) << chunk << ", " << threads;
      }
    }
  }
};
ECPHORY_INSTANTIATE_OP_TEST(AttentionBits);

TEST_P(AttentionBits, DependOnTheTokenAlone) {
  Check({.tokens = 33,
         .heads = 5,
         .dim = 64,
         .first_position = 3,
         .window = 8,
         .window_format = RowFormat::kFp8Block32,
         .latent_format = RowFormat::kFp4Block16,
         .latents = 20,
         .topk = 6},
        {1, 7, 33});
}

// Rows that are unpacked at once for the first tokens, in parts for the later
// ones, and in parts for all when these are in one chunk.
TEST_P(AttentionBits, DependNotOnWhatTheCacheHolds) {
  Check({.tokens = 24,
         .heads = 3,
         .dim = 512,
         .first_position = 90,
         .window = 104,
         .window_format = RowFormat::kFp8Block32,
         .latent_format = RowFormat::kFp4Block16,
         .latents = 40,
         .topk = 23},
        {1, 5, 24});
}

}  // namespace
}  // namespace ecphory
