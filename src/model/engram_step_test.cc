// Steps of one token whose rows come late or cannot be read, on each device: a
// device that was given the step beforehand waits for them, and never for ever.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "ecphory/session.h"
#include "engram/store_testing.h"
#include "io/fault_file.h"
#include "model/model_impl.h"
#include "model/prefill_testing.h"
#include "model/step_testing.h"
#include "model/test_models.h"
#include "model/testing.h"

namespace ecphory {
namespace {

using engram::GateFile;
using std::chrono::milliseconds;
using testing::GoldenDir;
using testing::prefill::Logits;
using testing::prefill::Tokens;
using Ids = std::span<const int32_t>;

SessionOptions Options(uint32_t chunk) {
  SessionOptions options;
  options.context = 512;
  options.chunk = chunk;
  return options;
}

// Passes of one token, as a generation makes them, over tables that stand still
// or fail when they are told to.
class Stepper {
 public:
  // Reads of `bad_row` in the last table fail.
  explicit Stepper(const Model& model,
                   std::optional<uint64_t> bad_row = std::nullopt,
                   bool logits_stay = false)
      : config_(model.config()) {
    const Model::Impl& impl = model.impl();
    auto tables = EngramTables(impl.source);
    EXPECT_TRUE(tables.ok());
    engram::TableSource& last = tables->back();
    const uint64_t bytes = TableRowBytes(last.codec, last.width);
    FaultPlan plan;
    if (bad_row) {
      plan.bad_begin = last.offset + *bad_row * bytes;
      plan.bad_end = plan.bad_begin + bytes;
    }
    last.file = std::make_shared<FaultFile>(last.file, plan);
    gate_ = std::make_shared<GateFile>(last.file);
    last.file = gate_;
    engram::StoreOptions io;
    io.io = IoMode::kPread;
    io.cache_bytes = 0;
    store_ = std::move(engram::Store::Open(std::move(*tables), io)).value();
    parts_ = impl.forward;
    parts_.store = store_.get();
    const SessionOptions options = Options(1);
    forward_ = std::move(Forward::Create(parts_, options)).value();
    EXPECT_TRUE(!logits_stay || forward_->LetLogitsStay().ok());
    state_ = SequenceState::Create(config_, options, *parts_.device).value();
  }

  ~Stepper() { forward_->DropAhead(); }
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  Status Step(int32_t token) {
    const uint8_t image = 0;
    ForwardChunk chunk;
    chunk.tokens = {&token, 1};
    chunk.image = {&image, 1};
    return forward_->Run(chunk, &*state_);
  }
  void Steps(Ids tokens) {
    for (const int32_t token : tokens) {
      const Status status = Step(token);
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
  }
  // A step that draws the best token, with which the next one is begun.
  Status StepAhead(int32_t token) {
    const uint8_t image = 0;
    ForwardChunk chunk;
    chunk.tokens = {&token, 1};
    chunk.image = {&image, 1};
    const ForwardSegment whole{&*state_, 1};
    ForwardDraw draw{
        .state = &*state_, .row = {}, .penalized = {}, .sampled = {}};
    const Status status =
        forward_->Run(chunk, {&whole, 1}, {&draw, 1}, /*goes_on=*/true);
    if (status.ok()) drawn_ = draw.sampled.id;
    return status;
  }
  // A step whose rows come so much later.
  Status StepWithout(milliseconds wait, int32_t token, bool ahead = false) {
    gate_->Close();
    std::thread opener([this, wait] {
      std::this_thread::sleep_for(wait);
      gate_->Open();
    });
    const Status status = ahead ? StepAhead(token) : Step(token);
    opener.join();
    return status;
  }
  int32_t drawn() const { return drawn_; }
  const std::vector<float>& logits() {
    EXPECT_TRUE(forward_->FetchLogits(&*state_).ok());
    return state_->logits;
  }
  uint64_t position() const { return state_->position; }
  SessionStats stats() const { return forward_->stats(); }

 private:
  const ModelConfig& config_;
  std::shared_ptr<GateFile> gate_;
  std::unique_ptr<engram::Store> store_;
  ForwardModel parts_;
  std::unique_ptr<Forward> forward_;
  std::optional<SequenceState> state_;
  int32_t drawn_ = 0;
};

class EngramStepTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string reason = testing::Unavailable(GetParam());
    if (!reason.empty()) GTEST_SKIP() << reason;
    model_ = testing::OpenOrDie(GoldenDir("A"), GetParam());
  }
  std::vector<float> Fresh(Ids tokens) const {
    auto session =
        Session::Create(model_, Options(testing::kAlikeTokens)).value();
    EXPECT_TRUE(session->Append(tokens, {}).ok());
    return Logits(*session);
  }
  bool records() const { return !model_->impl().device->is_host(); }

