// Steps that a device begins before the host has their tokens, on each device:
// the bits are those of steps one by one, whatever comes instead of them.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "ecphory/batch.h"
#include "ecphory/session.h"
#include "model/model_impl.h"
#include "model/prefill_testing.h"
#include "model/test_models.h"
#include "model/testing.h"

namespace ecphory {
namespace {

using std::chrono::milliseconds;
using testing::GoldenDir;
using testing::prefill::Logits;
using testing::prefill::Tokens;
using Ids = std::span<const int32_t>;

constexpr size_t kPrompt = 21;

SessionOptions Options(Activations activations = Activations::kF32) {
  SessionOptions options;
  options.context = 256;
  options.chunk = testing::kAlikeTokens;
  options.activations = activations;
  return options;
}

SamplerOptions SomeSampler(size_t i) {
  return {.temperature = i % 4 == 0 ? 0.0f : 1.5f,
          .top_k = i % 3 == 0 ? 50u : 0u,
          .top_p = i % 5 == 0 ? 0.9f : 1.0f,
          .repeat_penalty = i % 7 == 0 ? 1.3f : 1.0f,
          .repeat_window = 8};
}

class StepAheadTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string reason = testing::Unavailable(GetParam());
    if (!reason.empty()) GTEST_SKIP() << reason;
    model_ = testing::OpenOrDie(GoldenDir("A"), GetParam());
  }
  // After a prompt.
  std::unique_ptr<Session> Start(const std::shared_ptr<const Model>& model,
                                 const SessionOptions& options = Options()) {
    auto session = Session::Create(model, options).value();
    EXPECT_TRUE(session->Append(Tokens(kPrompt, 1), {}).ok());
    return session;
  }
  std::unique_ptr<Session> Start() { return Start(model_); }
  std::vector<float> Fresh(Ids tokens,
                           const SessionOptions& options = Options()) const {
    auto session = Session::Create(model_, options).value();
    EXPECT_TRUE(session->Append(tokens, {}).ok());
    return Logits(*session);
  }
  bool records() const { return !model_->impl().device->is_host(); }

  std::shared_ptr<const Model> model_;
};

uint64_t RandomOf(size_t i) { return 0x9e3779b97f4a7c15 * (i + 1); }

// So many steps from `token` on, each with the token that the one before drew;
// the last of them goes on if `goes_on`. The token drawn last.
int32_t StepAhead(Session& session, int32_t token, size_t count, bool goes_on,
                  bool prefetches = false) {
  for (size_t i = 0; i < count; ++i) {
    if (prefetches) session.Prefetch({&token, 1});
    const auto next = session.Step(token, SomeSampler(i), RandomOf(i),
                                   goes_on || i + 1 < count);
    EXPECT_TRUE(next.ok()) << next.status().ToString();
    if (!next.ok()) break;
    token = *next;
  }
  return token;
}

TEST_P(StepAheadTest, IsAppendAndDraw) {
  for (const Activations activations :
       {Activations::kF32, Activations::kBF16}) {
    for (const bool prefetches : {false, true}) {
      auto one_by_one = Start(model_, Options(activations));
      auto ahead = Start(model_, Options(activations));
      constexpr size_t kSteps = 40;
      int32_t token = 7;
      for (size_t i = 0; i < kSteps; ++i) {
        ASSERT_TRUE(one_by_one->Append({&token, 1}, {}).ok());
        token = one_by_one->Draw(SomeSampler(i), RandomOf(i)).value();
      }
      EXPECT_EQ(StepAhead(*ahead, 7, kSteps, false, prefetches), token);
      EXPECT_EQ(ahead->position(), kPrompt + kSteps);
      EXPECT_TRUE(std::ranges::equal(ahead->tokens(), one_by_one->tokens()));
      EXPECT_EQ(Logits(*ahead), Logits(*one_by_one));
      EXPECT_EQ(ahead->stats().tokens, one_by_one->stats().tokens);
      EXPECT_GE(ahead->stats().replayed_steps, records() ? 30u : 0u);
    }
  }
}

