// Rows that are broken, on each device: errors name table and row, the session
// stays at the last whole pass, and what follows is right.
#include <gtest/gtest.h>

#include <string>

#include "ecphory/session.h"
#include "model/prefill_testing.h"
#include "model/step_testing.h"
#include "model/test_models.h"
#include "model/testing.h"

namespace ecphory {
namespace {

using testing::GoldenDir;
using testing::prefill::Logits;
using testing::prefill::Tokens;
using Ids = std::span<const int32_t>;

constexpr uint32_t kChunk = testing::kAlikeTokens;

SessionOptions Options(uint32_t chunk, Prefill prefill = Prefill::kSkip) {
  SessionOptions options;
  options.prefill = prefill;
  options.context = 512;
  options.chunk = chunk;
  return options;
}

class EngramFaultTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string reason = testing::Unavailable(GetParam());
    if (!reason.empty()) GTEST_SKIP() << reason;
    intact_ = testing::OpenOrDie(GoldenDir("A"), GetParam());
  }

  static std::unique_ptr<Session> Start(
      const std::shared_ptr<const Model>& model,
      const SessionOptions& options) {
    auto session = Session::Create(model, options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return std::move(*session);
  }
  std::vector<float> Fresh(Ids tokens) const {
    auto session = Start(intact_, Options(kChunk));
    EXPECT_TRUE(session->Append(tokens, {}).ok());
    return Logits(*session);
  }

  std::shared_ptr<const Model> intact_;
};

// A copy of golden A in which one row, which position `at` of `text` reads in
// the last Engram layer and no other position reads, is no number.
class DamagedModel {
 public:
  DamagedModel(const Model& intact, Ids text, size_t at) {
    const auto rows = intact.EngramRows(text, {});
    EXPECT_TRUE(rows.ok());
    row_ = (*rows)[at].back().rows.back();
    const std::string layer =
        std::to_string(intact.config().engram.layer_ids.back());
    table_ = "layers." + layer + ".engram.embed.weight";
    testing::TestTensor& tensor = files_.At(table_);
    tensor.bytes[row_ * tensor.shape[1] + 5] = '\x7f';
  }

  std::shared_ptr<const Model> Open(const std::string& device) {
    return testing::OpenOrDie(files_.Write(), device);
  }
  void ExpectNamed(const Status& status) const {
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    testing::ExpectHas(status.message(), table_);
    testing::ExpectHas(status.message(), "row " + std::to_string(row_));
  }

