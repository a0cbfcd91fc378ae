#include "ops/ple_gate.h"

#include "ops/testing.h"
#include "tensor/float_codec.h"

namespace ecphory {
namespace {

class PleGateTest : public OpTest {};
ECPHORY_INSTANTIATE_OP_TEST(PleGateTest);

struct Shape {
  size_t tokens, streams, dim, kernel, dilation;
};

// A sequence's inputs and weights.
struct Inputs {
  Inputs(const Shape& s, uint32_t seed)
      : shape(s),
        random(seed),
        key(random.Array(s.tokens * s.streams * s.dim)),
        value(random.Array(s.tokens * s.dim)),
        key_weight(random.Array(s.streams * s.dim)),
        query_weight(random.Array(s.streams * s.dim)),
        norm_weight(random.Array(s.streams * s.dim)),
        conv_weight(random.Array(s.streams * s.dim * s.kernel)),
        x(random.Array(s.tokens * s.streams * s.dim)),
        shut(s.tokens) {
    for (uint8_t& flag : shut) flag = random.Below(4) == 0;
  }
  size_t channels() const { return shape.streams * shape.dim; }
  size_t history() const { return (shape.kernel - 1) * shape.dilation; }

  Shape shape;
  Random random;
  GuardedArray<float> key, value, key_weight, query_weight, norm_weight;
  GuardedArray<float> conv_weight, x;
  GuardedArray<uint8_t> shut;
};

constexpr float kEps = 1e-6f;

// A sequence under way.
struct Sequence {
  Sequence(const Inputs& in, size_t state_rows)
      : rows(state_rows),
        state(state_rows * in.channels()),
        x(in.x.size()),
        gate(in.shape.tokens * in.shape.streams) {
    std::copy(in.x.begin(), in.x.end(), x.begin());
  }

  // Tokens [begin, begin + count).
  void Step(const Ops& ops, const Inputs& in, size_t begin, size_t count,
            size_t threads) {
    const Shape& s = in.shape;
    ops.ple_gate({.key = in.key.data() + begin * in.channels(),
                  .value = in.value.data() + begin * s.dim,
                  .key_weight = in.key_weight.data(),
                  .query_weight = in.query_weight.data(),
                  .conv_norm_weight = in.norm_weight.data(),
                  .conv_weight = in.conv_weight.data(),
                  .shut = in.shut.data() + begin,
                  .tokens = count,
                  .streams = s.streams,
                  .dim = s.dim,
                  .kernel = s.kernel,
                  .dilation = s.dilation,
                  .eps = kEps,
                  .state = state.data(),
                  .state_rows = rows,
                  .position = begin,
                  .x = x.data() + begin * in.channels(),
                  .gate = gate.data() + begin * s.streams},
                 Pool(threads));
  }

