// Sessions on each device, and between them: snapshots go from one to another,
// steps back and skipped layers are exact, errors are Statuses.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "ecphory/session.h"
#include "model/draw.h"
#include "model/model_impl.h"
#include "model/prefill_testing.h"
#include "model/testing.h"

namespace ecphory {
namespace {

using testing::GoldenDir;
using testing::prefill::Logits;
using testing::prefill::Tokens;
using Ids = std::span<const int32_t>;

constexpr uint32_t kChunk = testing::kAlikeTokens;

class DeviceSessionTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string reason = testing::Unavailable(GetParam());
    if (!reason.empty()) GTEST_SKIP() << reason;
    model_ = testing::OpenOrDie(GoldenDir("A"), GetParam());
  }

  static std::unique_ptr<Session> Start(
      const std::shared_ptr<const Model>& model, SessionOptions options = {}) {
    options.context = 512;
    if (options.chunk > kChunk) options.chunk = kChunk;
    auto session = Session::Create(model, options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return std::move(*session);
  }
  std::unique_ptr<Session> Start(SessionOptions options = {}) {
    return Start(model_, options);
  }
  std::vector<float> Fresh(Ids tokens, SessionOptions options = {}) {
    auto session = Start(options);
    const Status status = session->Append(tokens, {});
    EXPECT_TRUE(status.ok()) << status.ToString();
    return Logits(*session);
  }

  std::shared_ptr<const Model> model_;
};

TEST_P(DeviceSessionTest, TruncateThenContinueEqualsNeverHavingGone) {
  const auto tokens = Tokens(40, 6), other = Tokens(9, 7);
  for (size_t back = 0; back <= kChunk; ++back) {
    auto session = Start();
    ASSERT_TRUE(session->Append(tokens, {}).ok());
    const size_t keep = tokens.size() - back;
    ASSERT_TRUE(session->Truncate(keep).ok()) << back;
    ASSERT_TRUE(session->Append(other, {}).ok());
    std::vector<int32_t> joined = tokens;
    joined.resize(keep);
    joined.insert(joined.end(), other.begin(), other.end());
    EXPECT_EQ(Logits(*session), Fresh(joined)) << "back " << back;
  }
}

TEST_P(DeviceSessionTest, SnapshotsContinueBitForBit) {
  const auto tokens = Tokens(60, 9);
  const std::vector<float> want = Fresh(tokens);
  for (const size_t cut : {1, 2, 17, 40, 59}) {
    auto session = Start();
    ASSERT_TRUE(session->Append(Ids(tokens).first(cut), {}).ok());
    const auto snapshot = session->Snapshot();
    ASSERT_TRUE(snapshot.ok()) << snapshot.status().ToString();
    auto restored = Start();
    ASSERT_TRUE(restored->Restore(*snapshot).ok());
    EXPECT_EQ(Logits(*restored), Logits(*session));
    EXPECT_EQ(*restored->Snapshot(), *snapshot);
    ASSERT_TRUE(restored->Append(Ids(tokens).subspan(cut), {}).ok());
    EXPECT_EQ(Logits(*restored), want) << cut;
  }
}

// The codes are the device's own; what follows is computed where it is
// restored.
TEST_P(DeviceSessionTest, SnapshotsGoToTheProcessorAndBack) {
  const auto cpu = testing::OpenOrDie(GoldenDir("A"), "cpu");
  const auto tokens = Tokens(50, 10);
  const Ids begin = Ids(tokens).first(30), end = Ids(tokens).subspan(30);
  const size_t vocab = model_->config().vocab_size;
  for (const bool back : {false, true}) {
    const auto& from = back ? cpu : model_;
    const auto& to = back ? model_ : cpu;
    SessionOptions exact;  // no code can flip
    exact.state_rounding = false;
    auto first = Start(from, exact);
    ASSERT_TRUE(first->Append(begin, {}).ok());
    const auto snapshot = first->Snapshot();
    ASSERT_TRUE(snapshot.ok());
    auto second = Start(to, exact);
    ASSERT_TRUE(second->Restore(*snapshot).ok());
    EXPECT_EQ(*second->Snapshot(), *snapshot);
    ASSERT_TRUE(second->Append(end, {}).ok());
    ASSERT_TRUE(first->Append(end, {}).ok());
    EXPECT_LE(testing::MaxOf(
                  testing::RowErrors(Logits(*first), Logits(*second), vocab)),
              1e-3);
  }
}

TEST_P(DeviceSessionTest, RowsReadAheadChangeNoBit) {
  const auto tokens = Tokens(30, 11), wrong = Tokens(4, 12);
  auto session = Start();
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (t % 3 == 1) session->Prefetch(wrong);
    if (t % 3 != 0) session->Prefetch(Ids(tokens).subspan(t, 1));
    ASSERT_TRUE(session->Append(Ids(tokens).subspan(t, 1), {}).ok());
  }
  EXPECT_EQ(Logits(*session), Fresh(tokens));
}

