// Several texts at once on golden model A: each is the one that it is alone.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "ecphory/generate.h"
#include "runtime/testing.h"

namespace ecphory {
namespace {

using testing::GoldenModel;
using testing::GoldenModelOnGpu;
using testing::SmallTokenizer;

constexpr uint32_t kContext = 64;

SessionOptions Options() {
  SessionOptions options;
  options.context = kContext;
  return options;
}

std::unique_ptr<Batch> MakeBatch(
    uint32_t sequences,
    const std::shared_ptr<const Model>& model = GoldenModel()) {
  auto batch = Batch::Create(model, Options(), sequences);
  EXPECT_TRUE(batch.ok()) << batch.status().ToString();
  return std::move(batch).value();
}

std::vector<int32_t> Prompt(int32_t seed, size_t length) {
  std::vector<int32_t> prompt;
  for (size_t i = 0; i < length; ++i) {
    prompt.push_back((seed * 37 + static_cast<int32_t>(i) * 11) % 500);
  }
  return prompt;
}

GenerateOptions Sampled(uint32_t max_tokens, float temperature, uint64_t seed) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.sampler.temperature = temperature;
  options.sampler.seed = seed;
  return options;
}

// Prompts and texts of many lengths, greedy and sampled; one fills its context,
// one ends at once.
struct Requests {
  Requests() {
    for (int32_t i = 0; i < 9; ++i) {
      prompts.push_back(Prompt(i, static_cast<size_t>(1 + 5 * i)));
    }
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto n = static_cast<uint32_t>(i == 4 ? 0 : i == 8 ? 99 : 3 * i);
      const float temperature = i % 2 == 0 ? 0.0f : 1.0f;
      requests.push_back({prompts[i], Sampled(n, temperature, i)});
    }
  }
  std::vector<std::vector<int32_t>> prompts;
  std::vector<GenerateRequest> requests;
};

void ExpectEachIsTheOneAlone(
    const Tokenizer& tokenizer, std::span<const GenerateRequest> requests,
    const std::shared_ptr<const Model>& model = GoldenModel(),
    std::initializer_list<uint32_t> places = {1, 3, 16}) {
  for (const uint32_t sequences : places) {
    const auto batch = MakeBatch(sequences, model);
    const auto results = Generate(*batch, tokenizer, requests);
    ASSERT_TRUE(results.ok()) << results.status().ToString();
    ASSERT_EQ(results->size(), requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto session = Session::Create(model, Options()).value();
      const auto alone = Generate(*session, tokenizer, requests[i].prompt,
                                  requests[i].options);
      ASSERT_TRUE(alone.ok());
      EXPECT_EQ((*results)[i].tokens, alone->tokens) << i;
      EXPECT_EQ((*results)[i].text, alone->text) << i;
      EXPECT_EQ((*results)[i].reason, alone->reason) << i;
      EXPECT_EQ((*results)[i].prompt_tokens, requests[i].prompt.size());
    }
  }
}

TEST(GenerateBatch, EachTextIsTheOneAlone) {
  const Requests made;
  ExpectEachIsTheOneAlone(SmallTokenizer(), made.requests);
}

TEST(GenerateBatch, TextsEndForReasonsOfTheirOwn) {
  Requests made;
  const auto batch = MakeBatch(4);
  const auto free = Generate(*batch, SmallTokenizer(), made.requests);
  ASSERT_TRUE(free.ok());
  EXPECT_EQ((*free)[8].reason, StopReason::kContext);
  EXPECT_EQ((*free)[7].reason, StopReason::kLength);
  EXPECT_TRUE((*free)[4].tokens.empty());
  // A token of one text ends the texts that have it; a stop text another one.
  made.requests[7].options.stop = {(*free)[7].text.substr(4, 2)};
  ExpectEachIsTheOneAlone(SmallTokenizer((*free)[6].tokens[5]), made.requests);
}

// There steps are begun before it is known whether texts end. It computes up to
// four sequences with the bits of each alone.
TEST(GenerateBatch, OnAGpuTextsAreThoseAloneAsWell) {
  const auto model = GoldenModelOnGpu();
  if (model == nullptr) GTEST_SKIP() << "no GPU";
  Requests made;
  ExpectEachIsTheOneAlone(SmallTokenizer(), made.requests, model, {1, 3, 4});
  const auto free =
      Generate(*MakeBatch(4, model), SmallTokenizer(), made.requests);
  ASSERT_TRUE(free.ok());
  made.requests[7].options.stop = {(*free)[7].text.substr(4, 2)};
  ExpectEachIsTheOneAlone(SmallTokenizer((*free)[6].tokens[5]), made.requests,
                          model, {1, 2, 4});
}

TEST(GenerateBatch, TextComesInPieces) {
  Requests made;
  std::vector<std::string> shown(made.requests.size());
  for (size_t i = 0; i < shown.size(); ++i) {
    made.requests[i].options.on_text = [&shown, i](std::string_view text) {
      shown[i] += text;
    };
  }
  const auto batch = MakeBatch(4);
  const auto results = Generate(*batch, SmallTokenizer(), made.requests);
  ASSERT_TRUE(results.ok());
  for (size_t i = 0; i < shown.size(); ++i) {
    EXPECT_EQ(shown[i], (*results)[i].text);
  }
}

TEST(GenerateBatch, OneMayBeCancelled) {
  Requests made;
  std::atomic<bool> cancel = false;
  made.requests[7].options.cancel = &cancel;
  made.requests[7].options.on_text = [&](std::string_view) { cancel = true; };
  const auto batch = MakeBatch(4);
  const auto results = Generate(*batch, SmallTokenizer(), made.requests);
  ASSERT_TRUE(results.ok());
  EXPECT_EQ((*results)[7].reason, StopReason::kCancelled);
  EXPECT_LT((*results)[7].tokens.size(), 10u);
  EXPECT_EQ((*results)[6].reason, StopReason::kLength);
  // Before its prompt is read.
  const auto again = Generate(*batch, SmallTokenizer(), made.requests);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)[7].reason, StopReason::kCancelled);
  EXPECT_TRUE((*again)[7].tokens.empty());
}

TEST(GenerateBatch, NothingToDo) {
  const auto batch = MakeBatch(2);
  const auto results = Generate(*batch, SmallTokenizer(), {});
  ASSERT_TRUE(results.ok());
  EXPECT_TRUE(results->empty());
}

// Before anything is computed.
TEST(GenerateBatch, ErrorsNameThePrompt) {
  const auto batch = MakeBatch(2);
  const auto refused = [&](size_t index, const GenerateRequest& request,
                           StatusCode code) {
    Requests made;
    made.requests[index] = request;
    const Status status =
        Generate(*batch, SmallTokenizer(), made.requests).status();
    EXPECT_EQ(status.code(), code);
    EXPECT_NE(status.message().find("prompt " + std::to_string(index)),
              std::string::npos)
        << status.message();
    EXPECT_EQ(batch->stats().tokens, 0u);
  };
  refused(5, {{}, Sampled(3, 0, 0)}, StatusCode::kInvalidArgument);
  const std::vector<int32_t> longer(kContext + 1, 7);
  refused(3, {longer, Sampled(3, 0, 0)}, StatusCode::kOutOfRange);
  const std::vector<int32_t> prompt = {7};
  refused(8, {prompt, Sampled(3, -1, 0)}, StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ecphory
