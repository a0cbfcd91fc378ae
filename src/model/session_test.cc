// Sessions: side by side, stepped back, saved and restored.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>

#include "ecphory/session.h"
#include "model/test_models.h"
#include "model/testing.h"

namespace ecphory {
namespace {

using testing::GoldenDir;

std::vector<int32_t> Tokens(size_t count, uint32_t vocab, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> tokens(count);
  for (auto& token : tokens) token = static_cast<int32_t>(rng() % vocab);
  return tokens;
}

class SessionTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = testing::OpenOrDie(GoldenDir(GetParam()), "cpu");
    vocab_ = model_->config().vocab_size;
  }

  std::unique_ptr<Session> Start(const SessionOptions& options = {}) {
    auto session = Session::Create(model_, options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return std::move(*session);
  }

  static std::vector<float> Logits(const Session& session) {
    return {session.logits().begin(), session.logits().end()};
  }

  // Logits after appending `tokens` to a fresh session.
  std::vector<float> Fresh(std::span<const int32_t> tokens,
                           const SessionOptions& options = {}) {
    auto session = Start(options);
    EXPECT_TRUE(session->Append(tokens, {}).ok());
    return Logits(*session);
  }

  std::shared_ptr<const Model> model_;
  uint32_t vocab_ = 0;
};

TEST_P(SessionTest, SideBySideSequencesDoNotMix) {
  const auto a = Tokens(60, vocab_, 1), b = Tokens(60, vocab_, 2);
  auto first = Start(), second = Start();
  for (size_t t = 0; t < a.size(); ++t) {
    ASSERT_TRUE(first->Append(std::span(a).subspan(t, 1), {}).ok());
    ASSERT_TRUE(second->Append(std::span(b).subspan(t, 1), {}).ok());
  }
  EXPECT_EQ(Logits(*first), Fresh(a));
  EXPECT_EQ(Logits(*second), Fresh(b));
}

TEST_P(SessionTest, SequencesInSeveralThreads) {
  const auto a = Tokens(40, vocab_, 3), b = Tokens(40, vocab_, 4);
  std::vector<float> got_a, got_b;
  std::thread ta([&] { got_a = Fresh(a); });
  std::thread tb([&] { got_b = Fresh(b); });
  ta.join();
  tb.join();
  EXPECT_EQ(got_a, Fresh(a));
  EXPECT_EQ(got_b, Fresh(b));
}

TEST_P(SessionTest, ThreadCountDoesNotChangeABit) {
  const auto tokens = Tokens(50, vocab_, 5);
  const std::vector<float> want = Fresh(tokens);
  for (uint32_t threads : {1u, 3u}) {
    model_ = testing::OpenOrDie(GoldenDir(GetParam()), "cpu", threads);
    EXPECT_EQ(Fresh(tokens), want) << threads;
  }
}

// Odd and even positions, inside and across compression groups and windows.
TEST_P(SessionTest, TruncateThenContinueEqualsNeverHavingGone) {
  const auto tokens = Tokens(70, vocab_, 6), other = Tokens(9, vocab_, 7);
  SessionOptions options;
  options.chunk = 32;
  for (uint64_t back = 0; back <= 32; ++back) {
    auto session = Start(options);
    ASSERT_TRUE(session->Append(tokens, {}).ok());
    const uint64_t keep = tokens.size() - back;
    ASSERT_TRUE(session->Truncate(keep).ok()) << back;
    EXPECT_EQ(session->position(), keep);
    ASSERT_TRUE(session->Append(other, {}).ok());
    std::vector<int32_t> joined(tokens.begin(),
                                tokens.begin() + static_cast<ptrdiff_t>(keep));
    joined.insert(joined.end(), other.begin(), other.end());
    EXPECT_EQ(Logits(*session), Fresh(joined, options)) << "back " << back;
  }
}

TEST_P(SessionTest, TruncateSaysWhatTheWindowsAllow) {
  SessionOptions options;
  options.chunk = 8;
  auto session = Start(options);
  const auto tokens = Tokens(64, vocab_, 8);
  ASSERT_TRUE(session->Append(tokens, {}).ok());
  EXPECT_EQ(session->EarliestTruncation(), 56u);
  const Status status = session->Truncate(55);
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_NE(status.message().find("56"), std::string::npos) << status.message();
  EXPECT_EQ(session->Truncate(65).code(), StatusCode::kOutOfRange);
  // Stepping back does not bring older rows back.
  ASSERT_TRUE(session->Truncate(57).ok());
  EXPECT_EQ(session->EarliestTruncation(), 56u);
  ASSERT_TRUE(session->Truncate(0).ok());
  ASSERT_TRUE(session->Append(tokens, {}).ok());
  EXPECT_EQ(Logits(*session), Fresh(tokens, options));
}

TEST_P(SessionTest, SnapshotContinuesBitForBit) {
  const auto tokens = Tokens(80, vocab_, 9);
  const std::vector<float> want = Fresh(tokens);
  for (size_t cut :
       {size_t{1}, size_t{2}, size_t{3}, size_t{17}, size_t{40}, size_t{79}}) {
    auto session = Start();
    ASSERT_TRUE(session->Append(std::span(tokens).first(cut), {}).ok());
    auto snapshot = session->Snapshot();
    ASSERT_TRUE(snapshot.ok());
    auto restored = Start();
    ASSERT_TRUE(restored->Restore(*snapshot).ok());
    EXPECT_EQ(Logits(*restored), Logits(*session));
    ASSERT_TRUE(restored->Append(std::span(tokens).subspan(cut), {}).ok());
    EXPECT_EQ(Logits(*restored), want) << cut;
  }
}

TEST_P(SessionTest, SnapshotOfAnEmptySession) {
  auto snapshot = Start()->Snapshot();
  ASSERT_TRUE(snapshot.ok());
  auto restored = Start();
  const auto tokens = Tokens(12, vocab_, 20);
  ASSERT_TRUE(restored->Append(tokens, {}).ok());
  ASSERT_TRUE(restored->Restore(*snapshot).ok());
  EXPECT_EQ(restored->position(), 0u);
  EXPECT_TRUE(restored->logits().empty());
  ASSERT_TRUE(restored->Append(tokens, {}).ok());
  EXPECT_EQ(Logits(*restored), Fresh(tokens));
}

// Depths 0..5 behind an odd and an even position, also after a restore.
TEST_P(SessionTest, SnapshotThenTruncate) {
  for (size_t length : {size_t{40}, size_t{41}}) {
    const auto tokens = Tokens(length, vocab_, 10);
    auto session = Start();
    ASSERT_TRUE(session->Append(tokens, {}).ok());
    auto snapshot = session->Snapshot();
    ASSERT_TRUE(snapshot.ok());
    for (size_t depth = 0; depth <= 5; ++depth) {
      auto restored = Start();
      ASSERT_TRUE(restored->Restore(*snapshot).ok());
      ASSERT_TRUE(restored->Truncate(length - depth).ok());
      ASSERT_TRUE(
          restored->Append(std::span(tokens).subspan(length - depth), {}).ok());
      if (depth > 0) {
        EXPECT_EQ(Logits(*restored), Logits(*session)) << depth;
      }
    }
  }
}

TEST_P(SessionTest, SnapshotIntoAnotherChunkSize) {
  const auto tokens = Tokens(90, vocab_, 11);
  const std::vector<float> want = Fresh(tokens);
  for (const auto& [from, to] : {std::pair{8u, 64u}, std::pair{64u, 8u}}) {
    SessionOptions a, b;
    a.chunk = from;
    b.chunk = to;
    auto session = Start(a);
    ASSERT_TRUE(session->Append(std::span(tokens).first(61), {}).ok());
    auto snapshot = session->Snapshot();
    ASSERT_TRUE(snapshot.ok());
    auto restored = Start(b);
    ASSERT_TRUE(restored->Restore(*snapshot).ok());
    EXPECT_GE(restored->EarliestTruncation(), 61u - 8u);
    ASSERT_TRUE(restored->Append(std::span(tokens).subspan(61), {}).ok());
    EXPECT_EQ(Logits(*restored), want);
  }
}

TEST_P(SessionTest, DamagedSnapshotsAreRefusedAndChangeNothing) {
  const auto tokens = Tokens(30, vocab_, 12);
  auto session = Start();
  ASSERT_TRUE(session->Append(tokens, {}).ok());
  auto snapshot = session->Snapshot();
  ASSERT_TRUE(snapshot.ok());
  auto victim = Start();
  ASSERT_TRUE(victim->Append(std::span(tokens).first(5), {}).ok());
  const std::vector<float> before = Logits(*victim);
  const size_t size = snapshot->size();
  for (size_t at = 0; at < size; at += 1 + size / 97) {
    std::vector<uint8_t> damaged = *snapshot;
    damaged[at] ^= 0x40;
    EXPECT_FALSE(victim->Restore(damaged).ok()) << at;
  }
  for (size_t cut : {size_t{0}, size_t{7}, size_t{64}, size - 1}) {
    EXPECT_FALSE(victim->Restore(std::span(*snapshot).first(cut)).ok()) << cut;
  }
  std::vector<uint8_t> longer = *snapshot;
  longer.push_back(0);
  EXPECT_EQ(victim->Restore(longer).code(), StatusCode::kCorrupt);
  EXPECT_EQ(victim->position(), 5u);
  EXPECT_EQ(Logits(*victim), before);
}

TEST_P(SessionTest, ForeignSnapshotsAreRefusedByName) {
  SessionOptions plain;
  plain.state_rounding = false;
  auto unrounded = Start(plain);
  ASSERT_TRUE(unrounded->Append(Tokens(10, vocab_, 13), {}).ok());
  auto snapshot = unrounded->Snapshot();
  ASSERT_TRUE(snapshot.ok());
  const Status status = Start()->Restore(*snapshot);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("rounding"), std::string::npos);