// Steps that the device did from recordings, with steps back, restores, longer
// calls and other sequences between them.
TEST_P(DeviceSessionTest, RecordedStepsChangeNoBit) {
  const auto tokens = Tokens(60, 15);
  const auto others = Tokens(60, 16);
  const bool records = !model_->impl().device->is_host();
  for (const Activations activations :
       {Activations::kF32, Activations::kBF16}) {
    SessionOptions options;
    options.activations = activations;
    auto session = Start(options), other = Start(options);
    const auto step = [&](Session& on, const std::vector<int32_t>& text) {
      ASSERT_TRUE(on.Append(Ids(text).subspan(on.position(), 1), {}).ok());
    };
    const auto expect = [&](const char* when) {
      std::vector<int32_t> text = tokens;
      text.resize(session->position());
      EXPECT_EQ(Logits(*session), Fresh(text, options)) << when;
    };
    for (size_t t = 0; t < 20; ++t) step(*session, tokens);
    expect("step by step");
    // All but the first, and those before which operators took more memory.
    EXPECT_LE(session->stats().replayed_steps, records ? 19u : 0u);
    EXPECT_GE(session->stats().replayed_steps, records ? 10u : 0u);
    for (const uint64_t back : {1u, 2u, kChunk}) {
      ASSERT_TRUE(session->Truncate(session->position() - back).ok());
      for (size_t t = 0; t < back + 2; ++t) step(*session, tokens);
      expect("after a step back");
    }
    ASSERT_TRUE(
        session->Append(Ids(tokens).subspan(session->position(), 5), {}).ok());
    step(*session, tokens);
    step(*session, tokens);
    expect("after a longer call");
    const auto snapshot = session->Snapshot();
    for (size_t t = 0; t < 9; ++t) step(*other, others);
    ASSERT_TRUE(other->Restore(*snapshot).ok());
    for (size_t t = 0; t < 4; ++t) {
      step(*session, tokens);
      step(*other, tokens);
    }
    expect("beside another");
    EXPECT_EQ(Logits(*other), Logits(*session));
    // The same recording serves an image position.
    const std::vector<uint8_t> image = {1};
    AppendOptions append;
    append.image_mask = image;
    ASSERT_TRUE(other->Truncate(other->position() - 1).ok());
    step(*other, tokens);  // not from a recording: others are behind it
    ASSERT_TRUE(session->Append(Ids(others).first(1), append).ok());
    ASSERT_TRUE(other->Append(Ids(others).first(1), append).ok());
    EXPECT_EQ(Logits(*other), Logits(*session));
  }
}

SamplerOptions SomeOptions(size_t i) {
  SamplerOptions options;
  options.temperature = i % 4 == 0 ? 0.0f : 1.5f;
  options.top_k = i % 3 == 0 ? 50 : 0;
  options.top_p = i % 5 == 0 ? 0.9f : 1.0f;
  options.min_p = i % 2 == 0 ? 0.0f : 0.02f;
  options.repeat_penalty = i % 7 == 0 ? 1.3f : 1.0f;
  return options;
}

