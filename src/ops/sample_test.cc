// Drawing a token: held to the contract's steps taken one by one, and to
// distributions.
#include "ops/sample.h"

#include <map>

#include "ops/sample_math.h"
#include "ops/testing.h"

namespace ecphory {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr double kAnyGap = -std::numeric_limits<double>::infinity();

class SampleTest : public OpTest {
 protected:
  // One row; the token is left in memory as well.
  Sampled Run(const GuardedArray<float>& logits, SampleRow row) {
    GuardedArray<Sampled> sampled(1);
    GuardedArray<int32_t> token(1);
    row.logits = logits.data();
    row.token = token.data();
    ops().sample({.rows = &row,
                  .n_rows = 1,
                  .vocab = logits.size(),
                  .sampled = sampled.data()},
                 Pool(1));
    EXPECT_EQ(token[0], sampled[0].id);
    return sampled[0];
  }
  int32_t Id(const GuardedArray<float>& logits, const SampleRow& row) {
    const Sampled sampled = Run(logits, row);
    EXPECT_EQ(sampled.fault, SampleFault::kNone);
    return sampled.id;
  }
};
ECPHORY_INSTANTIATE_OP_TEST(SampleTest);

// How many logits keep fewer than `limit` better ones.
struct Oracle {
  Oracle(std::vector<float> the_logits, const SampleRow& the_row)
      : logits(std::move(the_logits)),
        row(the_row),
        bits(SampleMassBits(logits.size())) {
    for (size_t i = 0; i < row.n_penalized; ++i) {
      float& x = logits[static_cast<size_t>(row.penalized[i])];
      x = x > 0 ? x / row.repeat_penalty : x * row.repeat_penalty;
    }
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] > -kInf) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  }

  uint64_t MassOf(size_t i, double temperature) const {
    const double gap = double{logits[i]} - double{logits[order[0]]};
    return SampleMass(gap / temperature, bits);
  }

  // Of the best `kept`, how many stay.
  size_t Kept() const {
    size_t kept = order.size();
    if (row.top_k > 0) kept = std::min<size_t>(kept, row.top_k);
    if (row.top_p < 1) {
      uint64_t total = 0, sum = 0;
      for (size_t r = 0; r < kept; ++r) total += MassOf(order[r], 1);
      const uint64_t wanted = SampleShare(row.top_p, total);
      size_t r = 0;
      while (sum < wanted) sum += MassOf(order[r++], 1);
      kept = r;
    }
    while (double{logits[order[kept - 1]]} - double{logits[order[0]]} <
           row.min_gap) {
      --kept;
    }
    return kept;
  }

  size_t Id() const {
    if (row.temperature == 0) return order[0];
    std::vector<size_t> ids(order.begin(),
                            order.begin() + static_cast<ptrdiff_t>(Kept()));
    std::sort(ids.begin(), ids.end());
    uint64_t total = 0;
    for (const size_t i : ids) total += MassOf(i, row.temperature);
    uint64_t target = SampleTarget(row.random, total), passed = 0;
    for (const size_t i : ids) {
      passed += MassOf(i, row.temperature);
      if (target < passed) return i;
    }
    return logits.size();
  }

  std::vector<float> logits;
  const SampleRow& row;
  const int bits;
  std::vector<size_t> order;
};

uint64_t Bits(Random& random) {
  return uint64_t{random.Below(UINT32_MAX)} << 32 | random.Below(UINT32_MAX);
}

// Some with few levels and so many ties, some masked.
GuardedArray<float> SomeLogits(size_t vocab, Random& random) {
  GuardedArray<float> logits(vocab);
  const uint32_t kind = random.Below(4);
  const float scale = random.Uniform(0.1f, 30);
  for (float& x : logits) {
    x = kind == 0 ? static_cast<float>(random.Below(5)) - 2
                  : scale * random.Signed();
    if (kind == 3 && random.Below(3) != 0) x = -kInf;
  }
  logits[random.Below(static_cast<uint32_t>(vocab))] = 0.25f;  // never none
  if (vocab > 2) logits[1] = -0.0f;
  return logits;
}

SampleRow SomeRow(size_t vocab, Random& random) {
  constexpr float kTopP[] = {1, 1, 0.95f, 0.5f, 0.01f, 1e-30f};
  constexpr double kGaps[] = {kAnyGap, kAnyGap, -3, -0.5, 0};
  const uint32_t n = static_cast<uint32_t>(vocab);
  return {.temperature = random.Below(5) == 0 ? 0 : random.Uniform(0.1f, 3),
          .top_k = random.Below(2) == 0 ? 0 : 1 + random.Below(n),
          .top_p = kTopP[random.Below(6)],
          .min_gap = kGaps[random.Below(5)],
          .random = Bits(random)};
}

TEST_P(SampleTest, EveryBackendTakesTheSame) {
  Random random(61);
  for (const size_t vocab :
       {1, 2, 31, 256, 1000, 1024, 1025, 5000, 129280, 300001}) {
    const int draws = vocab > 10000 ? 12 : 40;
    for (int i = 0; i < draws; ++i) {
      const GuardedArray<float> logits = SomeLogits(vocab, random);
      SampleRow row = SomeRow(vocab, random);
      GuardedArray<int32_t> penalized(std::min<size_t>(vocab, 9));
      for (size_t p = 0; p < penalized.size(); ++p) {
        penalized[p] = static_cast<int32_t>(vocab - 1 - p * vocab / 9);
      }
      if (random.Below(2) == 0) {
        row.penalized = penalized.data();
        row.n_penalized = penalized.size();
        row.repeat_penalty = random.Uniform(0.5f, 2);
      }
      EXPECT_EQ(static_cast<int32_t>(Oracle(logits.Copy(), row).Id()),
                Id(logits, row))
          << vocab << " logits, temperature " << row.temperature << ", top_k "
          << row.top_k << ", top_p " << row.top_p << ", gap " << row.min_gap
          << ", penalized " << row.n_penalized;
    }
  }
}

