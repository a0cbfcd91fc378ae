#include "ops/engram_gate.h"

#include "ops/testing.h"

namespace ecphory {
namespace {

constexpr SigmoidForm kSigmoidForms[] = {SigmoidForm::kExp, SigmoidForm::kTanh};

class EngramGateTest : public OpTest {};
ECPHORY_INSTANTIATE_OP_TEST(EngramGateTest);

double GateOfDot(double dot) {
  const double root = std::sqrt(std::max(std::fabs(dot), 1e-6));
  return 1 / (1 + std::exp(dot < 0 ? root : -root));
}

TEST_P(EngramGateTest, MatchesTheFormula) {
  Random random(33);
  for (const size_t streams : {2, 3, 4, 5, 16}) {
    for (const size_t dim : kDims) {
      const size_t tokens = dim > 1000 ? 1 : 3;
      const SigmoidForm form = kSigmoidForms[dim % 2];
      const float eps = 1e-20f;
      const GuardedArray<float> kv = random.Array(tokens * (streams + 1) * dim);
      const GuardedArray<float> qw = random.Array(streams * dim, 2);
      const GuardedArray<float> kw = random.Array(streams * dim, 2);
      GuardedArray<float> h = random.Array(tokens * streams * dim);
      const std::vector<float> before = h.Copy();
      GuardedArray<float> gates(tokens * streams);
      ops().engram_gate({.kv = kv.data(),
                         .q_weight = qw.data(),
                         .k_weight = kw.data(),
                         .tokens = tokens,
                         .streams = streams,
                         .dim = dim,
                         .eps = eps,
                         .sigmoid = form,
                         .h = h.data(),
                         .gate = gates.data()},
                        Pool(1 + dim % 3));
      for (size_t i = 0; i < tokens * streams; ++i) {
        const size_t t = i / streams;
        const size_t s = i % streams;
        const float* key = kv.data() + (t * (streams + 1) + s) * dim;
        const float* value = kv.data() + (t * (streams + 1) + streams) * dim;
        Expected dot;
        double h2 = 0;
        double k2 = 0;
        for (size_t d = 0; d < dim; ++d) {
          const double x = before[i * dim + d];
          dot.Add(x * qw[s * dim + d] * kw[s * dim + d] * key[d]);
          h2 += x * x;
          k2 += static_cast<double>(key[d]) * key[d];
        }
        const double n = static_cast<double>(dim);
        const double norm = 1 / std::sqrt((h2 / n + eps) * (k2 / n + eps) * n);
        // The root is steep near 0 and jumps there: allow whatever a rounding
        // error of the dot product can reach.
        const double slack = SumBound(dim) * dot.magnitude * norm;
        const double low = GateOfDot(dot.value * norm - slack);
        const double high = GateOfDot(dot.value * norm + slack);
        const double tiny = is_ref() ? 1e-7 : 1e-6;
        EXPECT_LE(low - tiny, gates[i]) << "H " << streams << " D " << dim;
        EXPECT_GE(high + tiny, gates[i]) << "H " << streams << " D " << dim;
        for (size_t d = 0; d < dim; ++d) {
          const double expected =
              before[i * dim + d] + static_cast<double>(gates[i]) * value[d];
          EXPECT_NEAR(expected, h[i * dim + d], 3e-7);
        }
      }
    }
  }
}

// One stream pair and one channel, by hand: dot = sign * q_w * k_w.
TEST_P(EngramGateTest, LiteralCase) {
  for (const SigmoidForm form : kSigmoidForms) {
    const GuardedArray<float> kv = {5, -0.25f, 10};  // keys 5, -0.25; value 10
    const GuardedArray<float> qw = {2, 2};
    const GuardedArray<float> kw = {2, 8};
    GuardedArray<float> h = {3, 4};
    GuardedArray<float> gate(2);
    ops().engram_gate({.kv = kv.data(),
                       .q_weight = qw.data(),
                       .k_weight = kw.data(),
                       .tokens = 1,
                       .streams = 2,
                       .dim = 1,
                       .eps = 0,
                       .sigmoid = form,
                       .h = h.data(),
                       .gate = gate.data()},
                      Pool(1));
    const double open = 1 / (1 + std::exp(-2.0));   // dot 4
    const double closed = 1 / (1 + std::exp(4.0));  // dot -16
    EXPECT_NEAR(open, gate[0], 1e-6);
    EXPECT_NEAR(closed, gate[1], 1e-6);
    EXPECT_NEAR(3 + 10 * open, h[0], 1e-5);
    EXPECT_NEAR(4 + 10 * closed, h[1], 1e-5);
  }
}

TEST_P(EngramGateTest, ZeroStreamsAndKeysGiveTheSmallestGate) {
  const GuardedArray<float> kv = {0, 0, 1, 1, 1, 1};
  const GuardedArray<float> ones = {1, 1, 1, 1};
  GuardedArray<float> h = {1, 1, 0, 0};
  GuardedArray<float> gate(2);
  ops().engram_gate({.kv = kv.data(),
                     .q_weight = ones.data(),
                     .k_weight = ones.data(),
                     .tokens = 1,
                     .streams = 2,
                     .dim = 2,
                     .eps = 1e-20f,
                     .h = h.data(),
                     .gate = gate.data()},
                    Pool(1));
  for (const float g : gate) {
    EXPECT_NEAR(1 / (1 + std::exp(-1e-3)), g, 1e-6);
  }
}

TEST_P(EngramGateTest, ShutTokensKeepTheirBits) {
  Random random(34);
  for (const size_t dim : {1, 7, 8, 33, 64}) {
    constexpr size_t kTokens = 5;
    constexpr size_t kStreams = 4;
    const GuardedArray<uint8_t> shut = {0, 1, 1, 0, 1};
    GuardedArray<float> kv = random.Array(kTokens * (kStreams + 1) * dim);
    GuardedArray<float> h = random.Array(kTokens * kStreams * dim);
    const GuardedArray<float> weights = random.Array(kStreams * dim);
    // Whatever lies where the gate is shut must not matter.
    for (size_t i = 0; i < kv.size(); ++i) {
      if (shut[i / ((kStreams + 1) * dim)] != 0) {
        kv[i] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    h[kStreams * dim] = -0.0f;
    const std::vector<float> before = h.Copy();
    GuardedArray<float> gate(kTokens * kStreams);
    for (float* gates : {gate.data(), static_cast<float*>(nullptr)}) {
      std::copy(before.begin(), before.end(), h.begin());
      ops().engram_gate({.kv = kv.data(),
                         .q_weight = weights.data(),
                         .k_weight = weights.data(),
                         .shut = shut.data(),
                         .tokens = kTokens,
                         .streams = kStreams,
                         .dim = dim,
                         .eps = 1e-20f,
                         .h = h.data(),
                         .gate = gates},
                        Pool(3));
      for (size_t i = 0; i < h.size(); ++i) {
        const size_t t = i / (kStreams * dim);
        const bool same = std::memcmp(&before[i], &h[i], sizeof(float)) == 0;
        EXPECT_EQ(shut[t] != 0, same) << "token " << t << " dim " << dim;
      }
    }
    for (size_t i = 0; i < gate.size(); ++i) {
      if (shut[i / kStreams] != 0) {
        EXPECT_EQ(0.0f, gate[i]);
      } else {
        EXPECT_LT(0.0f, gate[i]);
      }
    }
  }
}

TEST_P(EngramGateTest, ATokensBitsDependOnNothingElse) {
  constexpr size_t kTokens = 33;
  constexpr size_t kStreams = 4;
  constexpr size_t kDim = 40;
  Random random(35);
  const GuardedArray<float> kv = random.Array(kTokens * (kStreams + 1) * kDim);
  const GuardedArray<float> weights = random.Array(kStreams * kDim);
  const GuardedArray<float> start = random.Array(kTokens * kStreams * kDim);
  const auto run = [&](size_t chunk, size_t threads) {
    GuardedArray<float> h(start.size());
    std::copy(start.begin(), start.end(), h.begin());
    for (size_t t = 0; t < kTokens; t += chunk) {
      ops().engram_gate({.kv = kv.data() + t * (kStreams + 1) * kDim,
                         .q_weight = weights.data(),
                         .k_weight = weights.data(),
                         .tokens = std::min(chunk, kTokens - t),
                         .streams = kStreams,
                         .dim = kDim,
                         .eps = 1e-6f,
                         .h = h.data() + t * kStreams * kDim},
                        Pool(threads));
    }
    return h.Copy();
  };
  const std::vector<float> whole = run(kTokens, 1);
  for (const size_t chunk : {1, 7, 33}) {
    for (const size_t threads : {1, 2, 3}) {
      EXPECT_TRUE(SameBits(whole, run(chunk, threads)));
    }
  }
}

// As fp32 streams would be, and keys and values, that are rounded before and
// after. On CUDA a gate may differ by its sums' order, and a stream then by a
// unit of bf16.
TEST_P(EngramGateTest, Bf16StreamsTakeRoundedKeysAndValues) {
  constexpr size_t kTokens = 5, kStreams = 4;
  Random random(36);
  for (const size_t dim : {1, 7, 33, 64, 1160, 5120}) {
    const GuardedArray<float> kv = random.Array(kTokens * (kStreams + 1) * dim);
    const GuardedArray<float> weights = random.Array(kStreams * dim);
    const GuardedArray<uint8_t> shut = {0, 0, 1, 0, 0};
    GuardedArray<uint16_t> bits =
        ToBf16(random.Array(kTokens * kStreams * dim));
    GuardedArray<float> h = Widened(bits);
    const GuardedArray<float> rounded = Widened(ToBf16(kv));
    GuardedArray<float> gate(kTokens * kStreams), gate_bf16(gate.size());
    const auto run = [&](const float* keys, Streams streams, float* gates) {
      ops().engram_gate({.kv = keys,
                         .q_weight = weights.data(),
                         .k_weight = weights.data(),
                         .shut = shut.data(),
                         .tokens = kTokens,
                         .streams = kStreams,
                         .dim = dim,
                         .eps = 1e-6f,
                         .h = streams,
                         .gate = gates},
                        Pool(2));
    };
    run(rounded.data(), h.data(), gate.data());
    run(kv.data(), bits.data(), gate_bf16.data());
    if (!is_cuda()) {
      EXPECT_TRUE(SameBits(gate, gate_bf16)) << dim;
      EXPECT_TRUE(SameBits(ToBf16(h), bits)) << dim;
      continue;
    }
    const GuardedArray<float> actual = Widened(bits);
    for (size_t i = 0; i < gate.size(); ++i) {
      EXPECT_NEAR(gate[i], gate_bf16[i], 1e-5);
    }
    for (size_t i = 0; i < h.size(); ++i) {
      ASSERT_NEAR(h[i], actual[i], 0x1p-7 * std::fabs(h[i]) + 1e-5) << i;
    }
  }
}

}  // namespace
}  // namespace ecphory