  const std::string other = std::string(GetParam()) == "A" ? "B" : "A";
  auto foreign =
      Session::Create(testing::OpenOrDie(GoldenDir(other), "cpu"), {});
  ASSERT_TRUE(foreign.ok());
  auto session = Start();
  ASSERT_TRUE(session->Append(Tokens(10, vocab_, 14), {}).ok());
  auto own = session->Snapshot();
  ASSERT_TRUE(own.ok());
  EXPECT_EQ((*foreign)->Restore(*own).code(), StatusCode::kInvalidArgument);
}

TEST_P(SessionTest, SnapshotFileRoundTrip) {
  const std::string path =
      ::testing::TempDir() + "/ecphory_" + GetParam() + ".snap";
  const auto tokens = Tokens(20, vocab_, 15);
  auto session = Start();
  ASSERT_TRUE(session->Append(tokens, {}).ok());
  ASSERT_TRUE(session->SaveSnapshot(path).ok());
  auto restored = Start();
  ASSERT_TRUE(restored->LoadSnapshot(path).ok());
  EXPECT_EQ(Logits(*restored), Logits(*session));
  EXPECT_EQ(restored->LoadSnapshot(path + ".missing").code(),
            StatusCode::kNotFound);
  std::remove(path.c_str());
}

TEST_P(SessionTest, BadTokensAppendNothing) {
  auto session = Start();
  for (int32_t bad : {-1, static_cast<int32_t>(vocab_), INT32_MIN}) {
    const std::vector<int32_t> tokens = {1, 2, bad};
    const Status status = session->Append(tokens, {});
    EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
    EXPECT_NE(status.message().find("index 2"), std::string::npos);
    EXPECT_EQ(session->position(), 0u);
  }
}

