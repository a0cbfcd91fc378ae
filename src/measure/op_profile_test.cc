// The parts of a pass, held to what golden model A's sizes say by hand.
#include "measure/op_profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "measure/filled_state.h"
#include "model/forward.h"
#include "model/model_impl.h"
#include "model/snapshot.h"

namespace ecphory::measure {
namespace {

constexpr uint64_t kPosition = 100;

TEST(OpProfile, TimesEveryOperator) {
  // A name, and a pointer each.
  EXPECT_EQ(TimedEntries(), sizeof(Ops) / sizeof(void*) - 1);
}

class GoldenA : public ::testing::Test {
 protected:
  void SetUp() override {
    ModelOptions options;
    options.threads = 2;
    auto opened = Model::Open(ECPHORY_TEST_DATA "/golden/v41/A", options);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    model_ = *opened;
    session_.context = 128;
    session_.chunk = 1;
  }

  const ModelConfig& config() const { return model_->config(); }
  SequenceState Filled(uint64_t position) {
    auto state =
        FilledState(config(), session_, position, model_->impl().forward.hasher,
                    *model_->impl().pool, HostDevice());
    EXPECT_TRUE(state.ok()) << state.status().ToString();
    return std::move(*state);
  }
  // One token through a forward pass of our own, with `ops`.
  std::vector<float> Step(const Ops& ops, SequenceState* state) {
    ForwardModel forward_model = model_->impl().forward;
    forward_model.ops = &ops;
    const auto forward = Forward::Create(forward_model, session_);
    EXPECT_TRUE(forward.ok());
    const std::vector<int32_t> token = {7};
    const std::vector<uint8_t> image = {0};
    ForwardChunk chunk;
    chunk.tokens = token;
    chunk.image = image;
    EXPECT_TRUE((*forward)->Run(chunk, state).ok());
    return state->logits;
  }

  std::shared_ptr<const Model> model_;
  SessionOptions session_;
};

TEST_F(GoldenA, PartsCountWhatAStepDoes) {
  SequenceState state = Filled(kPosition);
  OpProfile profile(CpuOps(), model_->impl().weights);
  const OpProfile::Scope scope(&profile);
  Step(profile.ops(), &state);
  const auto flops = [&](Part part) { return profile.of(part).cost.flops; };
  // wq_a 64 x 128, wq_b 256 x 64, wkv 64 x 128, wo_a 64 x 128, wo_b 128 x 64.
  // In the same calls, as they have the same inputs: three indexers' wq_b 128 x
  // 64. Two compressors' wkv and one's wgate 64 x 128, and the index weights
  // 4 x 128, are calls of their own.
  EXPECT_EQ(flops(Part::kProjections), 6 * 2 * 49'152 + 2 * 3 * 8'192);
  EXPECT_EQ(flops(Part::kHead), 2 * 512 * 128);
  EXPECT_EQ(flops(Part::kRouter), 6 * 2 * 8 * 128);
  // Two experts and the shared one, three products of 64 x 128.
  EXPECT_EQ(flops(Part::kExperts), 6 * 2 * 3 * 3 * 8'192);
  // Two layers: 640 x 384, and a gate of four products over 512 values.
  EXPECT_EQ(flops(Part::kEngram), 2 * 2 * (245'760 + 4 * 512));
  // Windows of 16; four layers take 8 entries as well.
  EXPECT_EQ(flops(Part::kAttention), 4 * 256 * (6 * 16 + 4 * 8));
  EXPECT_EQ(profile.of(Part::kAttention).cost.stored, 6 * 16 * 66 + 4 * 8 * 36);
  EXPECT_GT(profile.of(Part::kExperts).cost.stored, 0);
  EXPECT_GE(profile.of(Part::kMhc).calls, 12u);
  for (size_t i = 0; i < kParts; ++i) {
    const PartTime& time = profile.of(static_cast<Part>(i));
    EXPECT_EQ(time.calls > 0, time.seconds > 0)
        << PartName(static_cast<Part>(i));
  }
  profile.Reset();
  EXPECT_EQ(profile.seconds(), 0);
  EXPECT_EQ(profile.cost().flops, 0);
}

TEST_F(GoldenA, TimingChangesNoBit) {
  SequenceState plain_state = Filled(kPosition);
  SequenceState timed_state = Filled(kPosition);
  OpProfile profile(CpuOps(), model_->impl().weights);
  const std::vector<float> plain = Step(CpuOps(), &plain_state);
  const OpProfile::Scope scope(&profile);
  EXPECT_EQ(Step(profile.ops(), &timed_state), plain);
  EXPECT_EQ(plain.size(), config().vocab_size);
}

// A session restores it as it would any other, and goes on the same way.
TEST_F(GoldenA, AFilledStateIsAState) {
  for (const uint64_t position : {0u, 1u, 15u, 101u}) {
    SequenceState state = Filled(position);
    EXPECT_EQ(state.tokens.size(), position);
    auto session = Session::Create(model_, session_);
    ASSERT_TRUE(session.ok());
    const Status status = (*session)->Restore(*EncodeSnapshot(config(), state));
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ((*session)->position(), position);
    const int32_t token = 7;
    ASSERT_TRUE((*session)->Append({&token, 1}, {}).ok());
    const std::span<const float> logits = (*session)->logits();
    EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()),
              Step(CpuOps(), &state));
  }
}

TEST_F(GoldenA, RowsOfAFilledStateDiffer) {
  SequenceState state = Filled(kPosition);
  for (const SourceCache& source : state.sources) {
    const RowCache& keys = source.index_keys;
    const uint64_t groups = kPosition / source.ratio;
    std::vector<uint8_t> first(keys.row_bytes), row(keys.row_bytes);
    ASSERT_TRUE(keys.Read(0, 1, first.data()).ok());
    for (uint64_t g = 1; g < groups; ++g) {
      ASSERT_TRUE(keys.Read(g, 1, row.data()).ok());
      EXPECT_NE(row, first);
    }
  }
}

TEST_F(GoldenA, RandomTokensAreNoImages) {
  ModelConfig image = config();
  image.image_token_id = 3;
  image.vocab_size = 8;
  const std::vector<int32_t> tokens = RandomTokens(image, 500, 1);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 3), 0);
  EXPECT_EQ(*std::max_element(tokens.begin(), tokens.end()), 7);
  EXPECT_EQ(*std::min_element(tokens.begin(), tokens.end()), 0);
}

}  // namespace
}  // namespace ecphory::measure
