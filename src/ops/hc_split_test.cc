// The fused pass of a site against the operators that it stands for.
#include <bit>
#include <tuple>

#include "ops/hyper_connection.h"
#include "ops/testing.h"
#include "ops/weights_testing.h"

namespace ecphory {
namespace {

struct Shape {
  size_t streams;
  size_t dim;
  size_t tokens;
  WeightFormat fn = WeightFormat::kF32;
};

struct Mode {
  bool pending;      // with the expand of the site before
  bool single_pass;  // collapsed with the pre of the site before
  bool bf16;         // streams
};

constexpr Mode kModes[] = {{false, false, false}, {false, true, false},
                           {true, false, false},  {true, true, false},
                           {false, true, true},   {true, false, true},
                           {true, true, true}};

// What a site finds, and what it leaves.
struct Site {
  Site(const Shape& s, Random& random)
      : shape(s),
        fn(RandomMatrix(s.fn, (2 + s.streams) * s.streams, s.streams * s.dim,
                        random)),
        scale({0.3f, 0.5f, 0.7f}),
        base(random.Array((2 + s.streams) * s.streams)),
        norm(random.Array(s.dim)),
        y(random.Array(s.tokens * s.dim, 2)),
        h0(random.Array(s.tokens * s.streams * s.dim, 2)),
        pre0(random.Array(s.tokens * s.streams)),
        post0(random.Array(s.tokens * s.streams)),
        comb0(random.Array(s.tokens * s.streams * s.streams)),
        h(h0.size()),
        bf16(h0.size()),
        pre(pre0.size()),
        post(post0.size()),
        comb(comb0.size()),
        x(y.size()) {
    // Logits stay of the order of 1 whatever the length.
    for (float& v : scale) v *= 3 / std::sqrt(static_cast<float>(fn.view.cols));
    Reset();
  }

  void Reset() {
    std::copy(h0.begin(), h0.end(), h.begin());
    std::transform(h0.begin(), h0.end(), bf16.begin(), F32ToBF16);
    std::copy(pre0.begin(), pre0.end(), pre.begin());
    std::copy(post0.begin(), post0.end(), post.begin());
    std::copy(comb0.begin(), comb0.end(), comb.begin());
    x.Poison();
  }

  // Tokens [first, first + count), overwriting the coefficients of the site
  // before as the model does.
  HcSplitArgs Args(const Mode& mode, size_t first, size_t count) {
    const size_t n = shape.streams;
    return {.y = mode.pending ? y.data() + first * shape.dim : nullptr,
            .last_post = post.data() + first * n,
            .last_comb = comb.data() + first * n * n,
            .h = StreamsIn(mode).From(first * n * shape.dim),
            .fn = fn.view,
            .scale = scale.data(),
            .base = base.data(),
            .tokens = count,
            .streams = n,
            .dim = shape.dim,
            .norm_eps = 1e-20f,
            .hc_eps = 1e-6f,
            .sinkhorn_iters = 20,
            .collapse_pre = mode.single_pass ? pre.data() + first * n : nullptr,
            .norm_weight = norm.data(),
            .pre = pre.data() + first * n,
            .post = post.data() + first * n,
            .comb = comb.data() + first * n * n,
            .x = x.data() + first * shape.dim};
  }

  Streams StreamsIn(const Mode& mode) {
    return mode.bf16 ? Streams(bf16.data()) : Streams(h.data());
  }

  // Everything that a split may write.
  std::vector<float> Outputs(const Mode& mode) {
    if (mode.bf16) {
      std::transform(bf16.begin(), bf16.end(), h.begin(), BF16ToF32);
    }
    std::vector<float> all;
    for (const auto* array : {&h, &pre, &post, &comb, &x}) {
      all.insert(all.end(), array->begin(), array->end());
    }
    return all;
  }

  Shape shape;
  PackedMatrix fn;
  GuardedArray<float> scale, base, norm, y, h0, pre0, post0, comb0;
  GuardedArray<float> h;
  GuardedArray<uint16_t> bf16;  // the same streams in that format
  GuardedArray<float> pre, post, comb, x;
};

class HcSplitTest : public OpTest {
 protected:
  void Round(GuardedArray<float>& values, bool round) {
    if (!round) return;
    ops().round_bf16({.x = values.data(), .count = values.size()}, Pool(1));
  }