  std::shared_ptr<const Model> model_;
};

TEST_P(EngramStepTest, StepsWaitForRowsThatComeLate) {
  const auto tokens = Tokens(30, 43);
  Stepper stepper(*model_);
  size_t done = 20;
  stepper.Steps(Ids(tokens).first(done));
  // A slow machine may be at the layers before for as long: then rows come
  // later still.
  milliseconds late(30);
  double waited = 0;
  do {
    late *= 2;
    const double before = stepper.stats().engram_wait_seconds;
    ASSERT_TRUE(stepper.StepWithout(late, tokens[done++]).ok());
    waited = stepper.stats().engram_wait_seconds - before;
  } while (waited < 0.03 && late < milliseconds(1900));
  EXPECT_GE(waited, 0.03);
  EXPECT_LT(waited, 0.01 * static_cast<double>(late.count()));
  EXPECT_EQ(stepper.logits(), Fresh(Ids(tokens).first(done)));
  // Longer than a device waits by itself.
  ASSERT_TRUE(stepper.StepWithout(milliseconds(1300), tokens[done++]).ok());
  EXPECT_EQ(stepper.logits(), Fresh(Ids(tokens).first(done)));
  stepper.Steps(Ids(tokens).subspan(done));
  EXPECT_EQ(stepper.logits(), Fresh(tokens));
  EXPECT_GE(stepper.stats().replayed_steps, records() ? 12u : 0u);
}

TEST_P(EngramStepTest, AStepWhoseRowsCannotBeReadIsNotTaken) {
  const auto tokens = Tokens(40, 44);
  const auto rows = model_->EngramRows(tokens, {});
  ASSERT_TRUE(rows.ok());
  constexpr size_t kAt = 30;
  const uint64_t bad = (*rows)[kAt].back().rows.back();
  Stepper stepper(*model_, bad);
  stepper.Steps(Ids(tokens).first(kAt));
  for (const int wait : {0, 40, 0}) {
    const Status status = stepper.StepWithout(milliseconds(wait), tokens[kAt]);
    EXPECT_EQ(status.code(), StatusCode::kIoError) << status.ToString();
    testing::ExpectHas(status.message(), "row " + std::to_string(bad));
    EXPECT_EQ(stepper.position(), kAt);
    EXPECT_EQ(stepper.logits(), Fresh(Ids(tokens).first(kAt)));
  }
  std::vector<int32_t> text(tokens.begin(), tokens.begin() + kAt);
  for (const int32_t token : Tokens(9, 45)) {
    stepper.Steps({&token, 1});
    text.push_back(token);
    EXPECT_EQ(stepper.logits(), Fresh(text));
  }
}

// The same of steps that were begun before their tokens were known.
TEST_P(EngramStepTest, StepsBegunAheadWaitForRowsThatComeLate) {
  const auto text = testing::GreedyText(model_, 24);
  Stepper stepper(*model_, std::nullopt, /*logits_stay=*/true);
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    const bool late = i == 12 || i == 16;
    const milliseconds wait(i == 12 ? 60 : 1300);
    const Status status = late ? stepper.StepWithout(wait, text[i], true)
                               : stepper.StepAhead(text[i]);
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_EQ(stepper.drawn(), text[i + 1]) << i;
  }
  EXPECT_EQ(stepper.logits(), Fresh(Ids(text).first(text.size() - 1)));
  EXPECT_GE(stepper.stats().replayed_steps, records() ? 12u : 0u);
}

