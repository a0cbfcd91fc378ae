// The table itself: complete for every backend, and alive in every format.
#include "ops/ops.h"

#include <cstring>
#include <string>

#include "ops/testing.h"
#include "ops/weights_testing.h"

namespace ecphory {
namespace {

class OpsTest : public OpTest {};
ECPHORY_INSTANTIATE_OP_TEST(OpsTest);

TEST_P(OpsTest, EveryEntryIsSet) {
  using Entry = void (*)();
  constexpr size_t kEntries =
      (sizeof(Ops) - sizeof(const char*)) / sizeof(Entry);
  ASSERT_GE(kEntries, 19u);
  const auto* table = reinterpret_cast<const unsigned char*>(&ops());
  for (size_t i = 0; i < kEntries; ++i) {
    Entry entry = nullptr;
    std::memcpy(&entry, table + sizeof(const char*) + i * sizeof(Entry),
                sizeof(Entry));
    EXPECT_NE(nullptr, entry) << "entry " << i;
  }
}

TEST_P(OpsTest, TheNamedBackendRuns) {
  std::string ran = ops().name;
  if (ran == "cpu") ran += std::string("_") + CpuTargetName();
  EXPECT_EQ(GetParam().name, ran);
}

TEST_P(OpsTest, EveryWeightFormatReachesEveryOperatorThatReadsWeights) {
  constexpr size_t kDim = 256;  // whole blocks in every format
  Random random(1);
  for (const WeightFormat format : kWeightFormats) {
    const PackedMatrix w = RandomMatrix(format, kDim, kDim, random);
    const GuardedArray<float> x = random.Array(kDim);

    GuardedArray<float> y(kDim);
    ops().matmul({.weight = w.view, .x = x.data(), .y = y.data(), .tokens = 1},
                 Pool(1));
    for (float value : y) EXPECT_TRUE(std::isfinite(value));

    const int32_t token = 31;
    GuardedArray<float> h(2 * kDim);
    ops().embed({.table = w.view,
                 .tokens = &token,
                 .n_tokens = 1,
                 .streams = 2,
                 .h = h.data()},
                Pool(1));
    EXPECT_EQ(w.values[31 * kDim + 5], h[kDim + 5]) << WeightFormatName(format);

    const Expert expert{w.view, w.view, w.view};
    const int32_t id = 0;
    const float weight = 1;
    y.Poison();
    ops().experts({.x = x.data(),
                   .tokens = 1,
                   .dim = kDim,
                   .experts = &expert,
                   .n_experts = 1,
                   .inner = expert.w1.rows,
                   .ids = &id,
                   .weights = &weight,
                   .topk = 1,
                   .y = y.data()},
                  Pool(1));
    for (float value : y) EXPECT_TRUE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace ecphory