TEST_P(SessionTest, ContextIsALimit) {
  SessionOptions options;
  options.context = 20;
  auto session = Start(options);
  ASSERT_TRUE(session->Append(Tokens(20, vocab_, 16), {}).ok());
  EXPECT_EQ(session->Append(Tokens(1, vocab_, 17), {}).code(),
            StatusCode::kOutOfRange);
  EXPECT_EQ(Logits(*session), Fresh(Tokens(20, vocab_, 16)));
}

TEST_P(SessionTest, BadOptionsAreNamed) {
  SessionOptions options;
  options.chunk = 0;
  EXPECT_EQ(Session::Create(model_, options).status().code(),
            StatusCode::kInvalidArgument);
  options = {};
  options.context = model_->config().max_positions + 1;
  const Status status = Session::Create(model_, options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("context"), std::string::npos);
}

TEST_P(SessionTest, CancelStopsBetweenChunks) {
  SessionOptions options;
  options.chunk = 4;
  auto session = Start(options);
  std::atomic<bool> cancel{true};
  AppendOptions append;
  append.cancel = &cancel;
  EXPECT_EQ(session->Append(Tokens(12, vocab_, 18), append).code(),
            StatusCode::kCancelled);
  EXPECT_EQ(session->position(), 0u);
}

TEST_P(SessionTest, ImageTokensAreImagePositionsWithoutAMask) {
  const int32_t image = model_->config().image_token_id;
  ASSERT_GE(image, 0);
  std::vector<int32_t> tokens = Tokens(12, vocab_, 19);
  for (size_t t = 4; t < 8; ++t) tokens[t] = image;
  std::vector<uint8_t> mask(tokens.size());
  for (size_t t = 0; t < tokens.size(); ++t) mask[t] = tokens[t] == image;
  testing::RunOptions with, without;
  with.image_mask = mask;
  EXPECT_EQ(testing::RunLogits(model_, tokens, with),
            testing::RunLogits(model_, tokens, without));
}