// What comes instead of the step that was begun, at several places of groups
// and windows; then the session goes on, and is one that never ran ahead.
TEST_P(StepAheadTest, OtherThingsMayCome) {
  const auto others = Tokens(9, 2);
  const auto append = [](Session& session, Ids tokens) {
    ASSERT_TRUE(session.Append(tokens, {}).ok());
  };
  const std::vector<std::function<void(Session&, int32_t)>> instead = {
      [](Session& session, int32_t) { session.DropAhead(); },
      [&](Session& session, int32_t drawn) {
        append(session, {&drawn, 1});
      },
      [&](Session& session, int32_t) { append(session, Ids(others).first(1)); },
      [&](Session& session, int32_t) { append(session, others); },
      [](Session& session, int32_t drawn) {  // what is asked for changes not
        session.Prefetch({&drawn, 1});
        session.DropAhead();
      },
      [&](Session& session, int32_t drawn) {
        session.Prefetch(others);
        append(session, {&drawn, 1});
      },
      [](Session& session, int32_t) {
        ASSERT_TRUE(session.Truncate(session.position()).ok());
      },
      [](Session& session, int32_t) {
        ASSERT_TRUE(session.Truncate(session.position() - 1).ok());
      },
      [](Session& session, int32_t) {
        ASSERT_TRUE(session.Truncate(session.EarliestTruncation()).ok());
      },
      [](Session& session, int32_t) { ASSERT_FALSE(Logits(session).empty()); },
      [](Session& session, int32_t) {
        const auto snapshot = session.Snapshot().value();
        ASSERT_TRUE(session.Truncate(session.position() - 2).ok());
        ASSERT_TRUE(session.Restore(snapshot).ok());
      },
      [](Session& session, int32_t drawn) {
        EXPECT_EQ(*session.Draw(SomeSampler(0), RandomOf(0)), drawn);
      },
      [](Session& session, int32_t) {  // a step of another token
        StepAhead(session, 11, 1, true);
      },
      [](Session& session, int32_t) {
        EXPECT_FALSE(session.Step(-1, {}, 0, true).ok());
      }};
  for (size_t i = 0; i < instead.size(); ++i) {
    for (const size_t before : {1u, 2u, 3u, 8u}) {
      auto session = Start();
      int32_t drawn = StepAhead(*session, 7, before, /*goes_on=*/true);
      // Greedy, so that drawing again gives the same.
      drawn = session->Step(drawn, SomeSampler(0), RandomOf(0), true).value();
      instead[i](*session, drawn);
      const auto text = std::vector<int32_t>(session->tokens().begin(),
                                             session->tokens().end());
      StepAhead(*session, 9, 6, /*goes_on=*/false);
      EXPECT_EQ(Logits(*session), Fresh(session->tokens()))
          << "instead " << i << " after " << before;
      EXPECT_TRUE(
          std::equal(text.begin(), text.end(), session->tokens().begin()));
    }
  }
}

TEST_P(StepAheadTest, WithoutEngram) {
  SessionOptions options = Options();
  options.engram = false;
  auto session = Start(model_, options);
  StepAhead(*session, 7, 20, /*goes_on=*/true);
  session->DropAhead();
  StepAhead(*session, 9, 5, /*goes_on=*/false);
  EXPECT_EQ(Logits(*session), Fresh(session->tokens(), options));
}

// The context ends under a step; one more cannot be begun.
TEST_P(StepAheadTest, TheContextEnds) {
  auto session = Start();
  int32_t token = 7;
  while (session->position() < session->context()) {
    token =
        session->Step(token, SomeSampler(session->position()), 5, true).value();
  }
  EXPECT_EQ(session->Step(token, {}, 0, true).status().code(),
            StatusCode::kOutOfRange);
  EXPECT_EQ(Logits(*session), Fresh(session->tokens()));
}

// One that never comes has its rows and ends by itself.
TEST_P(StepAheadTest, TheNextStepMayNeverCome) {
  auto session = Start();
  StepAhead(*session, 7, 6, /*goes_on=*/true);
  const auto begin = std::chrono::steady_clock::now();
  session.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(500));
}

TEST_P(StepAheadTest, TwoSessionsTakeTurns) {
  auto a = Start(), b = Start();
  int32_t next_a = 7, next_b = 8;
  for (size_t i = 0; i < 20; ++i) {
    next_a = a->Step(next_a, SomeSampler(i), RandomOf(i), i < 19).value();
    next_b = b->Step(next_b, SomeSampler(i), RandomOf(i), i < 19).value();
  }
  EXPECT_EQ(Logits(*a), Fresh(a->tokens()));
  EXPECT_EQ(Logits(*b), Fresh(b->tokens()));
}