  // One operator after another, on fp32 streams that are rounded in between;
  // only the mix is taken from a split.
  std::vector<float> OneByOne(Site& site, const Mode& mode) {
    const Shape& s = site.shape;
    site.Reset();
    Round(site.h, mode.bf16);
    GuardedArray<float> y(site.y.size());
    std::copy(site.y.begin(), site.y.end(), y.begin());
    Round(y, mode.bf16);
    if (mode.pending) {
      ops().hc_expand({.y = y.data(),
                       .post = site.post.data(),
                       .comb = site.comb.data(),
                       .tokens = s.tokens,
                       .streams = s.streams,
                       .dim = s.dim,
                       .h = site.h.data()},
                      Pool(1));
      Round(site.h, mode.bf16);
    }
    ops().hc_split(site.Args({false, false, false}, 0, s.tokens), Pool(1));
    ops().hc_collapse(
        {.h = site.h.data(),
         .pre = mode.single_pass ? site.pre0.data() : site.pre.data(),
         .tokens = s.tokens,
         .streams = s.streams,
         .dim = s.dim,
         .x = site.x.data()},
        Pool(1));
    Round(site.x, mode.bf16);
    ops().rms_norm({.x = site.x.data(),
                    .weight = site.norm.data(),
                    .y = site.x.data(),
                    .rows = s.tokens,
                    .dim = s.dim,
                    .eps = 1e-20f},
                   Pool(1));
    Round(site.x, mode.bf16);
    return site.Outputs({});
  }

