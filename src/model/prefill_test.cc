// Prompts whose tokens do not all pass every layer leave the same bits.
#include "model/prefill.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "model/prefill_testing.h"
#include "model/test_models.h"
#include "model/testing.h"

namespace ecphory {

namespace testing::prefill {

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
                               Prefill prefill, SessionOptions options) {
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

Status AppendUntil(size_t stop, std::span<const int32_t> tokens,
                   Session& session) {
  std::atomic<bool> cancel{stop == 0};
  AppendOptions append;
  append.cancel = &cancel;
  append.on_progress = [&](size_t done) { cancel = done >= stop; };
  return session.Append(tokens, append);
}

namespace {

void Unchanged(nlohmann::json&) {}

void MakeDeep(nlohmann::json& text) {
  text["compress_ratios"] = {0, 0, 2, 2, 2, 2};
  text["kv_source_layer_ids"] = {2};
}

}  // namespace

const TestModel kA{"A", "A", Unchanged};
const TestModel kB{"B", "B", Unchanged};
const TestModel kC{"C", "C", Unchanged};
const TestModel kDeep{"Deep", "A", MakeDeep};

std::vector<TestModel> AllModels() {
  return {
      kA,
      kB,
      kC,
      kDeep,
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
}

std::shared_ptr<const Model> Open(const TestModel& model, const char* backend) {
  testing::ModelDir dir(GoldenDir(model.golden));
  model.change(dir.text());
  return testing::OpenOrDie(dir.Write(), backend);
}

void PrefillTest::ExpectSame(Session& got, Session& want) {
  EXPECT_EQ(got.position(), want.position());
  EXPECT_EQ(Logits(got), Logits(want));
  EXPECT_EQ(got.EarliestTruncation(), want.EarliestTruncation());
  EXPECT_TRUE(SnapshotOf(got) == SnapshotOf(want));
}

void PrefillTest::ExpectSameDecoding(Session& got, Session& want,
                                     std::span<const int32_t> tokens) {
  for (const int32_t& token : tokens) {
    ASSERT_TRUE(got.Append({&token, 1}, {}).ok());
    ASSERT_TRUE(want.Append({&token, 1}, {}).ok());
    ASSERT_EQ(Logits(got), Logits(want)) << "at " << got.position();
  }
}

}  // namespace testing::prefill

namespace {

using namespace testing::prefill;
using Ids = std::span<const int32_t>;

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

INSTANTIATE_TEST_SUITE_P(Models, PrefillTest, ::testing::ValuesIn(AllModels()),
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
  for (const TestModel& model : {kA, kDeep}) {
    const auto ref = Open(model, "ref");
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
  const auto model = Open(kDeep);  // layers 2 to 5, Engram 1 and 3
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

}  // namespace
}  // namespace ecphory