// What Session::Draw is, of logits that the host has.
int32_t Drawn(const Session& session, const SamplerOptions& options,
              uint64_t random) {
  const std::span<const float> logits = session.logits();
  const auto penalized = PenalizedIds(options, session.tokens(), logits.size());
  return DrawOnHost(RefOps(), logits, DrawnRow(options, random), penalized).id;
}

TEST_P(DeviceSessionTest, TokensAreDrawnWhereTheLogitsAre) {
  auto session = Start(), restored = Start();
  EXPECT_EQ(session->Draw({}, 0).status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(session->Append(Tokens(40, 17), {}).ok());
  uint64_t random = 0x9e3779b97f4a7c15;
  for (size_t i = 0; i < 40; ++i, random *= 0xda942042e4dd58b5) {
    const SamplerOptions options = SomeOptions(i);
    const auto id = session->Draw(options, random);
    ASSERT_TRUE(id.ok()) << id.status().ToString();
    EXPECT_EQ(*id, Drawn(*session, options, random)) << i;
    EXPECT_EQ(*session->Draw(options, random), *id) << "fetched";
    if (i % 8 == 0) {
      ASSERT_TRUE(restored->Restore(*session->Snapshot()).ok());
      EXPECT_EQ(*restored->Draw(options, random), *id) << "restored";
    }
    ASSERT_TRUE(session->Append({&*id, 1}, {}).ok());
  }
  SamplerOptions bad;
  bad.top_p = 0;
  EXPECT_EQ(session->Draw(bad, 0).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Logits(*session), Fresh(session->tokens()));
}

// Logits that nobody has looked at are there after what cannot be done.
TEST_P(DeviceSessionTest, LogitsStayWhenAnAppendIsRefused) {
  const auto tokens = Tokens(20, 18);
  for (const bool all : {false, true}) {
    auto session = Start();
    ASSERT_TRUE(session->Append(Ids(tokens).first(10), {}).ok());
    ASSERT_TRUE(session->Append(Ids(tokens).subspan(10, 1), {}).ok());
    AppendOptions append;
    std::atomic<bool> stop = true;
    if (all) {
      append.logits = LogitsWanted::kAll;
      append.on_logits = [](size_t, size_t, std::span<const float>) {
        return InvalidArgument("no");
      };
    } else {
      append.cancel = &stop;
    }
    EXPECT_FALSE(session->Append(Ids(tokens).subspan(11), append).ok());
    EXPECT_EQ(session->position(), 11u);
    EXPECT_EQ(Logits(*session), Fresh(Ids(tokens).first(11)));
    ASSERT_TRUE(session->Append(Ids(tokens).subspan(11, 1), {}).ok());
    EXPECT_EQ(Logits(*session), Fresh(Ids(tokens).first(12)));
  }
}

TEST_P(DeviceSessionTest, SkippedLayersLeaveTheSameBits) {
  const auto tokens = Tokens(150, 13);
  for (const Activations activations :
       {Activations::kF32, Activations::kBF16}) {
    SessionOptions skip, full;
    skip.activations = full.activations = activations;
    skip.prefill = Prefill::kSkip;
    full.prefill = Prefill::kFull;
    auto a = Start(skip), b = Start(full);
    ASSERT_TRUE(a->Append(tokens, {}).ok());
    ASSERT_TRUE(b->Append(tokens, {}).ok());
    EXPECT_GT(a->stats().skipped_tokens, 0u);
    EXPECT_EQ(Logits(*a), Logits(*b));
    EXPECT_EQ(*a->Snapshot(), *b->Snapshot());
  }
}

// Cancelled while layers are being skipped, the session is what it was.
TEST_P(DeviceSessionTest, CancellingASkippingPromptReturnsTheState) {
  const auto tokens = Tokens(150, 14);
  auto session = Start();
  ASSERT_TRUE(session->Append(Ids(tokens).first(10), {}).ok());
  const auto before = session->Snapshot();
  std::atomic<bool> stop = false;
  AppendOptions append;
  append.cancel = &stop;
  append.on_progress = [&](size_t done) { stop = done >= 16; };
  EXPECT_EQ(session->Append(Ids(tokens).subspan(10), append).code(),
            StatusCode::kCancelled);
  EXPECT_EQ(session->position(), 10u);
  ASSERT_TRUE(session->Append(Ids(tokens).subspan(10), {}).ok());
  EXPECT_EQ(Logits(*session), Fresh(tokens));
}

TEST_P(DeviceSessionTest, SequencesInSeveralThreads) {
  const auto a = Tokens(40, 3), b = Tokens(40, 4);
  std::vector<float> got_a, got_b;
  std::thread ta([&] { got_a = Fresh(a); });
  std::thread tb([&] { got_b = Fresh(b); });
  ta.join();
  tb.join();
  EXPECT_EQ(got_a, Fresh(a));
  EXPECT_EQ(got_b, Fresh(b));
}

// Whatever does not fit says how much it wanted, and the next one works.
TEST_P(DeviceSessionTest, MemoryThatIsNotThereIsAnError) {
  Device& device = *model_->impl().device;
  const auto huge = DeviceArray<float>::Allocate(device, uint64_t{1} << 58);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(huge.status().message().find("1152921504606846976 bytes"),
            std::string::npos)
      << huge.status().message();
  EXPECT_EQ(Fresh(Tokens(9, 1)), Fresh(Tokens(9, 1)));
}

// Each mode of activations runs or is refused by name.
TEST_P(DeviceSessionTest, ActivationsThatItHasNotAreNamed) {
  SessionOptions options;
  options.activations = Activations::kInt8;
  const auto session = Session::Create(model_, options);
  if (model_->impl().device->takes_int8()) {
    EXPECT_TRUE(session.ok());
    return;
  }
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(session.status().message().find("int8"), std::string::npos);
}

// The definitions are slow, and share the processor's memory.
std::vector<const char*> FastBackends() {
  std::vector<const char*> backends = testing::Backends();
  backends.erase(backends.begin());
  return backends;
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceSessionTest,
                         ::testing::ValuesIn(FastBackends()),
                         [](const auto& device) {
                           return std::string(device.param);
                         });

// --- Names -------------------------------------------------------------------

TEST(OpenDevice, NamesAreRefusedWithTheChoices) {
  for (const char* name : {"", "CUDA", "gpu", "cpu:0"}) {
    const auto device = OpenDevice(name);
    ASSERT_FALSE(device.ok()) << name;
    EXPECT_EQ(device.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(device.status().message().find("cuda:N"), std::string::npos);
  }
  for (const char* name :
       {"cuda:", "cuda:x", "cuda:-1", "cuda:99999", "cuda0"}) {
    const auto device = OpenDevice(name);
    ASSERT_FALSE(device.ok()) << name;
    EXPECT_EQ(device.status().code(), StatusCode::kInvalidArgument) << name;
  }
}

TEST(OpenDevice, WhatIsMissingIsNamed) {
  const auto device = OpenDevice("cuda:999");
  ASSERT_FALSE(device.ok());
  const std::string& message = device.status().message();
  if (!BuiltWithCuda()) {
    EXPECT_NE(message.find("no CUDA backend"), std::string::npos) << message;
  } else if (testing::Unavailable("cuda").empty()) {
    EXPECT_NE(message.find("device 999 does not exist"), std::string::npos)
        << message;
  } else {
    EXPECT_EQ(message, testing::Unavailable("cuda"));
  }
}

}  // namespace
}  // namespace ecphory