  // In calls of `chunk` tokens.
  std::vector<float> Fused(Site& site, const Mode& mode, size_t chunk,
                           size_t threads) {
    site.Reset();
    for (size_t t = 0; t < site.shape.tokens; t += chunk) {
      const size_t count = std::min(chunk, site.shape.tokens - t);
      ops().hc_split(site.Args(mode, t, count), Pool(threads));
    }
    return site.Outputs(mode);
  }
};
ECPHORY_INSTANTIATE_OP_TEST(HcSplitTest);

constexpr char kOwnOrder[] = "CUDA sums the squares of x slab by slab";

TEST_P(HcSplitTest, EqualsTheOperatorsOneByOneInEveryBit) {
  if (is_cuda()) GTEST_SKIP() << kOwnOrder;
  Random random(61);
  size_t tokens = 0;
  for (const size_t streams : {2, 3, 4, 5, 8, 16}) {
    for (const size_t dim : {1, 7, 33, 128, 131, 300}) {
      for (const Mode& mode : kModes) {
        tokens = tokens % 17 + 1;
        Site site({streams, dim, tokens}, random);
        EXPECT_TRUE(SameBits(OneByOne(site, mode),
                             Fused(site, mode, tokens, 1 + tokens % 3)))
            << "H " << streams << " D " << dim << " T " << tokens
            << (mode.pending ? " pending" : "")
            << (mode.single_pass ? " single pass" : "")
            << (mode.bf16 ? " bf16" : "");
      }
    }
  }
}

// The definition's operator on the same arrays. Where streams are expanded, a
// value rounded to bf16 may fall on the other side, and all that is made from
// it moves; x is rounded in any case.
TEST_P(HcSplitTest, FusedPassMatchesTheDefinition) {
  Random random(66);
  for (const Shape& shape :
       {Shape{4, 32, 1}, Shape{4, 96, 16}, Shape{4, 256, 17},
        Shape{4, 1024, 40}, Shape{4, 5120, 3}, Shape{4, 320, 33},
        Shape{4, 128, 9, WeightFormat::kF16},
        Shape{4, 544, 5, WeightFormat::kBF16}, Shape{4, 48, 20},
        Shape{5, 96, 18}, Shape{4, 512, 1061}, Shape{4, 2560, 530},
        Shape{4, 1024, 700, WeightFormat::kF16},
        Shape{4, 2048, 513, WeightFormat::kBF16}, Shape{4, 5120, 521}}) {
    // Many tokens are another kernel's on CUDA only.
    if (shape.dim * shape.tokens > (1 << 21) && !is_cuda()) continue;
    Site site(shape, random);
    for (const Mode& mode : kModes) {
      const std::vector<float> actual = Fused(site, mode, shape.tokens, 2);
      site.Reset();
      RefOps().hc_split(site.Args(mode, 0, shape.tokens), Pool(1));
      const std::vector<float> expected = site.Outputs(mode);
      const size_t x = expected.size() - site.x.size();
      for (size_t i = 0; i < expected.size(); ++i) {
        const bool rounded = mode.bf16 && (mode.pending || i >= x);
        ASSERT_NEAR(expected[i], actual[i],
                    (rounded ? 0x1p-6 : 1e-5) * (1 + std::fabs(expected[i])))
            << "output " << i << " of H " << shape.streams << " D " << shape.dim
            << " T " << shape.tokens << (mode.pending ? " pending" : "")
            << (mode.single_pass ? " single pass" : "")
            << (mode.bf16 ? " bf16" : "");
      }
    }
  }
}

// Every token count around the blocks of a kernel, and long rows.
TEST_P(HcSplitTest, AnyNumberOfTokensEqualsTheOperatorsOneByOne) {
  if (is_cuda()) GTEST_SKIP() << kOwnOrder;
  Random random(62);
  for (size_t tokens = 1; tokens <= 17; ++tokens) {
    Site site({4, 643, tokens}, random);
    for (const Mode& mode : kModes) {
      EXPECT_TRUE(SameBits(OneByOne(site, mode),
                           Fused(site, mode, tokens, 1 + tokens % 3)))
          << tokens;
    }
  }
}

TEST_P(HcSplitTest, ATokensBitsDependOnNothingElse) {
  Random random(63);
  // As many tokens as another kernel takes than one alone.
  Site many({4, 1024, 1100}, random);
  for (const Mode& mode : {kModes[1], kModes[3], kModes[4], kModes[6]}) {
    const std::vector<float> all = Fused(many, mode, 1100, 2);
    for (const size_t chunk : {1, 7, 60, 550}) {
      EXPECT_TRUE(SameBits(all, Fused(many, mode, chunk, 2))) << chunk;
    }
  }
  for (const auto& [streams, format] :
       {std::tuple(size_t{4}, WeightFormat::kF32),
        std::tuple(size_t{4}, WeightFormat::kQ8_0),
        std::tuple(size_t{4}, WeightFormat::kBF16),
        std::tuple(size_t{5}, WeightFormat::kF16)}) {
    for (const size_t dim : {40, 520}) {
      Site site({streams, dim, 71, format}, random);
      for (const Mode& mode : {kModes[3], kModes[5]}) {
        const std::vector<float> whole = Fused(site, mode, 71, 1);
        for (const size_t chunk : {1, 2, 7, 33, 71}) {
          for (const size_t threads : {1, 2, 3}) {
            EXPECT_TRUE(SameBits(whole, Fused(site, mode, chunk, threads)))
                << "H " << streams << " D " << dim << " chunk " << chunk
                << " threads " << threads;
          }
        }
      }
    }
  }
}

// Without a pending expand the streams are read only.
TEST_P(HcSplitTest, LeavesTheStreamsAlone) {
  Random random(64);
  Site site({4, 37, 3}, random);
  Fused(site, kModes[1], 3, 1);
  EXPECT_TRUE(SameBits(site.h0, site.h));
}

// What bf16 streams become is what fp32 streams do that are rounded after each
// operator.
TEST_P(HcSplitTest, Bf16StreamsRoundCollapseAndExpand) {
  Random random(65);
  for (const size_t streams : {3, 4}) {
    for (const size_t dim : {5, 16, 1100, 2056}) {
      Site site({streams, dim, 2}, random);
      const auto run = [&](const Mode& mode) {
        site.Reset();
        Round(site.h, !mode.bf16);
        GuardedArray<float> y(site.y.size());
        std::copy(site.y.begin(), site.y.end(), y.begin());
        Round(y, !mode.bf16);
        ops().hc_expand({.y = y.data(),
                         .post = site.post.data(),
                         .comb = site.comb.data(),
                         .tokens = 2,
                         .streams = streams,
                         .dim = dim,
                         .h = site.StreamsIn(mode)},
                        Pool(2));
        Round(site.h, !mode.bf16);
        ops().hc_collapse({.h = site.StreamsIn(mode),
                           .pre = site.pre.data(),
                           .tokens = 2,
                           .streams = streams,
                           .dim = dim,
                           .x = site.x.data()},
                          Pool(2));
        Round(site.x, !mode.bf16);
        return site.Outputs(mode);
      };
      EXPECT_TRUE(SameBits(run(kModes[0]), run(kModes[4]))) << dim;
    }
  }
}

// Not a number stays one when it is rounded, whatever its lower bits.
TEST_P(HcSplitTest, NaNsStayInBf16Streams) {
  Random random(67);
  constexpr size_t kDim = 37;
  for (const uint32_t bits : {0x7fffffffu, 0xffffffffu, 0x7f800001u}) {
    const float nan = std::bit_cast<float>(bits);
    for (const bool in_y : {false, true}) {
      Site site({4, kDim, 3}, random);
      (in_y ? site.y[kDim + 5] : site.comb0[16]) = nan;  // of token 1
      Fused(site, kModes[6], 3, 1);
      for (size_t i = 0; i < site.bf16.size(); ++i) {
        const size_t column = i % kDim, stream = i / kDim % 4;
        const bool hit = in_y ? column == 5 : stream == 0;
        EXPECT_EQ(i / (4 * kDim) == 1 && hit,
                  std::isnan(BF16ToF32(site.bf16[i])))
            << std::hex << bits << (in_y ? " in y, " : " in comb, ") << i;
      }
    }
  }
}

}  // namespace
}  // namespace ecphory