 private:
  testing::ModelDir files_;
  std::string table_;
  uint64_t row_ = 0;
};

TEST_P(EngramFaultTest, ABrokenRowFailsItsChunkAndNothingElse) {
  const auto tokens = Tokens(100, 40);
  DamagedModel damaged(*intact_, tokens, 69);
  const auto model = damaged.Open(GetParam());
  for (const uint32_t chunk : {1u, 3u, kChunk}) {
    auto session = Start(model, Options(chunk, Prefill::kFull));
    damaged.ExpectNamed(session->Append(tokens, {}));
    const size_t held = 69 / chunk * chunk;
    ASSERT_EQ(session->position(), held) << chunk;
    // The same tokens fail again, others do not.
    damaged.ExpectNamed(session->Append(Ids(tokens).subspan(held), {}));
    ASSERT_EQ(session->position(), held);
    std::vector<int32_t> text(tokens.begin(),
                              tokens.begin() + static_cast<ptrdiff_t>(held));
    const auto tail = Tokens(10, 41);
    text.insert(text.end(), tail.begin(), tail.end());
    ASSERT_TRUE(session->Append(tail, {}).ok());
    EXPECT_EQ(Logits(*session), Fresh(text)) << chunk;
  }
}

// No logits of such a chunk are handed out.
TEST_P(EngramFaultTest, ABrokenRowIsFoundBeforeLogitsAreShown) {
  const auto tokens = Tokens(100, 40);
  DamagedModel damaged(*intact_, tokens, 69);
  auto session = Start(damaged.Open(GetParam()), Options(kChunk));
  size_t shown = 0;
  AppendOptions append;
  append.logits = LogitsWanted::kAll;
  append.on_logits = [&](size_t first, size_t count, std::span<const float>) {
    shown = first + count;
    return Status();
  };
  damaged.ExpectNamed(session->Append(tokens, append));
  EXPECT_EQ(shown, 69 / kChunk * kChunk);
}

// Where layers are skipped, a chunk that fails takes those before it along.
TEST_P(EngramFaultTest, ABrokenRowWhileSkippingLeavesWhatWasThereBefore) {
  const auto tokens = Tokens(100, 40);
  DamagedModel damaged(*intact_, tokens, 69);
  const auto model = damaged.Open(GetParam());
  for (const uint32_t chunk : {1u, 3u, kChunk}) {
    for (const size_t held : {size_t{0}, size_t{20}}) {
      const Ids prefix = Ids(tokens).first(held);
      auto session = Start(model, Options(chunk));
      ASSERT_TRUE(session->Append(prefix, {}).ok());
      const auto logits = Logits(*session);
      damaged.ExpectNamed(session->Append(Ids(tokens).subspan(held), {}));
      ASSERT_GT(session->stats().skipped_tokens, 0u);
      ASSERT_EQ(session->position(), held);
      EXPECT_EQ(Logits(*session), logits);
      std::vector<int32_t> text(prefix.begin(), prefix.end());
      const auto tail = Tokens(60, 41);
      text.insert(text.end(), tail.begin(), tail.end());
      ASSERT_TRUE(session->Append(tail, {}).ok());
      EXPECT_EQ(Logits(*session), Fresh(text)) << chunk;
    }
  }
}

TEST_P(EngramFaultTest, APrefetchThatFailsIsNoError) {
  const auto tokens = Tokens(100, 40);
  DamagedModel damaged(*intact_, tokens, 69);
  auto session = Start(damaged.Open(GetParam()), Options(256));
  ASSERT_TRUE(session->Append(Ids(tokens).first(69), {}).ok());
  session->Prefetch(Ids(tokens).subspan(69, 1));
  session->Prefetch({});
  session->Prefetch(std::vector<int32_t>{-5});
  session->Prefetch(Ids(tokens).subspan(69, 1));
  ASSERT_TRUE(session->Append(Tokens(3, 42), {}).ok());
  ASSERT_TRUE(session->Truncate(69).ok());
  session->Prefetch(Ids(tokens).subspan(69, 1));
  damaged.ExpectNamed(session->Append(Ids(tokens).subspan(69, 1), {}));
}

// A step that is found broken when another one has been begun behind it.
TEST_P(EngramFaultTest, ABrokenRowFailsAStepWithAnotherBegunBehindIt) {
  const auto text = testing::GreedyText(intact_, 40);
  const size_t at = testing::FirstReader(*intact_, text, 25).at;
  DamagedModel damaged(*intact_, text, at);
  auto session = Start(damaged.Open(GetParam()), Options(kChunk));
  const SamplerOptions greedy = {.temperature = 0};
  for (size_t i = 0; i < at; ++i) {
    const auto next = session->Step(text[i], greedy, 0, /*goes_on=*/true);
    ASSERT_TRUE(next.ok()) << next.status().ToString();
    ASSERT_EQ(*next, text[i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    damaged.ExpectNamed(
        session->Step(text[at], greedy, 0, /*goes_on=*/true).status());
    ASSERT_EQ(session->position(), at);
  }
  std::vector<int32_t> other(text.begin(),
                             text.begin() + static_cast<ptrdiff_t>(at));
  for (const int32_t token : Tokens(9, 41)) {
    ASSERT_TRUE(session->Step(token, greedy, 0, /*goes_on=*/true).ok());
    other.push_back(token);
  }
  EXPECT_EQ(Logits(*session), Fresh(other));
}

// The definitions are slow, and share the processor's memory.
std::vector<const char*> FastBackends() {
  std::vector<const char*> backends = testing::Backends();
  backends.erase(backends.begin());
  return backends;
}

INSTANTIATE_TEST_SUITE_P(Devices, EngramFaultTest,
                         ::testing::ValuesIn(FastBackends()),
                         [](const auto& device) {
                           return std::string(device.param);
                         });

}  // namespace
}  // namespace ecphory
