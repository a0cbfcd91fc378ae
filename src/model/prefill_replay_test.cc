// The published approximation: the decoder sees a window's length of a prompt.
#include <gtest/gtest.h>

#include <cmath>

#include "model/prefill_testing.h"
#include "model/test_models.h"

namespace ecphory {
namespace {

using namespace testing::prefill;
using Ids = std::span<const int32_t>;

class ReplayTest : public ::testing::Test {
 protected:
  static std::vector<float> Run(const std::shared_ptr<const Model>& model,
                                Ids tokens, Prefill prefill, uint32_t chunk) {
    auto session = Start(model, prefill, WithChunk(chunk));
    EXPECT_TRUE(session->Append(tokens, {}).ok());
    return Logits(*session);
  }
};

// With one layer behind the last source, a window of tokens is all that the
// last one reads: nothing is approximate yet.
TEST_F(ReplayTest, IsExactBehindOneLayer) {
  for (const TestModel& model : {kA, kC}) {
    const auto opened = Open(model);
    const auto tokens = Tokens(150, 17);
    EXPECT_EQ(Run(opened, tokens, Prefill::kReplay, 8),
              Run(opened, tokens, Prefill::kFull, 8));
  }
}

TEST_F(ReplayTest, IsAnApproximationBehindMore) {
  const auto model = Open(kDeep);
  const auto tokens = Tokens(150, 18);
  const auto full = Run(model, tokens, Prefill::kFull, 8);
  const auto replay = Run(model, tokens, Prefill::kReplay, 8);
  EXPECT_NE(replay, full);
  double dot = 0, a = 0, b = 0;
  for (size_t i = 0; i < full.size(); ++i) {
    ASSERT_TRUE(std::isfinite(replay[i]));
    dot += double{full[i]} * replay[i];
    a += double{full[i]} * full[i];
    b += double{replay[i]} * replay[i];
  }
  EXPECT_GT(dot / std::sqrt(a * b), 0.8);
  for (const uint32_t chunk : {1u, 7u, 64u, 256u}) {
    EXPECT_EQ(Run(model, tokens, Prefill::kReplay, chunk), replay) << chunk;
  }
  const auto window = Ids(tokens).first(16);
  EXPECT_EQ(Run(model, window, Prefill::kReplay, 8),
            Run(model, window, Prefill::kFull, 8));
}

// The tail's first token sees no row of the layers after the source but its
// own, so nothing that these held before the call can show.
TEST_F(ReplayTest, WindowsBeginWithTheTail) {
  const auto model = Open(kDeep);
  const auto tokens = Tokens(100, 19), other = Tokens(60, 20);
  const auto want = Run(model, tokens, Prefill::kReplay, 8);
  auto session = Start(model, Prefill::kReplay, WithChunk(8));
  ASSERT_TRUE(session->Append(other, {}).ok());  // leaves rows in the rings
  ASSERT_TRUE(session->Truncate(0).ok());
  ASSERT_TRUE(session->Append(tokens, {}).ok());
  EXPECT_EQ(Logits(*session), want);
}

TEST_F(ReplayTest, ContinuesButDoesNotStepBackIntoThePrompt) {
  const auto model = Open(kDeep);
  const auto tokens = Tokens(150, 21), next = Tokens(30, 22);
  auto session = Start(model, Prefill::kReplay, WithChunk(8));
  ASSERT_TRUE(session->Append(tokens, {}).ok());
  EXPECT_EQ(session->EarliestTruncation(), 150u);
  EXPECT_EQ(session->Truncate(149).code(), StatusCode::kOutOfRange);
  auto restored = Start(model, Prefill::kReplay, WithChunk(8));
  ASSERT_TRUE(restored->Restore(SnapshotOf(*session)).ok());
  EXPECT_TRUE(SnapshotOf(*restored) == SnapshotOf(*session));
  for (const int32_t& token : next) {
    ASSERT_TRUE(session->Append({&token, 1}, {}).ok());
    ASSERT_TRUE(restored->Append({&token, 1}, {}).ok());
    ASSERT_EQ(Logits(*restored), Logits(*session));
  }
  EXPECT_EQ(session->EarliestTruncation(), 180u - 8);
  ASSERT_TRUE(session->Truncate(0).ok());
  ASSERT_TRUE(session->Append(tokens, {}).ok());
  EXPECT_EQ(Logits(*session), Run(model, tokens, Prefill::kReplay, 8));
}

TEST_F(ReplayTest, CancelledItKeepsNothing) {
  const auto model = Open(kDeep);
  const auto prefix = Tokens(20, 23), tokens = Tokens(90, 24);
  for (size_t stop = 0; stop < 80; stop += 8) {
    auto session = Start(model, Prefill::kReplay, WithChunk(8));
    ASSERT_TRUE(session->Append(prefix, {}).ok());
    auto want = Start(model, Prefill::kReplay, WithChunk(8));
    ASSERT_TRUE(want->Append(prefix, {}).ok());
    ASSERT_FALSE(AppendUntil(stop, tokens, *session).ok());
    ASSERT_EQ(session->position(), prefix.size());
    ASSERT_TRUE(session->Append(tokens, {}).ok());
    ASSERT_TRUE(want->Append(tokens, {}).ok());
    EXPECT_EQ(Logits(*session), Logits(*want)) << stop;
  }
}

}  // namespace
}  // namespace ecphory