// --- Batches
// ------------------------------------------------------------------

struct Text {
  std::unique_ptr<Session> session;
  int32_t next = 0;
};

// Texts in a batch that come and go, begun ahead or not.
std::vector<std::vector<int32_t>> Together(
    const std::shared_ptr<const Model>& model, bool ahead,
    std::vector<std::vector<float>>* logits) {
  constexpr uint32_t kPlaces = 6;
  auto batch = Batch::Create(model, Options(), kPlaces).value();
  std::vector<Text> texts;
  std::vector<std::vector<int32_t>> ended;
  for (uint32_t step = 0; step < 60; ++step) {
    if (step % 7 == 0 && texts.size() < kPlaces) {
      texts.push_back({batch->NewSession().value(), 3});
      EXPECT_TRUE(
          texts.back().session->Append(Tokens(2 + step, step), {}).ok());
    }
    std::vector<BatchToken> tokens;
    std::vector<BatchDraw> draws;
    for (size_t i = 0; i < texts.size(); ++i) {
      Session* const session = texts[i].session.get();
      tokens.push_back({session, texts[i].next});
      draws.push_back(
          {session, SomeSampler(i + step), RandomOf(i * 99 + step)});
    }
    std::vector<int32_t> ids;
    if (ahead) {
      if (step % 3 == 0) batch->Prefetch(tokens);
      ids = batch->Step(tokens, draws, step % 11 != 10).value();
    } else {
      EXPECT_TRUE(batch->Step(tokens).ok());
      ids = batch->Draw(draws).value();
    }
    for (size_t i = 0; i < texts.size(); ++i) texts[i].next = ids[i];
    if (step % 10 != 9 || texts.size() < 2) continue;
    const size_t leaves = step % texts.size();
    const Ids text = texts[leaves].session->tokens();
    ended.emplace_back(text.begin(), text.end());
    logits->push_back(Logits(*texts[leaves].session));
    texts.erase(texts.begin() + static_cast<ptrdiff_t>(leaves));
  }
  return ended;
}

TEST_P(StepAheadTest, SequencesComeAndGo) {
  std::vector<std::vector<float>> want_logits, logits;
  const auto want = Together(model_, false, &want_logits);
  EXPECT_EQ(Together(model_, true, &logits), want);
  EXPECT_EQ(logits, want_logits);
}

TEST_P(StepAheadTest, DrawsAreOfTheSteppedSessions) {
  auto batch = Batch::Create(model_, Options(), 2).value();
  const auto a = batch->NewSession().value(), b = batch->NewSession().value();
  const std::vector<BatchToken> tokens = {{a.get(), 1}, {b.get(), 2}};
  const auto refused = [&](const std::vector<BatchDraw>& draws,
                           const char* part) {
    const Status status = batch->Step(tokens, draws, true).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    testing::ExpectHas(status.message(), part);
    EXPECT_EQ(a->position(), 0u);
  };
  refused({{a.get(), {}, 0}}, "1 draws after a step of 2");
  refused({{b.get(), {}, 0}, {a.get(), {}, 0}}, "sequence 0");
  SamplerOptions bad;
  bad.top_p = 0;
  refused({{a.get(), {}, 0}, {b.get(), bad, 0}}, "sequence 1");
}

TEST_P(StepAheadTest, OptionsThatAreNoneAreRefusedBeforeTheToken) {
  const auto session = Session::Create(model_, Options()).value();
  SamplerOptions bad;
  bad.top_p = 0;
  EXPECT_EQ(session->Step(1, bad, 0, true).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(session->position(), 0u);
}

// The definitions are slow, and share the processor's memory.
std::vector<const char*> FastBackends() {
  std::vector<const char*> backends = testing::Backends();
  backends.erase(backends.begin());
  return backends;
}

INSTANTIATE_TEST_SUITE_P(Devices, StepAheadTest,
                         ::testing::ValuesIn(FastBackends()),
                         [](const auto& device) {
                           return std::string(device.param);
                         });

}  // namespace
}  // namespace ecphory
