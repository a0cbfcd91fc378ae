// Sequences continued together: what each computes is what it computes alone,
// whatever company it is in; errors name the sequence and change nothing.
#include "ecphory/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "model/draw.h"
#include "model/model_impl.h"
#include "model/prefill_testing.h"
#include "model/test_models.h"
#include "model/testing.h"

namespace ecphory {
namespace {

using testing::ExpectHas;
using testing::GoldenDir;
using testing::prefill::Logits;
using testing::prefill::SnapshotOf;
using testing::prefill::Tokens;
using Ids = std::span<const int32_t>;

std::unique_ptr<Batch> MakeBatch(const std::shared_ptr<const Model>& model,
                                 uint32_t sequences,
                                 const SessionOptions& options) {
  auto batch = Batch::Create(model, options, sequences);
  EXPECT_TRUE(batch.ok()) << batch.status().ToString();
  return std::move(*batch);
}

SessionOptions Options(Activations activations = Activations::kF32) {
  SessionOptions options;
  options.context = 512;
  options.chunk = 16;
  options.activations = activations;
  return options;
}

// A sequence in a batch and the same by itself.
class Pair {
 public:
  Pair(const std::shared_ptr<const Model>& model, const Batch& batch,
       uint32_t seed, size_t prompt, uint32_t context = 512)
      : text_(Tokens(context, seed)) {
    SessionOptions options = batch.options();
    options.context = context;
    auto together = batch.NewSession(context);
    auto alone = Session::Create(model, options);
    EXPECT_TRUE(together.ok()) << together.status().ToString();
    EXPECT_TRUE(alone.ok()) << alone.status().ToString();
    together_ = std::move(*together);
    alone_ = std::move(*alone);
    EXPECT_TRUE(together_->Append(Ids(text_).first(prompt), {}).ok());
    EXPECT_TRUE(alone_->Append(Ids(text_).first(prompt), {}).ok());
  }

  BatchToken Next() const {
    return {together_.get(), text_[together_->position()]};
  }
  void StepAlone() {
    EXPECT_TRUE(
        alone_->Append(Ids(text_).subspan(alone_->position(), 1), {}).ok());
  }
  void ExpectSame() const {
    EXPECT_EQ(together_->position(), alone_->position());
    EXPECT_EQ(Logits(*together_), Logits(*alone_));
  }
  void ExpectSameState() const {
    ExpectSame();
    EXPECT_EQ(together_->EarliestTruncation(), alone_->EarliestTruncation());
    EXPECT_EQ(SnapshotOf(*together_), SnapshotOf(*alone_));
  }

  Session& together() { return *together_; }
  Session& alone() { return *alone_; }
  Ids text() const { return text_; }

