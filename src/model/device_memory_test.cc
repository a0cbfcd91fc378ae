// What a model and its session really take of a device's memory, held against
// the plan that was made before; and what happens where there is not so much.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ecphory/device_plan.h"
#include "io/test_directory.h"
#include "model/memory_testing.h"
#include "model/model_impl.h"
#include "model/prefill_testing.h"
#include "model/testing.h"

namespace ecphory {
namespace {

using testing::GoldenDir;
using testing::memory::Passes;
using testing::memory::Without;
using testing::prefill::Tokens;
using Ids = std::span<const int32_t>;

constexpr char kCuda[] = "cuda";

struct Case {
  const char* name;
  // As in memory_holds_test.cc.
  const char* preset = "mini";
  const char* dtypes = "released";
  const char* file = "m.gguf";
  SessionOptions session = {};
};

std::string WriteModel(const TestDirectory& folder, const Case& run) {
  return testing::memory::WriteModel(folder, run.preset, run.dtypes, run.file);
}

ModelOptions OnCuda() {
  ModelOptions options;
  options.backend = kCuda;
  options.threads = 2;
  options.engram_io = "buffered";
  options.engram_cache_bytes = 0;
  return options;
}

DeviceMemory MemoryOf(const Device& device) { return device.memory().value(); }

// A whole context, steps at its end, and a token of each way to draw.
void UseUp(Session& session) {
  const uint64_t context = session.context();
  const std::vector<int32_t> tokens = Tokens(context, 21);
  const size_t steps = std::min<size_t>(9, context / 2);
  ASSERT_TRUE(session.Append(Ids(tokens).first(context - steps), {}).ok());
  SamplerOptions options{.top_k = 40, .top_p = 0.9f, .repeat_penalty = 1.1f};
  for (size_t i = steps; i > 0; --i) {
    ASSERT_TRUE(session.Draw(options, i << 40).ok());
    ASSERT_TRUE(session.Append(Ids(tokens).subspan(context - i, 1), {}).ok());
  }
}

class DeviceMemoryHolds : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string reason = testing::Unavailable(kCuda);
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_P(DeviceMemoryHolds, WhatIsTakenIsPlanned) {
  const Case& run = GetParam();
  const TestDirectory folder;
  const std::string path = WriteModel(folder, run);
  const auto early =
      PlanDevice(path, run.session.context, run.session.chunk, OnCuda());
  ASSERT_TRUE(early.ok()) << early.status().ToString();
  const auto device = OpenDevice(kCuda).value();
  const DeviceMemory before = MemoryOf(*device);
  const auto model = Model::Open(path, OnCuda());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const DevicePlan plan = PlanDevice(**model, run.session).value();
  EXPECT_EQ(plan.weights, early->weights);
  const auto taken = [&] { return MemoryOf(*device).taken - before.taken; };
  constexpr double kMost = 2e6;
  const uint64_t weights = taken();
  EXPECT_NEAR(static_cast<double>(weights), static_cast<double>(plan.weights),
              std::max(kMost, 0.02 * static_cast<double>(plan.weights)));
  const auto session = Session::Create(*model, run.session);
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const uint64_t opened = taken();
  UseUp(**session);
  // All of it was taken when the session was made, but for scratch of what a
  // recorded step does beside other work, of which there is little.
  EXPECT_LE(taken() - opened, uint64_t{1} << 20);
  const double planned = static_cast<double>(plan.Total());
  EXPECT_NEAR(static_cast<double>(opened), planned,
              std::max(kMost, 0.02 * planned))
      << "weights " << plan.weights << " (" << weights << " taken), state "
      << plan.state << " scratch " << plan.scratch << " operators "
      << plan.operators;
  const DeviceMemory after = MemoryOf(*device);
  std::printf(
      "[ memory   ] %s: %.1f MB planned, %.1f MB taken, %.1f MB less free\n",
      run.name, planned / 1e6, static_cast<double>(opened) / 1e6,
      (static_cast<double>(before.free) - static_cast<double>(after.free)) /
          1e6);
}

constexpr Activations kBF16 = Activations::kBF16;

const Case kRuns[] = {
    {.name = "short_context", .session = Passes(600, 128)},
    {.name = "usual", .session = Passes(2048, 256)},
    {.name = "single_tokens", .session = Passes(300, 1)},
    {.name = "few_tokens", .session = Passes(600, 7)},
    {.name = "odd_passes", .session = Passes(1100, 219)},
    {.name = "wide", .session = Passes(2048, 1024)},
    {.name = "bf16", .session = Passes(2048, 256, Prefill::kFull, kBF16)},
    {.name = "skip", .session = Passes(2048, 128, Prefill::kSkip)},
    {.name = "without_engram", .session = Without(false, true)},
    {.name = "without_rounding", .session = Without(true, false)},
    {.name = "directory", .file = "m", .session = Passes(2048, 256)},
    {.name = "two_bits",
     .preset = "v41-narrow",
     .dtypes = "q2",
     .session = Passes(1024, 256)},
    {.name = "narrow",
     .preset = "v41-narrow",
     .file = "m",
     .session = Passes(4096, 256)},
    {.name = "narrow_skip_bf16",
     .preset = "v41-narrow",
     .file = "m",
     .session = Passes(4096, 512, Prefill::kSkip, kBF16)},
};

INSTANTIATE_TEST_SUITE_P(All, DeviceMemoryHolds, ::testing::ValuesIn(kRuns),
                         [](const auto& run) {
                           return std::string(run.param.name);
                         });

// --- Full memory -------------------------------------------------------------

// All memory of the device that can be had, in ever smaller pieces.
std::vector<DeviceArray<uint8_t>> TakeAll(Device& device) {
  std::vector<DeviceArray<uint8_t>> all;
  for (uint64_t bytes = MemoryOf(device).free; bytes >= 4096; bytes /= 2) {
    for (;;) {
      auto piece = DeviceArray<uint8_t>::Allocate(device, bytes);
      if (!piece.ok()) break;
      all.push_back(std::move(piece).value());
    }
  }
  return all;
}

void ExpectNoMemory(const Status& status, const std::string& what) {
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
  for (const std::string& part :
       {what, std::string(" wanted, "), std::string(" are free")}) {
    EXPECT_NE(status.message().find(part), std::string::npos)
        << status.ToString();
  }
  std::printf("[ error    ] %s\n", status.ToString().c_str());
}

TEST(DeviceFailures, MemoryThatIsFullIsAnErrorAndNoMore) {
  const std::string reason = testing::Unavailable(kCuda);
  if (!reason.empty()) GTEST_SKIP() << reason;
  const auto device = OpenDevice(kCuda).value();
  const auto model = testing::OpenOrDie(GoldenDir("A"), kCuda);
  const SessionOptions options = Passes(512, 64);
  const auto tokens = Tokens(100, 22);
  auto session = Session::Create(model, options).value();
  ASSERT_TRUE(session->Append(Ids(tokens).first(70), {}).ok());
  for (size_t i = 70; i < 80; ++i) {
    ASSERT_TRUE(session->Append(Ids(tokens).subspan(i, 1), {}).ok());
    ASSERT_TRUE(session->Draw({}, i).ok());
  }
  {
    const auto all = TakeAll(*device);
    ExpectNoMemory(Model::Open(GoldenDir("A"), OnCuda()).status(), "weights");
    ExpectNoMemory(Session::Create(model, options).status(), "");
    // One that has all it wants goes on.
    for (size_t i = 80; i < 90; ++i) {
      const Status status = session->Append(Ids(tokens).subspan(i, 1), {});
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_TRUE(session->Draw({}, i).ok());
    }
    const auto cpu = testing::OpenOrDie(GoldenDir("A"), "cpu");
    auto other = Session::Create(cpu, options).value();
    EXPECT_TRUE(other->Append(tokens, {}).ok());
  }
  EXPECT_TRUE(Model::Open(GoldenDir("A"), OnCuda()).ok());
  EXPECT_TRUE(Session::Create(model, options).ok());
  EXPECT_TRUE(session->Append(Ids(tokens).subspan(90), {}).ok());
}

// --- A device that is lost ---------------------------------------------------

// Follows a pointer to nowhere in the middle of a pass.
class Breaker : public TensorObserver {
 public:
  explicit Breaker(const Ops& ops) : ops_(ops) {}
  bool Wants(uint32_t layer) const override { return layer == 1; }
  void OnF32(uint32_t, const std::string&, std::span<const float>,
             const std::vector<uint64_t>&) override {
    ThreadPool alone(1);
    ops_.round_bf16({.x = reinterpret_cast<float*>(4096), .count = 4}, alone);
  }
  void OnI32(uint32_t, const std::string&, std::span<const int32_t>,
             const std::vector<uint64_t>&) override {}
  void OnU8(uint32_t, const std::string&, std::span<const uint8_t>,
            const std::vector<uint64_t>&) override {}