TEST_P(SessionTest, EmptyAppendIsHarmless) {
  auto session = Start();
  EXPECT_TRUE(session->Append({}, {}).ok());
  EXPECT_TRUE(session->logits().empty());
}

// Golden B with every compressed layer at `ratio`.
std::string WriteModelOfRatio(uint32_t ratio, testing::ModelDir* dir) {
  for (auto& stored : dir->text()["compress_ratios"]) {
    if (stored != 0) stored = ratio;
  }
  for (const char* layer : {"1", "3", "5"}) {
    const std::string prefix = std::string("layers.") + layer;
    dir->tensors[prefix + ".attn.compressor.wgate.weight"] =
        dir->At("layers.1.attn.compressor.wgate.weight");
  }
  return dir->Write();
}

// A context may end before the first group is complete.
TEST(SessionContext, ShorterThanAGroupOrJustAsLong) {
  for (const uint32_t ratio : {2u, 3u, 4u, 7u}) {
    testing::ModelDir dir(GoldenDir("B"));
    const std::string path = WriteModelOfRatio(ratio, &dir);
    for (const char* backend : {"cpu", "ref"}) {
      const auto model = testing::OpenOrDie(path, backend);
      const auto tokens = Tokens(ratio + 1, model->config().vocab_size, ratio);
      testing::RunOptions roomy;
      const auto whole = testing::RunLogits(model, tokens, roomy);
      for (uint32_t context = 1; context <= ratio + 1; ++context) {
        for (const uint32_t chunk : {1u, 256u}) {
          testing::RunOptions tight;
          tight.session.context = context;
          tight.session.chunk = chunk;
          auto logits = testing::RunLogits(
              model, std::span(tokens).first(context), tight);
          ASSERT_LE(logits.size(), whole.size());
          logits.insert(logits.end(),
                        whole.begin() + static_cast<ptrdiff_t>(logits.size()),
                        whole.end());
          EXPECT_EQ(logits, whole)
              << backend << ", ratio " << ratio << ", context " << context;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, SessionTest, ::testing::Values("A", "B", "C"),
                         [](const auto& param_info) {
                           return param_info.param;
                         });

}  // namespace
}  // namespace ecphory
