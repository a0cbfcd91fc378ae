// The memory inside a session: the right rows after every step back, however
// they were read ahead; errors that name the row; sequences side by side.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>

#include "ecphory/session.h"
#include "model/model_impl.h"
#include "model/test_models.h"
#include "model/testing.h"

namespace ecphory {
namespace {

using testing::Capture;
using testing::GoldenDir;
using Ids = std::span<const int32_t>;

std::vector<int32_t> Tokens(size_t count, uint32_t seed, uint32_t vocab = 500) {
  std::mt19937 rng(seed);
  std::vector<int32_t> tokens(count);
  for (auto& token : tokens) token = static_cast<int32_t>(rng() % vocab);
  return tokens;
}

std::unique_ptr<Session> Start(const std::shared_ptr<const Model>& model,
                               uint32_t chunk,
                               Prefill prefill = Prefill::kSkip) {
  SessionOptions options;
  options.prefill = prefill;
  options.context = 512;
  options.chunk = chunk;
  auto session = Session::Create(model, options);
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  return std::move(*session);
}

std::vector<float> Logits(const Session& session) {
  return {session.logits().begin(), session.logits().end()};
}

std::vector<float> Fresh(const std::shared_ptr<const Model>& model, Ids tokens,
                         uint32_t chunk = 256) {
  auto session = Start(model, chunk);
  EXPECT_TRUE(session->Append(tokens, {}).ok());
  return Logits(*session);
}

// The values that an Engram layer must inject for the rows of a text, by way of
// EngramRows, the store and the projection: [tokens, D].
std::vector<float> ValuesByRows(const Model& model, Ids text, uint32_t layer) {
  const Model::Impl& impl = model.impl();
  const auto rows = model.EngramRows(text, {});
  EXPECT_TRUE(rows.ok());
  const auto index =
      static_cast<size_t>(model.config().engram.IndexOfLayer(layer));
  std::vector<uint64_t> flat;
  for (const auto& token : *rows) {
    flat.insert(flat.end(), token[index].rows.begin(), token[index].rows.end());
  }
  std::vector<float> values(flat.size() * model.config().engram.head_dim);
  EXPECT_TRUE(impl.store
                  ->Wait(impl.store->Submit(
                      {.table = index, .rows = flat, .out = values.data()}))
                  .ok());
  const Matrix& wkv = impl.weights.layers[layer].engram.wkv;
  std::vector<float> kv(text.size() * wkv.rows);
  impl.forward.ops->matmul({.weight = wkv,
                            .x = values.data(),
                            .y = kv.data(),
                            .tokens = text.size()},
                           *impl.pool);
  const size_t dim = model.config().hidden_size;
  std::vector<float> injected;
  for (size_t t = 0; t < text.size(); ++t) {
    const auto end = kv.begin() + static_cast<ptrdiff_t>((t + 1) * wkv.rows);
    injected.insert(injected.end(), end - static_cast<ptrdiff_t>(dim), end);
  }
  return injected;
}

// Appends `tail` to a session that holds `head`, and expects the rows and the
// logits of a session that never held anything else.
void ExpectContinues(const Model& model, Session& session, Ids head, Ids tail,
                     const std::vector<float>& want_logits) {
  Capture capture;
  AppendOptions append;
  append.observer = &capture;
  ASSERT_TRUE(session.Append(tail, append).ok());
  EXPECT_EQ(Logits(session), want_logits);
  std::vector<int32_t> text(head.begin(), head.end());
  text.insert(text.end(), tail.begin(), tail.end());
  for (const uint32_t layer : model.config().engram.layer_ids) {
    const std::vector<float> all = ValuesByRows(model, text, layer);
    const size_t skip = head.size() * model.config().hidden_size;
    EXPECT_EQ(
        capture.tensors().at("L" + std::to_string(layer) + ".engram.value").f32,
        std::vector<float>(all.begin() + static_cast<ptrdiff_t>(skip),
                           all.end()))
        << "layer " << layer;
  }
}

class SessionEngramTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  const std::shared_ptr<const Model> model_ =
      testing::OpenOrDie(GoldenDir("A"), "cpu");
};

// What is read ahead before a step back: nothing, what is appended then, or
// something else.
enum class Hint { kNone, kRight, kWrong };

void Give(Hint hint, Ids tail, Session& session) {
  if (hint == Hint::kRight) session.Prefetch(tail);
  if (hint == Hint::kWrong) session.Prefetch(Tokens(tail.size(), 99));
}

TEST_P(SessionEngramTest, StepsBackFromOddAndEvenPositions) {
  const auto tail = Tokens(7, 21);
  for (const size_t length : {size_t{30}, size_t{31}}) {
    const auto tokens = Tokens(length, 20);
    for (size_t back = 0; back <= std::min<size_t>(5, GetParam()); ++back) {
      const Ids head = Ids(tokens).first(length - back);
      std::vector<int32_t> text(head.begin(), head.end());
      text.insert(text.end(), tail.begin(), tail.end());
      const auto want = Fresh(model_, text);
      for (const Hint hint : {Hint::kNone, Hint::kRight, Hint::kWrong}) {
        SCOPED_TRACE(::testing::Message()
                     << length << " back " << back << " hint " << int(hint));
        auto session = Start(model_, GetParam());
        ASSERT_TRUE(session->Append(tokens, {}).ok());
        Give(hint, tail, *session);
        ASSERT_TRUE(session->Truncate(length - back).ok());
        Give(hint, tail, *session);
        ExpectContinues(*model_, *session, head, tail, want);
      }
    }
  }
}

TEST_P(SessionEngramTest, RestoresThenStepsBack) {
  const auto tail = Tokens(7, 23);
  for (const size_t length : {size_t{30}, size_t{31}}) {
    const auto tokens = Tokens(length, 22);
    auto origin = Start(model_, GetParam());
    ASSERT_TRUE(origin->Append(tokens, {}).ok());
    origin->Prefetch(tail);
    const auto snapshot = origin->Snapshot();
    ASSERT_TRUE(snapshot.ok());
    for (size_t back = 0; back <= std::min<size_t>(5, GetParam()); ++back) {
      SCOPED_TRACE(::testing::Message() << length << " back " << back);
      const Ids head = Ids(tokens).first(length - back);
      std::vector<int32_t> text(head.begin(), head.end());
      text.insert(text.end(), tail.begin(), tail.end());
      auto session = Start(model_, GetParam());
      ASSERT_TRUE(session->Append(Tokens(9, 24), {}).ok());
      session->Prefetch(tail);  // behind another text
      ASSERT_TRUE(session->Restore(*snapshot).ok());
      ASSERT_TRUE(session->Truncate(length - back).ok());
      ExpectContinues(*model_, *session, head, tail, Fresh(model_, text));
    }
    // The origin was not disturbed by any of it.
    std::vector<int32_t> text = tokens;
    text.insert(text.end(), tail.begin(), tail.end());
    ExpectContinues(*model_, *origin, tokens, tail, Fresh(model_, text));
  }
}

TEST_P(SessionEngramTest, ProgressIsReportedAfterEveryChunk) {
  auto session = Start(model_, GetParam());
  const auto tokens = Tokens(130, 25);
  std::vector<size_t> done;
  AppendOptions append;
  append.on_progress = [&](size_t tokens_done) { done.push_back(tokens_done); };
  ASSERT_TRUE(session->Append(tokens, append).ok());
  ASSERT_EQ(done.size(), (130 + GetParam() - 1) / GetParam());
  EXPECT_EQ(done.front(), std::min<size_t>(GetParam(), 130));
  EXPECT_EQ(done.back(), 130u);
}

TEST_P(SessionEngramTest, CancelBetweenChunksThenContinue) {
  if (GetParam() >= 64) return;  // the text is one chunk
  auto session = Start(model_, GetParam(), Prefill::kFull);
  const auto tokens = Tokens(40, 26);
  std::atomic<bool> cancel{false};
  AppendOptions append;
  append.cancel = &cancel;
  append.on_progress = [&](size_t done) { cancel = done >= 12; };
  EXPECT_EQ(session->Append(tokens, append).code(), StatusCode::kCancelled);
  const size_t held = session->position();
  ASSERT_GE(held, 12u);
  ASSERT_LT(held, tokens.size());
  ASSERT_TRUE(session->Append(Ids(tokens).subspan(held), {}).ok());
  EXPECT_EQ(Logits(*session), Fresh(model_, tokens));
}

INSTANTIATE_TEST_SUITE_P(Chunk, SessionEngramTest,
                         ::testing::Values(1, 2, 3, 64),
                         [](const auto& param_info) {
                           return std::to_string(param_info.param);
                         });

TEST(SessionEngram, EightSequencesShareTheStore) {
  constexpr uint32_t kSequences = 8;
  const auto model = testing::OpenOrDie(GoldenDir("A"), "cpu");
  std::vector<std::vector<float>> got(kSequences);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kSequences; ++i) {
    threads.emplace_back([&, i] {
      const auto tokens = Tokens(60, 30 + i);
      auto session = Start(model, 1 + 7 * (i % 3));
      ASSERT_TRUE(session->Append(Ids(tokens).first(40), {}).ok());
      for (const int32_t& token : Ids(tokens).subspan(40)) {
        session->Prefetch({&token, 1});
        ASSERT_TRUE(session->Append({&token, 1}, {}).ok());
      }
      got[i] = Logits(*session);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t i = 0; i < kSequences; ++i) {
    EXPECT_EQ(got[i], Fresh(model, Tokens(60, 30 + i))) << i;
  }
}

TEST(SessionEngram, OptionsOfTheStoreAreChecked) {
  ModelOptions options;
  options.engram_io = "punchcards";
  const Status status = Model::Open(GoldenDir("A"), options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  testing::ExpectHas(status.message(), "punchcards");
  testing::ExpectHas(status.message(), "uring");
  options = {};
  options.engram_io_threads = 0;
  EXPECT_EQ(Model::Open(GoldenDir("A"), options).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(SessionEngram, TheModelSaysHowRowsAreRead) {
  const auto model = testing::OpenOrDie(GoldenDir("A"), "cpu");
  EXPECT_FALSE(model->engram_io().mode.empty());
  EXPECT_NE(model->engram_io().mode, "auto");
  EXPECT_EQ(testing::OpenOrDie(GoldenDir("B"), "cpu")->engram_io().mode, "");
}

}  // namespace
}  // namespace ecphory