 private:
  std::vector<int32_t> text_;
  std::unique_ptr<Session> together_;
  std::unique_ptr<Session> alone_;
};

Status Step(Batch& batch, std::span<Pair* const> pairs) {
  std::vector<BatchToken> tokens;
  for (const Pair* pair : pairs) tokens.push_back(pair->Next());
  return batch.Step(tokens);
}

// Positions inside and across groups, windows that have wrapped and not.
std::vector<Pair> MakePairs(const std::shared_ptr<const Model>& model,
                            const Batch& batch) {
  std::vector<Pair> pairs;
  for (const size_t prompt : {1, 2, 7, 16, 33, 100}) {
    const auto seed = static_cast<uint32_t>(prompt);
    const uint32_t context = prompt == 33 ? 64 : 512;
    pairs.emplace_back(model, batch, seed, prompt, context);
  }
  return pairs;
}

std::vector<Pair*> All(std::vector<Pair>& pairs) {
  std::vector<Pair*> all;
  for (Pair& pair : pairs) all.push_back(&pair);
  return all;
}

void ExpectStepsOfSessionsAlone(const std::shared_ptr<const Model>& model,
                                const SessionOptions& options, size_t steps) {
  const auto batch = MakeBatch(model, 6, options);
  std::vector<Pair> pairs = MakePairs(model, *batch);
  for (size_t i = 0; i < steps; ++i) {
    const Status status = Step(*batch, All(pairs));
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (Pair& pair : pairs) {
      pair.StepAlone();
      pair.ExpectSame();
    }
  }
  for (const Pair& pair : pairs) pair.ExpectSameState();
}

class BatchTest : public ::testing::TestWithParam<testing::prefill::TestModel> {
 protected:
  const std::shared_ptr<const Model> model_ =
      testing::prefill::Open(GetParam());
};

TEST_P(BatchTest, StepsAreThoseOfSessionsAlone) {
  for (const Activations activations :
       {Activations::kF32, Activations::kBF16}) {
    ExpectStepsOfSessionsAlone(model_, Options(activations), 12);
  }
}

TEST_P(BatchTest, SoTheyAreWithEveryOption) {
  SessionOptions options = Options();
  options.engram = false;
  ExpectStepsOfSessionsAlone(model_, options, 5);
  options = Options();
  options.state_rounding = false;
  ExpectStepsOfSessionsAlone(model_, options, 5);
  options = Options();
  options.index_keys = IndexKeys::kVendor;
  ExpectStepsOfSessionsAlone(model_, options, 9);
}

// Steps of any of them, in any order, between steps back, snapshots and prompts
// of one.
TEST_P(BatchTest, SequencesJoinAndLeave) {
  const auto batch = MakeBatch(model_, 6, Options());
  std::vector<Pair> pairs = MakePairs(model_, *batch);
  std::mt19937 random(17);
  for (size_t i = 0; i < 25; ++i) {
    std::vector<Pair*> some = All(pairs);
    std::shuffle(some.begin(), some.end(), random);
    some.resize(1 + random() % some.size());
    ASSERT_TRUE(Step(*batch, some).ok());
    for (Pair* pair : some) pair->StepAlone();
    Pair& one = *some[0];
    if (i % 5 == 1) {
      const uint64_t back = one.alone().position() - random() % 2;
      EXPECT_TRUE(one.together().Truncate(back).ok());
      EXPECT_TRUE(one.alone().Truncate(back).ok());
    }
    if (i % 5 == 2) {
      const auto snapshot = one.alone().Snapshot();
      ASSERT_TRUE(snapshot.ok());
      EXPECT_TRUE(one.together().Restore(*snapshot).ok());
    }
    if (i % 5 == 3) {
      const Ids more = one.text().subspan(one.alone().position(), 3);
      EXPECT_TRUE(one.together().Append(more, {}).ok());
      EXPECT_TRUE(one.alone().Append(more, {}).ok());
    }
    if (i % 5 != 1) one.ExpectSame();
  }
  ASSERT_TRUE(Step(*batch, All(pairs)).ok());
  for (Pair& pair : pairs) {
    pair.StepAlone();
    pair.ExpectSame();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, BatchTest,
                         ::testing::ValuesIn(testing::prefill::AllModels()),
                         [](const auto& model) {
                           return std::string(model.param.name);
                         });

class BatchErrors : public ::testing::Test {
 protected:
  void SetUp() override {
    batch_ = MakeBatch(model_, 4, Options());
    for (uint32_t i = 0; i < 3; ++i) {
      pairs_.emplace_back(model_, *batch_, i, 5 + i);
    }
  }

  std::vector<BatchToken> Tokens() const {
    std::vector<BatchToken> tokens;
    for (const Pair& pair : pairs_) tokens.push_back(pair.Next());
    return tokens;
  }
  // Nothing changes, and the next step is right.
  void ExpectRefused(const std::vector<BatchToken>& tokens, StatusCode code,
                     const std::vector<std::string>& parts) {
    const Status status = batch_->Step(tokens);
    EXPECT_EQ(status.code(), code) << status.ToString();
    for (const std::string& part : parts) ExpectHas(status.message(), part);
    for (const Pair& pair : pairs_) pair.ExpectSameState();
    ASSERT_TRUE(Step(*batch_, All(pairs_)).ok());
    for (Pair& pair : pairs_) {
      pair.StepAlone();
      pair.ExpectSame();
    }
  }
  std::unique_ptr<Session> Start(const SessionOptions& options) const {
    auto session = Session::Create(model_, options);
    EXPECT_TRUE(session.ok());
    return std::move(*session);
  }

  const std::shared_ptr<const Model> model_ =
      testing::OpenOrDie(GoldenDir("A"), "cpu");
  std::unique_ptr<Batch> batch_;
  std::vector<Pair> pairs_;
};

TEST_F(BatchErrors, SequencesThatCannotGoTogether) {
  ExpectRefused({}, StatusCode::kInvalidArgument, {"0 sequences", "1 to 4"});
  std::vector<BatchToken> tokens = Tokens();
  tokens.push_back(tokens[1]);
  ExpectRefused(tokens, StatusCode::kInvalidArgument,
                {"sequence 3", "sequence 1"});
  tokens = Tokens();
  tokens[2].session = nullptr;
  ExpectRefused(tokens, StatusCode::kInvalidArgument,
                {"sequence 2", "no session"});
  const auto other = testing::OpenOrDie(GoldenDir("A"), "cpu");
  const auto foreign = Session::Create(other, Options()).value();
  tokens = Tokens();
  tokens[1].session = foreign.get();
  ExpectRefused(tokens, StatusCode::kInvalidArgument,
                {"sequence 1", "another model"});
  tokens.assign(5, tokens[0]);
  ExpectRefused(tokens, StatusCode::kInvalidArgument, {"5 sequences"});
}

TEST_F(BatchErrors, OptionsThatDiffer) {
  const auto refused = [&](const SessionOptions& options, const char* name) {
    const auto session = Start(options);
    std::vector<BatchToken> tokens = Tokens();
    tokens[1].session = session.get();
    ExpectRefused(tokens, StatusCode::kInvalidArgument, {"sequence 1", name});
    EXPECT_EQ(session->position(), 0u);
  };
  refused(Options(Activations::kBF16), "activations");
  SessionOptions options = Options();
  options.state_rounding = false;
  refused(options, "state_rounding");
  options = Options();
  options.index_keys = IndexKeys::kVendor;
  refused(options, "index_keys");
  options = Options();
  options.engram = false;
  refused(options, "engram");
  options = Options();
  options.context = 513;
  refused(options, "513");
  EXPECT_EQ(batch_->NewSession(513).status().code(),
            StatusCode::kInvalidArgument);
  // These are a session's own affair.
  options = Options();
  options.chunk = 3;
  options.context = 100;
  options.prefill = Prefill::kFull;
  const auto session = Start(options);
  const std::vector<BatchToken> tokens = {{session.get(), 7}};
  EXPECT_TRUE(batch_->Step(tokens).ok());
  EXPECT_EQ(session->position(), 1u);
}

TEST_F(BatchErrors, AFullContextAndATokenThatDoesNotExist) {
  const auto full = batch_->NewSession(8).value();
  ASSERT_TRUE(full->Append(std::vector<int32_t>(8, 3), {}).ok());
  std::vector<BatchToken> tokens = Tokens();
  tokens.push_back({full.get(), 4});
  ExpectRefused(tokens, StatusCode::kOutOfRange, {"sequence 3", "8 tokens"});
  EXPECT_EQ(full->position(), 8u);
  tokens = Tokens();
  tokens[0].token = -1;
  ExpectRefused(tokens, StatusCode::kOutOfRange, {"sequence 0", "token -1"});
}

TEST_F(BatchErrors, SizesOutOfRange) {
  for (const uint32_t sequences : {0u, 8193u}) {
    EXPECT_EQ(Batch::Create(model_, {}, sequences).status().code(),
              StatusCode::kInvalidArgument);
  }
  SessionOptions options;
  options.chunk = 0;
  EXPECT_EQ(Batch::Create(model_, options, 2).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(Batch, ABrokenRowNamesItsSequenceAndChangesNone) {
  const auto intact = testing::OpenOrDie(GoldenDir("A"), "cpu");
  // A row that the last token of one text reads and nothing else.
  const auto text = Tokens(20, 40);
  const auto rows = intact->EngramRows(text, {});
  const uint64_t row = (*rows)[19].back().rows.back();
  testing::ModelDir files;
  const std::string table =
      "layers." + std::to_string(intact->config().engram.layer_ids.back()) +
      ".engram.embed.weight";
  testing::TestTensor& tensor = files.At(table);
  tensor.bytes[row * tensor.shape[1] + 5] = '\x7f';
  const auto model = testing::OpenOrDie(files.Write(), "cpu");

  const auto batch = MakeBatch(model, 3, Options());
  Pair first(model, *batch, 1, 9), second(model, *batch, 2, 10);
  const auto broken = batch->NewSession().value();
  ASSERT_TRUE(broken->Append(Ids(text).first(19), {}).ok());
  for (const bool ahead : {false, true}) {
    const std::vector<BatchToken> tokens = {
        first.Next(), {broken.get(), text[19]}, second.Next()};
    if (ahead) batch->Prefetch(tokens);
    const Status status = batch->Step(tokens);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    ExpectHas(status.message(), "sequence 1");
    ExpectHas(status.message(), table);
    ExpectHas(status.message(), "row " + std::to_string(row));
    EXPECT_EQ(broken->position(), 19u);
    first.ExpectSame();
    second.ExpectSame();
    Pair* const rest[] = {&first, &second};
    ASSERT_TRUE(Step(*batch, rest).ok());
    for (Pair* pair : rest) {
      pair->StepAlone();
      pair->ExpectSame();
    }
  }
}

// The rows of all sequences are asked for at once, each of them once.
TEST(Batch, RowsAreSharedAndReadAhead) {
  const auto model = testing::OpenOrDie(GoldenDir("A"), "cpu");
  const auto batch = MakeBatch(model, 4, Options());
  std::vector<Pair> pairs;
  for (size_t i = 0; i < 4; ++i) pairs.emplace_back(model, *batch, 9, 6);
  const engram::StoreStats before = model->impl().store->stats();
  const size_t tables = model->config().engram.layer_ids.size();
  for (size_t i = 0; i < 3; ++i) {
    std::vector<BatchToken> tokens;
    for (const Pair& pair : pairs) tokens.push_back(pair.Next());
    batch->Prefetch(tokens);
    ASSERT_TRUE(batch->Step(tokens).ok());
  }
  const engram::StoreStats after = model->impl().store->stats();
  EXPECT_EQ(after.lookups - before.lookups, 3 * tables);
  EXPECT_LE(after.rows_read - before.rows_read, (after.rows - before.rows) / 4);
  for (Pair& pair : pairs) {
    for (size_t i = 0; i < 3; ++i) pair.StepAlone();
    pair.ExpectSame();
  }
  EXPECT_EQ(batch->stats().tokens, 12u);
  EXPECT_EQ(pairs[0].together().stats().tokens, 9u);
}

// More than a GPU takes in one launch, or the store in one block of rows.
TEST(Batch, ManySequences) {
  const auto model = testing::OpenOrDie(GoldenDir("A"), "cpu", 1);
  SessionOptions options = Options();
  options.context = 32;
  const auto batch = MakeBatch(model, 150, options);
  std::vector<Pair> pairs;
  for (uint32_t i = 0; i < 150; ++i) {
    pairs.emplace_back(model, *batch, i, 1 + i % 9, 32);
  }
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(Step(*batch, All(pairs)).ok());
    for (Pair& pair : pairs) {
      pair.StepAlone();
      pair.ExpectSame();
    }
  }
}

TEST(Batch, SessionsOutliveIt) {
  const auto model = testing::OpenOrDie(GoldenDir("A"), "cpu");
  auto batch = MakeBatch(model, 2, Options());
  Pair pair(model, *batch, 3, 20);
  batch.reset();
  ASSERT_TRUE(pair.together().Append(pair.text().subspan(20, 1), {}).ok());
  pair.StepAlone();
  pair.ExpectSameState();
}

// A GPU's sums differ with how many tokens it is given.
TEST(Batch, OnEveryDevice) {
  for (const char* backend : testing::Backends()) {
    if (!testing::Unavailable(backend).empty()) continue;
    const auto model = testing::OpenOrDie(GoldenDir("A"), backend);
    const bool exact = model->impl().device->is_host();
    SessionOptions options = Options();
    options.state_rounding = exact;  // or a code could flip
    const auto batch = MakeBatch(model, 40, options);
    std::vector<Pair> pairs;
    for (uint32_t i = 0; i < (exact ? 3u : 40u); ++i) {
      pairs.emplace_back(model, *batch, i, 1 + 5 * i % 70);
    }
    for (size_t step = 0; step < (exact ? 3u : 12u); ++step) {
      ASSERT_TRUE(Step(*batch, All(pairs)).ok());
      for (Pair& pair : pairs) {
        pair.StepAlone();
        const auto errors =
            testing::RowErrors(Logits(pair.together()), Logits(pair.alone()),
                               model->config().vocab_size);
        EXPECT_LE(testing::MaxOf(errors), exact ? 0 : 1e-4) << backend;
      }
    }
    EXPECT_GE(batch->stats().replayed_steps, exact ? 0u : 8u);
  }
}

SamplerOptions SomeSampler(size_t i) {
  return {.temperature = i % 4 == 0 ? 0.0f : 1.5f,
          .top_k = i % 3 == 0 ? 50u : 0u,
          .top_p = i % 5 == 0 ? 0.9f : 1.0f,
          .repeat_penalty = i % 7 < 2 ? 1.3f : 1.0f};
}

// Drawn from what the session shows to be its logits.
int32_t DrawnFromLogits(const BatchDraw& draw) {
  const std::span<const float> logits = draw.session->logits();
  const Sampled sampled = DrawOnHost(
      RefOps(), logits, DrawnRow(draw.options, draw.random),
      PenalizedIds(draw.options, draw.session->tokens(), logits.size()));
  EXPECT_EQ(sampled.fault, SampleFault::kNone);
  return sampled.id;
}

// Tokens come from where the logits are, whichever sequences take part in a
// step. Those that do not keep theirs: nobody looks at them until other steps
// and prompts have taken their place.
TEST(Batch, DrawsWhereTheLogitsAre) {
  for (const char* backend : testing::Backends()) {
    if (!testing::Unavailable(backend).empty()) continue;
    constexpr size_t kSequences = 20;
    const auto model = testing::OpenOrDie(GoldenDir("A"), backend);
    auto batch = MakeBatch(model, kSequences, Options());
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<BatchDraw> draws;
    std::vector<BatchToken> all;
    for (uint32_t i = 0; i < kSequences; ++i) {
      // One is not the batch's.
      sessions.push_back(i == 7 ? Session::Create(model, Options()).value()
                                : batch->NewSession().value());
      ASSERT_TRUE(sessions[i]->Append(Tokens(1 + 3 * i, i), {}).ok());
      draws.push_back({sessions[i].get(), SomeSampler(i), 0});
      all.push_back({sessions[i].get(), 0});
    }
    uint64_t random = 0x9e3779b97f4a7c15;
    for (size_t step = 0; step < 12; ++step) {
      for (BatchDraw& draw : draws) {
        draw.random = random *= 0xda942042e4dd58b5;
      }
      const auto ids = batch->Draw(draws);
      ASSERT_TRUE(ids.ok()) << ids.status().ToString();
      // All, or all but some, or few.
      std::vector<BatchToken> some;
      std::vector<size_t> others;
      for (size_t i = 0; i < kSequences; ++i) {
        all[i].token = (*ids)[i];
        const bool waits = step > 4 && (step > 8 ? i > 2 : (i + step) % 5 == 0);
        if (i % 4 == 1) {
          EXPECT_EQ(DrawnFromLogits(draws[i]), (*ids)[i]);
        }
        if (waits) others.push_back(i);
        if (!waits) some.push_back(all[i]);
      }
      ASSERT_TRUE(batch->Step(some).ok());
      if (step % 3 == 0) {  // in memory that they share
        const auto guest = batch->NewSession().value();
        ASSERT_TRUE(guest->Append(Tokens(20, 50), {}).ok());
        AppendOptions refused;
        refused.logits = LogitsWanted::kAll;
        refused.on_logits = [](size_t, size_t, std::span<const float>) {
          return InvalidArgument("no");
        };
        EXPECT_FALSE(guest->Append(Tokens(3, 51), refused).ok());
      }
      const auto again = batch->Draw(draws);
      ASSERT_TRUE(again.ok()) << again.status().ToString();
      for (const size_t i : others) {
        EXPECT_EQ((*again)[i], (*ids)[i]) << backend << ", step " << step;
        if (i % 2 == 0) {
          EXPECT_EQ(DrawnFromLogits(draws[i]), (*ids)[i]);
        }
      }
    }
    const auto last = batch->Draw(draws).value();
    batch.reset();
    for (size_t i = 0; i < kSequences; ++i) {
      EXPECT_EQ(*sessions[i]->Draw(draws[i].options, draws[i].random), last[i]);
      EXPECT_EQ(DrawnFromLogits(draws[i]), last[i]) << backend;
    }
  }
}

TEST_F(BatchErrors, DrawsThatCannotBe) {
  const auto refused = [&](const std::vector<BatchDraw>& draws,
                           const std::vector<std::string>& parts) {
    const Status status = batch_->Draw(draws).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    for (const std::string& part : parts) ExpectHas(status.message(), part);
  };
  refused({}, {"0 sequences", "1 to 4"});
  const BatchDraw good{&pairs_[0].together(), {}, 1};
  refused({good, {}}, {"sequence 1", "no session"});
  const auto fresh = batch_->NewSession().value();
  refused({good, good, {fresh.get(), {}, 1}}, {"sequence 2", "no logits"});
  BatchDraw bad = good;
  bad.options.top_p = 0;
  refused({bad}, {"sequence 0", "top_p"});
  EXPECT_TRUE(batch_->Draw({{good, good}}).ok());
}

// Steps that were recorded are of the sequences they were recorded for, not of
// others that lie where those lay.
TEST(Batch, RecordingsAreOfOneSequence) {
  for (const char* backend : testing::Backends()) {
    if (!testing::Unavailable(backend).empty()) continue;
    const auto model = testing::OpenOrDie(GoldenDir("A"), backend);
    const auto batch = MakeBatch(model, 2, Options());
    const auto text = Tokens(30, 3);
    std::vector<float> want;
    for (size_t i = 0; i < 3; ++i) {
      const auto session = batch->NewSession().value();
      ASSERT_TRUE(session->Append(Ids(text).first(10), {}).ok());
      for (size_t t = 10; t < 14; ++t) {
        const std::vector<BatchToken> token = {{session.get(), text[t]}};
        ASSERT_TRUE(batch->Step(token).ok());
      }
      if (i == 0) want = Logits(*session);
      EXPECT_EQ(Logits(*session), want) << backend;
    }
  }
}

}  // namespace
}  // namespace ecphory