 private:
  const Ops& ops_;
};

// Prints what is expected to fail, and ends the program when it does not.
void MustFail(const char* what, const Status& status) {
  std::fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
  if (status.code() != StatusCode::kDeviceError) std::exit(1);
}
void MustBe(bool right, int line) {
  if (right) return;
  std::fprintf(stderr, "not so in line %d\n", line);
  std::exit(1);
}

void LoseTheDevice() {
  const auto model = testing::OpenOrDie(GoldenDir("A"), kCuda);
  const SessionOptions options = Passes(512, 64);
  const auto tokens = Tokens(40, 23);
  auto session = Session::Create(model, options).value();
  MustBe(session->Append(Ids(tokens).first(10), {}).ok(), __LINE__);
  Breaker breaker(model->impl().device->ops());
  AppendOptions append;
  append.observer = &breaker;
  const Ids next = Ids(tokens).subspan(10);
  MustFail("append", session->Append(next, append));
  MustBe(session->position() == 10, __LINE__);
  MustFail("again", session->Append(next, {}));
  MustFail("one token", session->Append(next.first(1), {}));
  MustBe(session->position() == 10, __LINE__);
  MustFail("snapshot", session->Snapshot().status());
  MustFail("session", Session::Create(model, options).status());
  MustFail("model", Model::Open(GoldenDir("A"), OnCuda()).status());
  const auto cpu = testing::OpenOrDie(GoldenDir("A"), "cpu");
  auto other = Session::Create(cpu, options).value();
  MustBe(other->Append(tokens, {}).ok(), __LINE__);
  MustBe(other->Draw({}, 1).ok(), __LINE__);
  std::fprintf(stderr, "the processor goes on\n");
}

// In a process of its own: CUDA does not come back in the one where it failed.
TEST(DeviceFailuresDeathTest, AKernelThatFailsLeavesTheLastWholePass) {
  const std::string reason = testing::Unavailable(kCuda);
  if (!reason.empty()) GTEST_SKIP() << reason;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        LoseTheDevice();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0),
      "append: device error: .*illegal memory access.*the processor goes on");
}

}  // namespace
}  // namespace ecphory
