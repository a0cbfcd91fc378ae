// How long the tail must be, and what an interruption leaves of a prompt.
#include <gtest/gtest.h>

#include <atomic>

#include "model/forward.h"
#include "model/model_impl.h"
#include "model/prefill_testing.h"
#include "model/test_models.h"

namespace ecphory {
namespace {

using namespace testing::prefill;
using Ids = std::span<const int32_t>;

class PrefillTailTest : public PrefillTest {};

// --- How long the tail must be -----------------------------------------------

// The last token's logits, and those after one more token, with every layer for
// the last `tail` tokens only.
std::vector<std::vector<float>> WithTail(const Model& model, Ids tokens,
                                         size_t tail) {
  SessionOptions options = WithChunk(8);
  options.state_rounding = false;  // a difference is not rounded away
  options.context = static_cast<uint32_t>(tokens.size()) + 1;
  const auto forward = Forward::Create(model.impl().forward, options);
  EXPECT_TRUE(forward.ok());
  auto state =
      SequenceState::Create(model.config(), options, *model.impl().device);
  EXPECT_TRUE(state.ok());
  const std::vector<uint8_t> image(tokens.size() + 1);
  const size_t begin = tokens.size() - tail;
  std::vector<std::vector<float>> logits;
  const auto run = [&](Ids ids, bool encoder_only) {
    ForwardChunk chunk;
    chunk.tokens = ids;
    chunk.image = std::span(image).first(ids.size());
    chunk.encoder_only = encoder_only;
    chunk.decoder_begin = begin;
    if (encoder_only) chunk.logits = LogitsWanted::kNone;
    EXPECT_TRUE((*forward)->Run(chunk, &*state).ok());
  };
  for (size_t first = 0; first < tokens.size();) {
    const size_t end = first < begin ? begin : tokens.size();
    const size_t count = std::min<size_t>(8, end - first);
    run(tokens.subspan(first, count), first < begin);
    first += count;
  }
  logits.push_back(state->logits);
  run(tokens.first(1), false);
  logits.push_back(state->logits);
  return logits;
}

TEST_P(PrefillTailTest, TheHaloIsEnoughAndNoTokenTooLong) {
  const auto tokens = Tokens(Long(), 7);
  const auto full = WithTail(*model_, tokens, tokens.size());
  const size_t halo = DecoderHalo(config());
  EXPECT_EQ(WithTail(*model_, tokens, halo + 1), full);
  if (halo == 0) return;  // no token, no logits
  const auto shorter = WithTail(*model_, tokens, halo);
  EXPECT_NE(shorter[0], full[0]);
  EXPECT_EQ(shorter[1], full[1]);
  EXPECT_NE(WithTail(*model_, tokens, halo - 1)[1], full[1]);
}

// --- Interrupted -------------------------------------------------------------

// Of no more tokens than are computed in one way everywhere.
constexpr uint32_t kChunk = 8;

// Whatever a session holds, it is what a full pass over its tokens gives, and
// so is every position that it says it can be stepped back to.
void ExpectValid(const std::shared_ptr<const Model>& model, Session& session) {
  const auto saved = SnapshotOf(session);
  const std::vector<int32_t> held(session.tokens().begin(),
                                  session.tokens().end());
  const auto next = Tokens(20, 8);
  for (uint64_t keep = session.EarliestTruncation(); keep <= held.size();
       ++keep) {
    ASSERT_TRUE(session.Restore(saved).ok());
    ASSERT_TRUE(session.Truncate(keep).ok());
    ASSERT_TRUE(session.Append(next, {}).ok());
    std::vector<int32_t> text(held.begin(),
                              held.begin() + static_cast<ptrdiff_t>(keep));
    text.insert(text.end(), next.begin(), next.end());
    auto full = Start(model, Prefill::kFull, WithChunk(kChunk));
    ASSERT_TRUE(full->Append(text, {}).ok());
    ASSERT_EQ(Logits(session), Logits(*full)) << "back at " << keep;
  }
  ASSERT_TRUE(session.Restore(saved).ok());
}

TEST_P(PrefillTailTest, CancelledAnywhereTheSessionIsValid) {
  const uint32_t chunk = kChunk;
  const auto prefix = Tokens(41, 9), tokens = Tokens(Long(), 10);
  const PrefillPlan plan =
      PlanPrefill(config(), WithChunk(chunk), tokens.size());
  ASSERT_TRUE(plan.skips());
  for (const size_t before : {size_t{0}, prefix.size()}) {
    for (size_t stop = 0; stop < tokens.size(); stop += chunk) {
      SCOPED_TRACE(::testing::Message() << stop << " behind " << before);
      auto session = Start(model_, Prefill::kSkip, WithChunk(chunk));
      ASSERT_TRUE(session->Append(Ids(prefix).first(before), {}).ok());
      const auto logits = Logits(*session);
      const Status status = AppendUntil(stop, tokens, *session);
      ASSERT_EQ(status.code(), StatusCode::kCancelled);
      if (stop < plan.whole) {
        ASSERT_EQ(session->position(), before);
        EXPECT_EQ(Logits(*session), logits);
        testing::ExpectHas(status.message(), "none of which stays");
      } else {
        ASSERT_EQ(session->position(), before + stop);
        EXPECT_TRUE(session->logits().empty());
      }
      ExpectValid(model_, *session);
    }
  }
}

TEST_P(PrefillTailTest, CancelledThenAppendedAgain) {
  const auto prefix = Tokens(30, 11), tokens = Tokens(Long() + 9, 12);
  auto full = Start(model_, Prefill::kFull, WithChunk(8));
  ASSERT_TRUE(full->Append(prefix, {}).ok());
  ASSERT_TRUE(full->Append(tokens, {}).ok());
  for (size_t stop = 8; stop < tokens.size(); stop += 24) {
    auto session = Start(model_, Prefill::kSkip, WithChunk(8));
    ASSERT_TRUE(session->Append(prefix, {}).ok());
    ASSERT_FALSE(AppendUntil(stop, tokens, *session).ok());
    const size_t held = session->position() - prefix.size();
    ASSERT_TRUE(session->Append(Ids(tokens).subspan(held), {}).ok());
    EXPECT_EQ(Logits(*session), Logits(*full)) << stop;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PrefillTailTest,
                         ::testing::ValuesIn(AllModels()),
                         [](const auto& param_info) {
                           return std::string(param_info.param.name);
                         });

}  // namespace
}  // namespace ecphory
