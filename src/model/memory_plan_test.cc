#include "model/memory_plan.h"

#include <gtest/gtest.h>

#include "ecphory/session.h"
#include "model/caches.h"
#include "model/test_models.h"

namespace ecphory {
namespace {

// 0: the session's defaults.
MemoryPlan Plan(const ModelConfig& c, uint32_t context, uint32_t chunk) {
  SessionOptions options;
  options.context = context;
  if (chunk != 0) options.chunk = chunk;
  return PlanMemory(c, options, {});
}

// 288 bytes of latent and 68 of index key: three sources of ratio 2 and one of
// ratio 1.
TEST(MemoryPlan, ReleasedSizesTake890BytesAToken) {
  const MemoryPlan plan = Plan(testing::ReleasedConfig(), 0, 0);
  EXPECT_EQ(plan.state_per_token_exact, 890);
  EXPECT_EQ(plan.state_per_token, 890u);
}

TEST(MemoryPlan, FractionsAreRoundedUpPerSource) {
  ModelConfig c = testing::ReleasedConfig();
  for (uint32_t& ratio : c.compress_ratios) ratio = ratio == 2 ? 3 : ratio;
  const MemoryPlan plan = Plan(c, 0, 0);
  EXPECT_DOUBLE_EQ(plan.state_per_token_exact, 356 + 356.0);
  EXPECT_EQ(plan.state_per_token, 356u + 3 * 119);
}

TEST(MemoryPlan, FixedPartIsWindowsAndOpenGroups) {
  const ModelConfig c = testing::ReleasedConfig();
  const uint64_t windows = 40ull * (128 + 256) * 528;
  const uint64_t open = 3ull * (256 + 2) * 2 * 512 * 4;
  EXPECT_EQ(FixedStateBytes(c, 256), windows + open + sizeof(engram::History));
}

TEST(MemoryPlan, IsWhatASessionAllocates) {
  const ModelConfig c = testing::ReleasedConfig();
  SessionOptions options;
  options.context = 5001;  // an odd length leaves half a group
  options.chunk = 64;
  const Result<SequenceState> state =
      SequenceState::Create(c, options, HostDevice());
  ASSERT_TRUE(state.ok()) << state.status().ToString();
  EXPECT_EQ(StateBytes(c, 5001, 64), state->bytes() + sizeof(engram::History));
}

TEST(MemoryPlan, DefaultsAreTheSessions) {
  ModelConfig c = testing::ReleasedConfig();
  EXPECT_EQ(Plan(c, 0, 0).context, 4096u);
  EXPECT_EQ(Plan(c, 0, 0).chunk, SessionOptions().chunk);
  c.max_positions = 100;
  EXPECT_EQ(Plan(c, 0, 0).context, 100u);
  EXPECT_EQ(Plan(c, 77, 5).context, 77u);
  EXPECT_EQ(Plan(c, 77, 5).chunk, 5u);
}

TEST(MemoryPlan, AModelWithoutCompressionOnlyHasWindows) {
  ModelConfig c = testing::ReleasedConfig();
  c.compress_ratios.assign(c.n_layers, 0);
  c.kv_source_layer_ids.clear();
  c.index_source_layer_ids.clear();
  const MemoryPlan plan = Plan(c, 4096, 256);
  EXPECT_EQ(plan.state_per_token, 0u);
  EXPECT_EQ(plan.state_context, plan.state_fixed);
}

}  // namespace
}  // namespace ecphory
