// Prompts whose tokens do not all pass every layer: the same bits, the same
// state, and a valid session whatever interrupts them.
#include "model/prefill.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "model/forward.h"
#include "model/model_impl.h"
#include "model/test_models.h"
#include "model/testing.h"

namespace ecphory {
namespace {

using testing::GoldenDir;
using Ids = std::span<const int32_t>;

std::vector<int32_t> Tokens(size_t count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> tokens(count);
  for (auto& token : tokens) token = static_cast<int32_t>(rng() % 500);
  return tokens;
}

std::vector<float> Logits(const Session& session) {
  return {session.logits().begin(), session.logits().end()};
}

std::vector<uint8_t> SnapshotOf(const Session& session) {
  auto snapshot = session.Snapshot();
  EXPECT_TRUE(snapshot.ok());
  return std::move(*snapshot);
}

std::unique_ptr<Session> Start(const std::shared_ptr<const Model>& model,
                               Prefill prefill, SessionOptions options = {}) {
  options.prefill = prefill;
  auto session = Session::Create(model, options);
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  return std::move(*session);
}

SessionOptions WithChunk(uint32_t chunk) {
  SessionOptions options;
  options.chunk = chunk;
  return options;
}

// --- Models ------------------------------------------------------------------

// Golden A whose only KV source is layer 2: three layers after it, Engram, an
// index and a candidate source among them.
void MakeDeep(nlohmann::json& text) {
  text["compress_ratios"] = {0, 0, 2, 2, 2, 2};
  text["kv_source_layer_ids"] = {2};
}

struct TestModel {
  const char* name;
  const char* golden;
  void (*change)(nlohmann::json& text);
};

const TestModel kModels[] = {
    {"A", "A", [](nlohmann::json&) {}},
    {"B", "B", [](nlohmann::json&) {}},
    {"C", "C", [](nlohmann::json&) {}},
    {"Deep", "A", MakeDeep},
    {"WindowLayerBehind", "A",
     [](nlohmann::json& text) {
       MakeDeep(text);
       text["compress_ratios"] = {0, 0, 2, 2, 0, 2};
       text["index_source_layer_ids"] = {2, 5};
       text["candidate_source_layer_id"] = 2;
     }},
    {"SourceLast", "A",
     [](nlohmann::json& text) {
       text["num_hidden_layers"] = 5;
       text["compress_ratios"] = {0, 0, 2, 2, 1};
       text["index_source_layer_ids"] = {2, 4};
     }},
    {"WindowOfOne", "A",
     [](nlohmann::json& text) {
       MakeDeep(text);
       text["sliding_window"] = 1;
     }},
    {"OddWindow", "B",
     [](nlohmann::json& text) { text["sliding_window"] = 7; }},
};

std::shared_ptr<const Model> Open(const TestModel& model,
                                  const char* backend = "cpu") {
  testing::ModelDir dir(GoldenDir(model.golden));
  model.change(dir.text());
  return testing::OpenOrDie(dir.Write(), backend);
}

class PrefillTest : public ::testing::TestWithParam<TestModel> {
 protected:
  const std::shared_ptr<const Model> model_ = Open(GetParam());
  const ModelConfig& config() const { return model_->config(); }
  // Tokens that are skipped for certain, with any chunk below 16.
  size_t Long() const { return DecoderHalo(config()) + 80; }

  void ExpectSame(Session& got, Session& want) const {
    EXPECT_EQ(got.position(), want.position());
    EXPECT_EQ(Logits(got), Logits(want));
    EXPECT_EQ(got.EarliestTruncation(), want.EarliestTruncation());
    EXPECT_TRUE(SnapshotOf(got) == SnapshotOf(want));
  }

