// The loop of Generate on golden model A: random weights, all mechanisms.
#include <gtest/gtest.h>

#include <algorithm>

#include "ecphory/generate.h"
#include "runtime/testing.h"

namespace ecphory {
namespace {

using testing::GoldenModel;
using testing::SmallTokenizer;

std::unique_ptr<Session> NewSession(uint32_t context = 256) {
  SessionOptions options;
  options.context = context;
  auto session = Session::Create(GoldenModel(), options);
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  return std::move(session).value();
}

GenerateOptions Greedy(uint32_t max_tokens) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.sampler.temperature = 0;
  return options;
}

const std::vector<int32_t> kPrompt = {104, 101, 108, 108, 111};

GenerateResult MustGenerate(Session& session, const GenerateOptions& options,
                            std::span<const int32_t> prompt = kPrompt) {
  auto result = Generate(session, SmallTokenizer(), prompt, options);
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return result.ok() ? *result : GenerateResult();
}

int32_t Best(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) -
                              logits.begin());
}

TEST(GenerateTest, GreedyIsTheBestTokenOfEveryStep) {
  auto by_hand = NewSession();
  std::vector<int32_t> expected;
  ASSERT_TRUE(by_hand->Append(kPrompt, {}).ok());
  for (int i = 0; i < 20; ++i) {
    expected.push_back(Best(by_hand->logits()));
    ASSERT_TRUE(by_hand->Append({&expected.back(), 1}, {}).ok());
  }
  auto session = NewSession();
  const GenerateResult result = MustGenerate(*session, Greedy(20));
  EXPECT_EQ(result.tokens, expected);
  EXPECT_EQ(result.reason, StopReason::kLength);
  EXPECT_EQ(result.prompt_tokens, kPrompt.size());
  EXPECT_EQ(result.stats.tokens, kPrompt.size() + 19);
  EXPECT_GT(result.stats.engram_rows, 0u);
}

// There a step is begun before it is known whether the text ends with its
// token; the session then goes on as one that never did that.
TEST(GenerateTest, OnAGpuTextsThatEndGoOnLikeStepsByHand) {
  const auto model = testing::GoldenModelOnGpu();
  if (model == nullptr) GTEST_SKIP() << "no GPU";
  GenerateOptions options = Greedy(40);
  options.sampler.temperature = 1;
  const auto by_hand = Session::Create(model, {}).value();
  Sampler sampler(options.sampler);
  std::vector<int32_t> expected;
  ASSERT_TRUE(by_hand->Append(kPrompt, {}).ok());
  for (int i = 0; i < 20; ++i) {
    expected.push_back(sampler.Sample(*by_hand).value());
    ASSERT_TRUE(by_hand->Append({&expected.back(), 1}, {}).ok());
  }
  const auto session = Session::Create(model, {}).value();
  const auto ended =
      Generate(*session, SmallTokenizer(expected[10]), kPrompt, options);
  ASSERT_TRUE(ended.ok()) << ended.status().ToString();
  EXPECT_EQ(ended->reason, StopReason::kEos);
  const auto first = std::find(expected.begin(), expected.end(), expected[10]);
  EXPECT_EQ(ended->tokens, std::vector<int32_t>(expected.begin(), first));
  // What follows is appended by hand.
  for (auto next = first; next != expected.end(); ++next) {
    ASSERT_TRUE(session->Append({&*next, 1}, {}).ok());
  }
  EXPECT_TRUE(std::ranges::equal(session->tokens(), by_hand->tokens()));
  EXPECT_TRUE(std::ranges::equal(session->logits(), by_hand->logits()));
}

TEST(GenerateTest, ASecondCallContinuesWhereTheFirstEnded) {
  auto whole = NewSession();
  const GenerateResult all = MustGenerate(*whole, Greedy(20));
  auto session = NewSession();
  const GenerateResult first = MustGenerate(*session, Greedy(12));
  EXPECT_EQ(session->position(), kPrompt.size() + 11);
  const GenerateResult second =
      MustGenerate(*session, Greedy(8), {&first.tokens.back(), 1});
  std::vector<int32_t> joined = first.tokens;
  joined.insert(joined.end(), second.tokens.begin(), second.tokens.end());
  EXPECT_EQ(joined, all.tokens);
}

TEST(GenerateTest, TextComesInPiecesAndProgressIsReported) {
  GenerateOptions options = Greedy(30);
  std::string streamed;
  int pieces = 0;
  uint64_t last_done = 0;
  options.on_text = [&](std::string_view text) {
    streamed += text;
    ++pieces;
  };
  options.on_prompt_progress = [&](uint64_t done, uint64_t total) {
    EXPECT_EQ(total, kPrompt.size());
    last_done = done;
  };
  auto session = NewSession();
  const GenerateResult result = MustGenerate(*session, options);
  EXPECT_EQ(streamed, result.text);
  EXPECT_GT(pieces, 5);
  EXPECT_EQ(last_done, kPrompt.size());
}