TEST_P(EngramStepTest, AStepBegunAheadWhoseRowsCannotBeReadIsNotTaken) {
  const auto text = testing::GreedyText(model_, 40);
  const auto [at, bad] = testing::FirstReader(*model_, text, 25);
  Stepper stepper(*model_, bad, /*logits_stay=*/true);
  for (size_t i = 0; i < at; ++i) {
    ASSERT_TRUE(stepper.StepAhead(text[i]).ok());
  }
  for (const int wait : {40, 0}) {
    const Status status =
        stepper.StepWithout(milliseconds(wait), text[at], true);
    EXPECT_EQ(status.code(), StatusCode::kIoError) << status.ToString();
    testing::ExpectHas(status.message(), "row " + std::to_string(bad));
    EXPECT_EQ(stepper.position(), at);
    EXPECT_EQ(stepper.logits(), Fresh(Ids(text).first(at)));
  }
  std::vector<int32_t> other(text.begin(),
                             text.begin() + static_cast<ptrdiff_t>(at));
  for (const int32_t token : Tokens(9, 45)) {
    ASSERT_TRUE(stepper.StepAhead(token).ok());
    other.push_back(token);
  }
  EXPECT_EQ(stepper.logits(), Fresh(other));
}

// The definitions are slow, and share the processor's memory.
std::vector<const char*> FastBackends() {
  std::vector<const char*> backends = testing::Backends();
  backends.erase(backends.begin());
  return backends;
}

INSTANTIATE_TEST_SUITE_P(Devices, EngramStepTest,
                         ::testing::ValuesIn(FastBackends()),
                         [](const auto& device) {
                           return std::string(device.param);
                         });

// --- Flags ------------------------------------------------------------------

// Work that stands in a queue sees what was written before its flag was raised.
TEST(HostFlags, WorkWaitsForThem) {
  const std::string reason = testing::Unavailable("cuda");
  if (!reason.empty()) GTEST_SKIP() << reason;
  const std::shared_ptr<Device> device = OpenDevice("cuda").value();
  const std::unique_ptr<Queue> queue = device->NewQueue().value();
  if (!queue->records()) GTEST_SKIP() << "launches block";
  const auto allocate = [&](MemoryKind kind) {
    return DeviceArray<uint32_t>::Allocate(*device, 1, kind).value();
  };
  auto flag =
      DeviceArray<HostFlag>::Allocate(*device, 1, MemoryKind::kShared).value();
  auto from = allocate(MemoryKind::kShared), to = allocate(MemoryKind::kShared);
  auto inside = allocate(MemoryKind::kDevice);
  const Queue::Scope scope(*queue);
  std::unique_ptr<Recording> recording;
  ASSERT_TRUE(queue->BeginRecording().ok());
  queue->Await(flag.data());
  queue->Send(inside.data(), from.data(), sizeof(uint32_t));
  queue->Fetch(to.data(), inside.data(), sizeof(uint32_t));
  ASSERT_TRUE(queue->EndRecording(&recording).ok());
  for (uint32_t i = 1; i <= 2000; ++i) {
    flag.data()->Lower();
    ASSERT_TRUE(queue->Replay(*recording));
    *from.data() = i;
    flag.data()->Raise();
    ASSERT_TRUE(queue->Finish().ok());
    ASSERT_EQ(*to.data(), i);
    ASSERT_EQ(flag.data()->given_up, 0u);
  }
  flag.data()->Lower();
  ASSERT_TRUE(queue->Replay(*recording));
  ASSERT_TRUE(queue->Finish().ok());
  EXPECT_EQ(flag.data()->given_up, 1u);
  EXPECT_GE(flag.data()->waited_ns, HostFlag::kPatienceNs);
}

}  // namespace
}  // namespace ecphory