// Rows are drawn from together, each with its own options.
TEST_P(SampleTest, RowsAreOnTheirOwn) {
  Random random(62);
  constexpr size_t kRows = 37, kVocab = 3001;
  std::vector<GuardedArray<float>> logits;
  std::vector<SampleRow> rows;
  for (size_t r = 0; r < kRows; ++r) {
    logits.push_back(SomeLogits(kVocab, random));
    rows.push_back(SomeRow(kVocab, random));
    rows.back().logits = logits.back().data();
  }
  GuardedArray<Sampled> sampled(kRows);
  ops().sample({.rows = rows.data(),
                .n_rows = kRows,
                .vocab = kVocab,
                .sampled = sampled.data()},
               Pool(1));
  for (size_t r = 0; r < kRows; ++r) {
    EXPECT_EQ(static_cast<int32_t>(Oracle(logits[r].Copy(), rows[r]).Id()),
              sampled[r].id)
        << r;
    EXPECT_EQ(sampled[r].fault, SampleFault::kNone);
  }
}

TEST_P(SampleTest, Literals) {
  const GuardedArray<float> logits = {1, 3, 3, 2, -kInf};
  EXPECT_EQ(Id(logits, {}), 1);
  // Parts of the ids in all: e^-2, 1, 1, e^-1.
  const auto at = [](double share) {
    return static_cast<uint64_t>(std::ldexp(share, 64));
  };
  SampleRow row{.temperature = 1, .min_gap = kAnyGap};
  const double all = std::exp(-2.0) + 2 + std::exp(-1.0);
  row.random = at(0.13 / all);
  EXPECT_EQ(Id(logits, row), 0);
  row.random = at(0.14 / all);
  EXPECT_EQ(Id(logits, row), 1);
  row.random = at((all - 0.38) / all);
  EXPECT_EQ(Id(logits, row), 2);
  row.random = at((all - 0.36) / all);
  EXPECT_EQ(Id(logits, row), 3);
  row.random = UINT64_MAX;
  EXPECT_EQ(Id(logits, row), 3);
  row.min_gap = -0.5;
  EXPECT_EQ(Id(logits, row), 2);
  row.top_k = 1;
  EXPECT_EQ(Id(logits, row), 1);
}

TEST_P(SampleTest, WhatIsNoNumberIsAFault) {
  Random random(63);
  for (const float temperature : {0.0f, 1.0f}) {
    const SampleRow row{.temperature = temperature, .top_k = 3, .top_p = 0.5f};
    GuardedArray<float> logits = random.Array(5000);
    logits[4000] = kNaN;
    Sampled sampled = Run(logits, row);
    EXPECT_EQ(sampled.fault, SampleFault::kNaN);
    EXPECT_EQ(sampled.id, 4000);
    EXPECT_NE(CheckSampled(sampled, 5000).message().find("token 4000 is NaN"),
              std::string::npos);
    logits[7] = kInf;
    sampled = Run(logits, row);
    EXPECT_EQ(sampled.fault, SampleFault::kInfinity);
    EXPECT_EQ(sampled.id, 7);
    std::fill(logits.begin(), logits.end(), -kInf);
    sampled = Run(logits, row);
    EXPECT_EQ(sampled.fault, SampleFault::kNoToken);
    EXPECT_EQ(CheckSampled(sampled, 5000).code(), StatusCode::kCorrupt);
  }
  EXPECT_TRUE(CheckSampled({3, SampleFault::kNone}, 5000).ok());
}

TEST(SampleMath, MassesAreThoseOfTheExponential) {
  for (const size_t vocab : {100u, 129280u, 1u << 30}) {
    const int bits = SampleMassBits(vocab);
    EXPECT_EQ(bits, vocab < 1u << 23 ? 40 : 32);
    EXPECT_EQ(SampleMass(0, bits), uint64_t{1} << bits);
    EXPECT_LT(static_cast<double>(vocab) * std::ldexp(1, bits), 0x1p63);
    for (double z = 0; z > -50; z -= 0.00137) {
      const double exact = std::ldexp(std::exp(z), bits);
      const double mass = static_cast<double>(SampleMass(z, bits));
      EXPECT_NEAR(mass, exact, 0.51 + 0x1p-46 * exact) << z;
    }
    EXPECT_EQ(SampleMass(-kInf, bits), 0u);
  }
}

TEST(SampleMath, SharesAndTargets) {
  EXPECT_EQ(SampleShare(0.5f, 1000), 500u);
  EXPECT_EQ(SampleShare(0.5f, 1001), 501u);
  EXPECT_EQ(SampleShare(1e-30f, 1000), 1u);
  Random random(64);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t a = Bits(random), b = Bits(random) >> (i % 64);
    __extension__ using Wide = unsigned __int128;
    EXPECT_EQ(SampleTarget(a, b), static_cast<uint64_t>(Wide{a} * b >> 64));
  }
  EXPECT_EQ(SampleTarget(UINT64_MAX, 7), 6u);
}

}  // namespace
}  // namespace ecphory