  size_t rows;
  GuardedArray<float> state;  // poisoned: what is before position 0 is not read
  GuardedArray<float> x;
  GuardedArray<float> gate;
};

double Norm(const float* z, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(z[i]) * z[i];
  return 1 / std::sqrt(sum / static_cast<double>(n) + kEps);
}

double SigmoidOfRoot(double g) {
  if (g == 0) return 0.5;
  const double root = std::sqrt(std::max(std::fabs(g), 1e-6));
  return 1 / (1 + std::exp(g < 0 ? root : -root));
}

// Holds the gates to step 4 of the formula. The root is steep near 0 and jumps
// there: whatever a rounding error of the dot product can reach is allowed.
void CheckGates(const Inputs& in, const Sequence& run, double sum_bound,
                double tiny) {
  const Shape& s = in.shape;
  for (size_t at = 0; at < s.tokens * s.streams; ++at) {
    if (in.shut[at / s.streams] != 0) {
      EXPECT_EQ(run.gate[at], 0);
      continue;
    }
    const size_t stream = at % s.streams;
    const float* key = in.key.data() + at * s.dim;
    const float* x = in.x.data() + at * s.dim;
    const double scale = Norm(key, s.dim) * Norm(x, s.dim) /
                         std::sqrt(static_cast<double>(s.dim));
    Expected g;
    for (size_t i = 0; i < s.dim; ++i) {
      const double k = key[i] * (1.0 + in.key_weight[stream * s.dim + i]);
      const double q = x[i] * (1.0 + in.query_weight[stream * s.dim + i]);
      g.Add(k * q * scale);
    }
    const double slack = 2 * sum_bound * g.magnitude;
    EXPECT_LE(SigmoidOfRoot(g.value - slack) - tiny, run.gate[at]);
    EXPECT_GE(SigmoidOfRoot(g.value + slack) + tiny, run.gate[at]);
  }
}

// Steps 5 to 7 for the whole sequence at once, in double, with the gates that
// the operator found.
void CheckStreams(const Inputs& in, const Sequence& run, double bound) {
  const Shape& s = in.shape;
  std::vector<double> c(s.tokens * in.channels());
  std::vector<Expected> expected(c.size());
  for (size_t t = 0; t < s.tokens; ++t) {
    for (size_t stream = 0; stream < s.streams; ++stream) {
      const double gate = run.gate[t * s.streams + stream];
      std::vector<double> u(s.dim);
      double squares = 0;
      for (size_t i = 0; i < s.dim; ++i) {
        u[i] = gate * in.value[t * s.dim + i];
        squares += u[i] * u[i];
      }
      const double norm =
          1 / std::sqrt(squares / static_cast<double>(s.dim) + kEps);
      for (size_t i = 0; i < s.dim; ++i) {
        const size_t channel = stream * s.dim + i;
        const size_t at = t * in.channels() + channel;
        c[at] = in.shut[t] ? 0 : u[i] * norm * (1.0 + in.norm_weight[channel]);
        expected[at].Add(in.x[at]);
        if (in.shut[t]) continue;
        Expected z;
        for (size_t j = 0; j < s.kernel; ++j) {
          const size_t back = (s.kernel - 1 - j) * s.dilation;
          if (back > t) continue;
          z.Add(in.conv_weight[channel * s.kernel + j] *
                c[at - back * in.channels()]);
        }
        expected[at].Add(u[i]);
        expected[at].Add(z.value / (1 + std::exp(-z.value)));
        expected[at].magnitude += 1.2 * z.magnitude;  // silu' is below 1.1
      }
    }
  }
  EXPECT_TRUE(AllClose(expected, run.x.data(), bound));
}

TEST_P(PleGateTest, MatchesTheFormula) {
  std::vector<Shape> shapes = {{25, 4, 64, 4, 3},
                               {12, 2, 40, 1, 1},
                               {9, 3, 7, 2, 1},
                               {30, 2, 33, 5, 4},
                               {3, 4, 2560, 4, 3}};
  for (const size_t dim : kDims) {
    if (dim < 1000) shapes.push_back({13, 2, dim, 4, 3});
  }
  for (const Shape& shape : shapes) {
    SCOPED_TRACE("dim " + std::to_string(shape.dim));
    const Inputs in(shape, static_cast<uint32_t>(shape.dim));
    Sequence run(in, in.history());
    run.Step(ops(), in, 0, shape.tokens, 1 + shape.dim % 3);
    CheckGates(in, run, SumBound(shape.dim), is_ref() ? 1e-7 : 1e-6);
    CheckStreams(in, run, SumBound(shape.dim) + 8 * 0x1p-24);
  }
}

// One stream pair and one channel, by hand. RMS norms of one value are its
// sign, so that g = sign(k x) (1 + kw)(1 + qw).
TEST_P(PleGateTest, LiteralCase) {
  const GuardedArray<float> key = {5, -0.25f, 5, -0.25f};
  const GuardedArray<float> value = {10, -20};
  const GuardedArray<float> kw = {1, 3};
  const GuardedArray<float> qw = {1, 0};
  const GuardedArray<float> cw = {0, 1};
  const GuardedArray<float> conv = {3, 0.5f, -2, 1};  // kernel 2
  GuardedArray<float> state(2);
  GuardedArray<float> x = {3, 4, 3, 4};
  GuardedArray<float> gate(4);
  ops().ple_gate({.key = key.data(),
                  .value = value.data(),
                  .key_weight = kw.data(),
                  .query_weight = qw.data(),
                  .conv_norm_weight = cw.data(),
                  .conv_weight = conv.data(),
                  .tokens = 2,
                  .streams = 2,
                  .dim = 1,
                  .kernel = 2,
                  .dilation = 1,
                  .eps = 0,
                  .state = state.data(),
                  .state_rows = 1,
                  .x = x.data(),
                  .gate = gate.data()},
                 Pool(1));
  const double open = 1 / (1 + std::exp(-2.0));   // g = 4
  const double closed = 1 / (1 + std::exp(2.0));  // g = -4
  const auto silu = [](double z) { return z / (1 + std::exp(-z)); };
  EXPECT_NEAR(gate[0], open, 1e-6);
  EXPECT_NEAR(gate[1], closed, 1e-6);
  EXPECT_NEAR(x[0], 3 + 10 * open + silu(0.5), 1e-5);
  EXPECT_NEAR(x[1], 4 + 10 * closed + silu(2), 1e-5);
  EXPECT_NEAR(x[2], 3 - 20 * open + silu(3 * 1 + 0.5 * -1), 1e-5);
  EXPECT_NEAR(x[3], 4 - 20 * closed + silu(-2 * 2 + 1 * -2), 1e-5);
  EXPECT_NEAR(state[0], -1, 1e-6);
  EXPECT_NEAR(state[1], -2, 1e-6);
}

// sign(0) is 0: the gate is half open, where Engram's would be at
// sigmoid(0.001).
TEST_P(PleGateTest, ADotProductOfZeroIsHalfOpen) {
  for (const size_t zero : {0, 1, 2}) {
    GuardedArray<float> key = {1, 1, 1, 1};
    const GuardedArray<float> value = {4, 4};
    const GuardedArray<float> none = {0, 0, 0, 0};
    GuardedArray<float> x = {1, 1, 1, 1};
    if (zero == 0) std::fill(key.begin(), key.end(), 0.0f);
    if (zero == 1) std::fill(x.begin(), x.end(), -0.0f);
    if (zero == 2) key[1] = key[3] = -1;  // orthogonal
    const std::vector<float> before = x.Copy();
    GuardedArray<float> gate(2);
    ops().ple_gate({.key = key.data(),
                    .value = value.data(),
                    .key_weight = none.data(),
                    .query_weight = none.data(),
                    .conv_norm_weight = none.data(),
                    .conv_weight = none.data(),
                    .tokens = 1,
                    .streams = 2,
                    .dim = 2,
                    .kernel = 1,
                    .dilation = 3,
                    .eps = kEps,
                    .x = x.data(),
                    .gate = gate.data()},
                   Pool(1));
    for (const float g : gate) EXPECT_EQ(g, 0.5f);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(x[i], before[i] + 2);
  }
}

TEST_P(PleGateTest, ChunksOfEverySizeGiveTheSameBits) {
  const Inputs in({41, 4, 40, 4, 3}, 5);
  Sequence whole(in, in.history());
  whole.Step(ops(), in, 0, 41, 1);
  for (const size_t rows : {9, 14, 64}) {
    for (const size_t chunk : {1, 2, 3, 9, 10, 41}) {
      for (const size_t threads : {1, 3}) {
        Sequence run(in, rows);
        for (size_t t = 0; t < 41; t += chunk) {
          run.Step(ops(), in, t, std::min(chunk, 41 - t), threads);
        }
        EXPECT_TRUE(SameBits(whole.x.Copy(), run.x.Copy()))
            << rows << " rows, chunks of " << chunk;
        EXPECT_TRUE(SameBits(whole.gate.Copy(), run.gate.Copy()));
        if (rows != 9) continue;
        EXPECT_TRUE(SameBits(whole.state.Copy(), run.state.Copy()));
      }
    }
  }
}

// A state is a plain value: a copy brings a sequence back; with rows to spare
// none is needed.
TEST_P(PleGateTest, RollbackAtEveryDepth) {
  Inputs in({30, 2, 24, 4, 3}, 6);
  Sequence whole(in, in.history());
  whole.Step(ops(), in, 0, 30, 1);
  const std::vector<float> inputs = in.x.Copy();
  for (const bool copied : {true, false}) {
    for (size_t begin = 10; begin < 24; ++begin) {
      for (size_t depth = 0; depth <= 5; ++depth) {
        Sequence run(in, copied ? 9 : 9 + 5);
        run.Step(ops(), in, 0, begin, 1);
        const std::vector<float> saved = run.state.Copy();
        // Other tokens, then back.
        if (depth > 0) run.Step(ops(), in, begin, depth, 1);
        if (copied) std::copy(saved.begin(), saved.end(), run.state.begin());
        std::copy(inputs.begin(), inputs.end(), run.x.begin());
        run.Step(ops(), in, begin, 30 - begin, 1);
        for (size_t i = begin * in.channels(); i < inputs.size(); ++i) {
          ASSERT_EQ(F32Bits(run.x[i]), F32Bits(whole.x[i]))
              << "depth " << depth;
        }
      }
    }
  }
}

TEST_P(PleGateTest, PaddingLeavesStreamsAloneAndFeedsNothing) {
  for (const size_t dim : {1, 7, 16, 40}) {
    Inputs in({20, 3, dim, 4, 3}, 7);
    for (size_t t = 0; t < 20; ++t) in.shut[t] = t % 3 == 1 || t == 19;
    // Whatever lies where it is shut must not matter.
    for (size_t t = 0; t < 20; ++t) {
      if (in.shut[t] == 0) continue;
      std::fill_n(in.value.data() + t * dim, dim,
                  std::numeric_limits<float>::quiet_NaN());
      std::fill_n(in.key.data() + t * in.channels(), in.channels(),
                  std::numeric_limits<float>::quiet_NaN());
      in.x[t * in.channels()] = -0.0f;
    }
    Sequence run(in, 20);
    run.Step(ops(), in, 0, 20, 2);
    for (size_t i = 0; i < run.x.size(); ++i) {
      const bool shut = in.shut[i / in.channels()] != 0;
      ASSERT_FALSE(std::isnan(run.x[i]));
      EXPECT_EQ(std::memcmp(&run.x[i], &in.x[i], 4) == 0, shut);
      if (shut) {
        EXPECT_EQ(F32Bits(run.state[i]), 0u);
      }
    }
  }
}

}  // namespace
}  // namespace ecphory