  // Decodes the tokens one by one in both.
  void ExpectSameDecoding(Session& got, Session& want, Ids tokens) const {
    for (const int32_t& token : tokens) {
      ASSERT_TRUE(got.Append({&token, 1}, {}).ok());
      ASSERT_TRUE(want.Append({&token, 1}, {}).ok());
      ASSERT_EQ(Logits(got), Logits(want)) << "at " << got.position();
    }
  }
};

// --- The same as the full pass -----------------------------------------------

TEST_P(PrefillTest, SkippingLeavesTheSameBits) {
  for (const uint32_t chunk : {1u, 7u, 16u}) {
    for (const size_t count : {Long(), Long() + 1, Long() + 90}) {
      SCOPED_TRACE(::testing::Message() << count << " by " << chunk);
      const auto tokens = Tokens(count, chunk);
      auto skip = Start(model_, Prefill::kSkip, WithChunk(chunk));
      auto full = Start(model_, Prefill::kFull, WithChunk(chunk));
      ASSERT_TRUE(skip->Append(tokens, {}).ok());
      ASSERT_TRUE(full->Append(tokens, {}).ok());
      EXPECT_GT(skip->stats().skipped_tokens, 0u);
      EXPECT_EQ(full->stats().skipped_tokens, 0u);
      ExpectSame(*skip, *full);
      ExpectSameDecoding(*skip, *full, Tokens(40, 99));
      ExpectSame(*skip, *full);
    }
  }
}

TEST_P(PrefillTest, InEveryMode) {
  const auto tokens = Tokens(Long() + 40, 2);
  std::vector<uint8_t> image(tokens.size());
  for (size_t t = 0; t < image.size(); ++t) image[t] = t % 50 >= 43;
  std::vector<SessionOptions> modes(4, WithChunk(8));
  modes[0].activations = Activations::kBF16;
  modes[1].state_rounding = false;
  modes[2].index_keys = IndexKeys::kVendor;
  modes[3].engram = false;
  for (const SessionOptions& options : modes) {
    auto skip = Start(model_, Prefill::kSkip, options);
    auto full = Start(model_, Prefill::kFull, options);
    AppendOptions append;
    append.image_mask = image;
    ASSERT_TRUE(skip->Append(tokens, append).ok());
    ASSERT_TRUE(full->Append(tokens, append).ok());
    EXPECT_GT(skip->stats().skipped_tokens, 0u);
    ExpectSame(*skip, *full);
    ExpectSameDecoding(*skip, *full, Tokens(20, 98));
  }
}

TEST_P(PrefillTest, CallAfterCall) {
  const size_t parts[] = {Long(), 3, Long() + 11, 1, 20, Long() - 1};
  auto skip = Start(model_, Prefill::kSkip, WithChunk(8));
  auto full = Start(model_, Prefill::kFull, WithChunk(8));
  uint32_t seed = 0;
  for (const size_t count : parts) {
    const auto tokens = Tokens(count, ++seed);
    AppendOptions append;
    append.logits = seed % 3 == 0 ? LogitsWanted::kNone : LogitsWanted::kLast;
    ASSERT_TRUE(skip->Append(tokens, append).ok());
    ASSERT_TRUE(full->Append(tokens, append).ok());
    ExpectSame(*skip, *full);
  }
  EXPECT_GT(skip->stats().skipped_tokens, 3 * 40u);
}

TEST_P(PrefillTest, StepsBackAsFarAsEver) {
  const uint32_t chunk = 12;
  const auto tokens = Tokens(Long() + 30, 3), other = Tokens(25, 4);
  for (size_t back = 0; back <= chunk; back += 3) {
    SCOPED_TRACE(::testing::Message() << "back " << back);
    auto skip = Start(model_, Prefill::kSkip, WithChunk(chunk));
    ASSERT_TRUE(skip->Append(tokens, {}).ok());
    ASSERT_GT(skip->stats().skipped_tokens, 0u);
    const size_t keep = tokens.size() - back;
    ASSERT_EQ(skip->EarliestTruncation(), tokens.size() - chunk);
    ASSERT_TRUE(skip->Truncate(keep).ok());
    auto full = Start(model_, Prefill::kFull, WithChunk(chunk));
    ASSERT_TRUE(full->Append(Ids(tokens).first(keep), {}).ok());
    ExpectSameDecoding(*skip, *full, other);
    // Skipping again, from where the session was stepped back to.
    ASSERT_TRUE(skip->Append(tokens, {}).ok());
    ASSERT_TRUE(full->Append(tokens, {}).ok());
    EXPECT_EQ(Logits(*skip), Logits(*full));
  }
}

TEST_P(PrefillTest, ARestoredSessionContinues) {
  const auto tokens = Tokens(Long(), 5), more = Tokens(Long() + 5, 6);
  auto full = Start(model_, Prefill::kFull, WithChunk(8));
  ASSERT_TRUE(full->Append(tokens, {}).ok());
  auto skip = Start(model_, Prefill::kSkip, WithChunk(8));
  ASSERT_TRUE(skip->Append(tokens, {}).ok());
  auto restored = Start(model_, Prefill::kSkip, WithChunk(8));
  ASSERT_TRUE(restored->Restore(SnapshotOf(*skip)).ok());
  for (Session* session : {restored.get(), full.get()}) {
    ASSERT_TRUE(session->Append(more, {}).ok());
  }
  ExpectSame(*restored, *full);
}

// --- How long the tail must be -----------------------------------------------

// The last token's logits, and those after one more token, with every layer for
// the last `tail` tokens only.
std::vector<std::vector<float>> WithTail(const Model& model, Ids tokens,
                                         size_t tail) {
  SessionOptions options = WithChunk(8);
  options.state_rounding = false;  // a difference is not rounded away
  options.context = static_cast<uint32_t>(tokens.size()) + 1;
  Forward forward(model.impl().forward, options);
  auto state = SequenceState::Create(model.config(), options);
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
    EXPECT_TRUE(forward.Run(chunk, &*state).ok());
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

TEST_P(PrefillTest, TheHaloIsEnoughAndNoTokenTooLong) {
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

// Appends until `stop` tokens are done and cancels.
Status AppendUntil(size_t stop, Ids tokens, Session& session) {
  std::atomic<bool> cancel{stop == 0};
  AppendOptions append;
  append.cancel = &cancel;
  append.on_progress = [&](size_t done) { cancel = done >= stop; };
  return session.Append(tokens, append);
}

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
    auto full = Start(model, Prefill::kFull);
    ASSERT_TRUE(full->Append(text, {}).ok());
    ASSERT_EQ(Logits(session), Logits(*full)) << "back at " << keep;
  }
  ASSERT_TRUE(session.Restore(saved).ok());
}

TEST_P(PrefillTest, CancelledAnywhereTheSessionIsValid) {
  const uint32_t chunk = 8;
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

TEST_P(PrefillTest, CancelledThenAppendedAgain) {
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

// --- Nothing to skip ---------------------------------------------------------

class Ignore : public TensorObserver {
  bool Wants(uint32_t) const override { return false; }
  void OnF32(uint32_t, const std::string&, std::span<const float>,
             const std::vector<uint64_t>&) override {}
  void OnI32(uint32_t, const std::string&, std::span<const int32_t>,
             const std::vector<uint64_t>&) override {}
  void OnU8(uint32_t, const std::string&, std::span<const uint8_t>,
            const std::vector<uint64_t>&) override {}
};

TEST_P(PrefillTest, WhatIsAskedOfEveryTokenRunsEveryLayer) {
  const auto tokens = Tokens(Long(), 13);
  auto session = Start(model_, Prefill::kSkip, WithChunk(8));
  std::vector<float> all;
  AppendOptions append;
  append.logits = LogitsWanted::kAll;
  append.on_logits = [&](size_t, size_t, std::span<const float> rows) {
    all.assign(rows.end() - config().vocab_size, rows.end());
    return Status::Ok();
  };
  ASSERT_TRUE(session->Append(tokens, append).ok());
  Ignore observer;
  append = {};
  append.observer = &observer;
  ASSERT_TRUE(session->Append(tokens, append).ok());
  EXPECT_EQ(session->stats().skipped_tokens, 0u);
  EXPECT_EQ(session->stats().skipped_layer_passes, 0u);

  session = Start(model_, Prefill::kSkip, WithChunk(8));
  ASSERT_TRUE(session->Append(tokens, {}).ok());
  EXPECT_EQ(Logits(*session), all);
  EXPECT_GT(session->stats().skipped_tokens, 0u);
}

INSTANTIATE_TEST_SUITE_P(Models, PrefillTest, ::testing::ValuesIn(kModels),
                         [](const auto& param_info) {
                           return std::string(param_info.param.name);
                         });

TEST(Prefill, AModelWithoutAKvSourceSkipsNothing) {
  const auto model =
      Open({"", "A", [](nlohmann::json& text) {
              text["compress_ratios"] = {0, 0, 0, 0, 0, 0};
              text["kv_source_layer_ids"] = nlohmann::json::array();
              text["index_source_layer_ids"] = nlohmann::json::array();
              text["candidate_source_layer_id"] = -1;
            }});
  for (const Prefill prefill : {Prefill::kSkip, Prefill::kReplay}) {
    auto session = Start(model, prefill, WithChunk(8));
    ASSERT_TRUE(session->Append(Tokens(300, 14), {}).ok());
    EXPECT_EQ(session->stats().skipped_tokens, 0u);
  }
}

TEST(Prefill, TheDefinitionsAgree) {
  for (const size_t model : {0, 3}) {
    const auto ref = Open(kModels[model], "ref");
    const auto tokens = Tokens(60, 15);
    auto skip = Start(ref, Prefill::kSkip, WithChunk(4));
    auto full = Start(ref, Prefill::kFull, WithChunk(4));
    ASSERT_TRUE(skip->Append(tokens, {}).ok());
    ASSERT_TRUE(full->Append(tokens, {}).ok());
    EXPECT_GT(skip->stats().skipped_tokens, 0u);
    EXPECT_EQ(Logits(*skip), Logits(*full));
    EXPECT_TRUE(SnapshotOf(*skip) == SnapshotOf(*full));
  }
}

// --- What is planned and counted ---------------------------------------------

TEST(Prefill, TheReleaseNeedsTwentyFourHundredTokens) {
  const ModelConfig c = testing::ReleasedConfig();
  EXPECT_EQ(LastKvSource(c), 20);
  EXPECT_EQ(DecoderHalo(c), 19u * 127);
  const SessionOptions options = WithChunk(256);
  EXPECT_FALSE(PlanPrefill(c, options, 2670 + 255).skips());
  const PrefillPlan plan = PlanPrefill(c, options, 2670 + 256);
  EXPECT_EQ(plan.tail, 256u);
  EXPECT_EQ(plan.whole, 256u + 2414);
  EXPECT_EQ(PlanPrefill(c, options, 8192).tail, 5376u);
  EXPECT_EQ(PlanPrefill(c, WithChunk(1), 2415).tail, 0u);
  EXPECT_EQ(PlanPrefill(c, WithChunk(1), 2416).tail, 1u);
}

TEST(Prefill, ReplayTakesAWindow) {
  const ModelConfig c = testing::ReleasedConfig();
  SessionOptions options = WithChunk(256);
  options.prefill = Prefill::kReplay;
  EXPECT_FALSE(PlanPrefill(c, options, 128).skips());
  EXPECT_EQ(PlanPrefill(c, options, 129).tail, 1u);
  EXPECT_EQ(PlanPrefill(c, options, 8192).tail, 8192u - 128);
  EXPECT_EQ(PlanPrefill(c, options, 8192).whole, 8192u);
}

TEST(Prefill, CountsWhatWasLeftOut) {
  const auto model = Open(kModels[3]);  // Deep: layers 2 to 5, Engram 1 and 3
  const auto tokens = Tokens(200, 16);
  auto session = Start(model, Prefill::kSkip, WithChunk(16));
  ASSERT_TRUE(session->Append(tokens, {}).ok());
  const SessionStats stats = session->stats();
  const uint64_t skipped = (200 - (3 * 15 + 16 + 1)) / 16 * 16;
  EXPECT_EQ(stats.tokens, 200u);
  EXPECT_EQ(stats.skipped_tokens, skipped);
  EXPECT_EQ(stats.skipped_layer_passes, 4 * skipped);
  // Rows of a layer that a token does not pass are not asked for.
  const uint64_t columns = model->config().engram.columns();
  EXPECT_EQ(stats.engram_rows, columns * (200 + (200 - skipped)));
}

// --- The published approximation ---------------------------------------------

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
  for (const size_t model : {0, 2}) {
    const auto opened = Open(kModels[model]);
    const auto tokens = Tokens(150, 17);
    EXPECT_EQ(Run(opened, tokens, Prefill::kReplay, 8),
              Run(opened, tokens, Prefill::kFull, 8));
  }
}

TEST_F(ReplayTest, IsAnApproximationBehindMore) {
  const auto model = Open(kModels[3]);
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
  const auto model = Open(kModels[3]);
  const auto tokens = Tokens(100, 19), other = Tokens(60, 20);
  const auto want = Run(model, tokens, Prefill::kReplay, 8);
  auto session = Start(model, Prefill::kReplay, WithChunk(8));
  ASSERT_TRUE(session->Append(other, {}).ok());  // leaves rows in the rings
  ASSERT_TRUE(session->Truncate(0).ok());
  ASSERT_TRUE(session->Append(tokens, {}).ok());
  EXPECT_EQ(Logits(*session), want);
}

TEST_F(ReplayTest, ContinuesButDoesNotStepBackIntoThePrompt) {
  const auto model = Open(kModels[3]);
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
  const auto model = Open(kModels[3]);
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