TEST(GenerateTest, StopTextAcrossTokens) {
  auto session = NewSession();
  const GenerateResult free = MustGenerate(*session, Greedy(30));
  // Two tokens of letters that follow each other somewhere in the text.
  const auto letters = [](int32_t id) { return id >= 256; };
  const auto at = std::adjacent_find(
      free.tokens.begin(), free.tokens.end(),
      [&](int32_t a, int32_t b) { return letters(a) && letters(b); });
  ASSERT_NE(at, free.tokens.end());
  const Tokenizer tokenizer = SmallTokenizer();
  const std::string both = std::string(tokenizer.TokenBytes(at[0])) +
                           std::string(tokenizer.TokenBytes(at[1]));
  GenerateOptions options = Greedy(30);
  options.stop = {both.substr(1, 2)};  // begins and ends inside a token
  auto again = NewSession();
  const GenerateResult stopped = MustGenerate(*again, options);
  EXPECT_EQ(stopped.reason, StopReason::kStopText);
  EXPECT_EQ(stopped.text, free.text.substr(0, free.text.find(options.stop[0])));
}

TEST(GenerateTest, EosEndsTheTextUnlessSwitchedOff) {
  auto session = NewSession();
  const GenerateResult free = MustGenerate(*session, Greedy(10));
  const Tokenizer tokenizer = SmallTokenizer(/*eos_id=*/free.tokens[4]);
  const auto first =
      std::find(free.tokens.begin(), free.tokens.end(), free.tokens[4]);
  auto again = NewSession();
  auto ended = Generate(*again, tokenizer, kPrompt, Greedy(10));
  ASSERT_TRUE(ended.ok());
  EXPECT_EQ(ended->reason, StopReason::kEos);
  EXPECT_EQ(ended->tokens, std::vector<int32_t>(free.tokens.begin(), first));
  GenerateOptions on = Greedy(10);
  on.stop_at_eos = false;
  auto third = NewSession();
  EXPECT_EQ(Generate(*third, tokenizer, kPrompt, on)->tokens, free.tokens);
}

TEST(GenerateTest, EndsWhenTheContextIsFull) {
  auto session = NewSession(/*context=*/8);
  const GenerateResult result = MustGenerate(*session, Greedy(30));
  EXPECT_EQ(result.reason, StopReason::kContext);
  EXPECT_EQ(result.tokens.size(), 4u);  // the last needs no place
  auto small = NewSession(/*context=*/4);
  EXPECT_EQ(
      Generate(*small, SmallTokenizer(), kPrompt, Greedy(1)).status().code(),
      StatusCode::kOutOfRange);
  EXPECT_EQ(small->position(), 0u);
}

TEST(GenerateTest, CancelEndsCleanly) {
  std::atomic<bool> cancel{true};
  GenerateOptions options = Greedy(30);
  options.cancel = &cancel;
  auto session = NewSession();
  EXPECT_EQ(MustGenerate(*session, options).reason, StopReason::kCancelled);

  cancel = false;
  options.on_text = [&](std::string_view) { cancel = true; };
  auto second = NewSession();
  const GenerateResult result = MustGenerate(*second, options);
  EXPECT_EQ(result.reason, StopReason::kCancelled);
  EXPECT_LT(result.tokens.size(), 10u);
  EXPECT_FALSE(result.text.empty());
}

TEST(GenerateTest, RefusesBadOptions) {
  auto session = NewSession();
  const auto code = [&](const GenerateOptions& options,
                        std::span<const int32_t> prompt) {
    return Generate(*session, SmallTokenizer(), prompt, options)
        .status()
        .code();
  };
  EXPECT_EQ(code(Greedy(1), {}), StatusCode::kInvalidArgument);
  GenerateOptions options = Greedy(1);
  options.stop = {""};
  EXPECT_EQ(code(options, kPrompt), StatusCode::kInvalidArgument);
  // A byte inside a character, one that is in none, half a character, and one
  // of them after text.
  for (const char* stop :
       {"\x80", "\xff", "\xe2\x82", "a\xc3", "\xed\xa0\x80"}) {
    options.stop = {"ok", stop};
    EXPECT_EQ(code(options, kPrompt), StatusCode::kInvalidArgument);
  }
  options = Greedy(1);
  options.sampler.top_p = 2;
  EXPECT_EQ(code(options, kPrompt), StatusCode::kInvalidArgument);
  const int32_t unknown[] = {1, 512};
  EXPECT_EQ(code(Greedy(1), unknown), StatusCode::kOutOfRange);
  EXPECT_EQ(session->position(), 0u);
}

TEST(GenerateTest, NoTokensWantedReadsThePromptOnly) {
  auto session = NewSession();
  const GenerateResult result = MustGenerate(*session, Greedy(0));
  EXPECT_TRUE(result.tokens.empty());
  EXPECT_EQ(session->position(), kPrompt.size());
}

}  // namespace
}  // namespace ecphory
