// What a model and its session really allocate, held against the plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/heap.h"
#include "ecphory/batch.h"
#include "io/test_directory.h"
#include "model/memory_plan.h"
#include "model/memory_testing.h"
#include "model/testing.h"

namespace ecphory {
namespace {

using testing::memory::Passes;
using testing::memory::Without;

struct Run {
  const char* name;
  // Preset and dtypes; a name that ends in .gguf, or a directory.
  const char* preset = "mini";
  const char* dtypes = "released";
  const char* file = "m.gguf";
  ModelOptions model = {};
  SessionOptions session = {};
  uint32_t sequences = 1;  // more: a batch
};

std::string WriteModel(const TestDirectory& folder, const Run& run) {
  return testing::memory::WriteModel(folder, run.preset, run.dtypes, run.file);
}

// The most that is allocated at the end of any pass of an Append.
class Sampler {
 public:
  Sampler() : before_(HeapInUse()) {}
  void Step(Batch& batch, std::span<const BatchToken> tokens) {
    const Status status = batch.Step(tokens);
    EXPECT_TRUE(status.ok()) << status.ToString();
    Sample();
  }
  void Append(Session& session, std::span<const int32_t> tokens) {
    AppendOptions options;
    options.on_progress = [this](size_t) { Sample(); };
    const Status status = session.Append(tokens, options);
    EXPECT_TRUE(status.ok()) << status.ToString();
    Sample();
  }
  double most() const { return static_cast<double>(most_); }

 private:
  void Sample() { most_ = std::max(most_, HeapInUse() - before_); }

  const uint64_t before_;
  uint64_t most_ = 0;
};

std::vector<int32_t> Tokens(size_t count) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<int32_t>((31 * i + 5) % 8000);
  }
  return tokens;
}

// A whole context: a pass or less, then the rest but nine tokens, in which
// layers may be skipped and a way back is kept, then eight, for which operators
// may take memory of their own, then a token alone.
void ReadContext(Session& session, std::span<const int32_t> all,
                 Sampler* sampler) {
  ASSERT_TRUE(session.Truncate(0).ok());
  const size_t first = std::min<size_t>(256, all.size() / 4);
  sampler->Append(session, all.first(first));
  sampler->Append(session, all.subspan(first, all.size() - first - 9));
  sampler->Append(session, all.last(9).first(8));
  sampler->Append(session, all.last(1));
}

// A session, or a batch with all of its own.
struct Readers {
  std::unique_ptr<Batch> batch;
  std::vector<std::unique_ptr<Session>> sessions;
};

Readers Open(const std::shared_ptr<const Model>& model, const Run& run) {
  Readers readers;
  if (run.sequences == 1) {
    readers.sessions.push_back(Session::Create(model, run.session).value());
    return readers;
  }
  readers.batch = Batch::Create(model, run.session, run.sequences).value();
  for (uint32_t i = 0; i < run.sequences; ++i) {
    readers.sessions.push_back(readers.batch->NewSession().value());
  }
  return readers;
}

// Every session holds a token, and they are continued together.
void StepAll(const Readers& readers, Sampler* sampler) {
  std::vector<BatchToken> tokens;
  for (const auto& session : readers.sessions) {
    ASSERT_TRUE(session->Truncate(0).ok());
    sampler->Append(*session, Tokens(1));
    tokens.push_back({session.get(), 7});
  }
  sampler->Step(*readers.batch, tokens);
}

// Scratch is the threads' own, so that each run needs threads of its own.
void CheckPlan(const Run& run) {
  const TestDirectory folder;
  const std::string path = WriteModel(folder, run);
  const std::vector<int32_t> tokens = Tokens(run.session.context);
  Sampler sampler;
  const auto model = Model::Open(path, run.model);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const Readers readers = Open(*model, run);
  const MemoryPlan plan = (*model)->PlanMemory(run.session, run.sequences);
  EXPECT_EQ(plan.copied_weights != 0, run.model.weights == "copy");
  // Copied weights and kept rows lie outside the heap.
  const double planned = static_cast<double>(
      plan.Total() - plan.copied_weights - plan.engram_cache);
  // A busy machine may let one thread do the share of another, which then
  // allocates nothing for it: until each had its turn.
  for (int tries = 0; tries < 20; ++tries) {
    ReadContext(*readers.sessions[0], tokens, &sampler);
    if (readers.batch) StepAll(readers, &sampler);
    if (sampler.most() >= 0.98 * planned) break;
  }
  // Small objects that no plan counts take up to 230 kB in models of any size.
  constexpr double kSmallObjects = 256e3;
  EXPECT_NEAR(sampler.most(), planned, std::max(kSmallObjects, 0.02 * planned))
      << "state " << plan.state_context << " scratch " << plan.scratch
      << " prefill copy " << plan.prefill_copy << " operators "
      << plan.operators << " names " << plan.names << " resident "
      << plan.resident_weights << " reading " << plan.engram_reading;
}

class MemoryHolds : public ::testing::TestWithParam<Run> {};

// What a death test's process has found goes to its parent by way of stderr.
[[noreturn]] void ExitWithFailures() {
  const ::testing::TestResult& result =
      *::testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int i = 0; i < result.total_part_count(); ++i) {
    std::fprintf(stderr, "%s\n", result.GetTestPartResult(i).message());
  }
  std::exit(result.Failed() ? 1 : 0);
}

// In a process of its own, which is told as it starts to keep no small objects
// for each thread that has freed them: glibc counts these as in use, 50 to 60
// kB a thread.
TEST_P(MemoryHolds, AllocationsArePlanned) {
  if (HeapInUse() == 0) GTEST_SKIP() << "the C library does not count";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ASSERT_EQ(setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1), 0);
  const auto check = [] {
    std::thread([] { CheckPlan(GetParam()); }).join();
    ExitWithFailures();
  };
  EXPECT_EXIT(check(), ::testing::ExitedWithCode(0), "");
}

ModelOptions On(uint32_t threads, const char* weights = "map") {
  ModelOptions options;
  options.threads = threads;
  options.weights = weights;
  options.engram_io = "buffered";
  options.engram_cache_bytes = 0;
  return options;
}

constexpr Prefill kFull = Prefill::kFull;
constexpr Prefill kSkip = Prefill::kSkip;
constexpr Prefill kReplay = Prefill::kReplay;
constexpr Activations kBF16 = Activations::kBF16;
constexpr Activations kInt8 = Activations::kInt8;

const Run kRuns[] = {
    {.name = "short_context", .model = On(2), .session = Passes(600, 128)},
    {.name = "one_thread", .model = On(1), .session = Passes(2048, 256)},
    {.name = "two_threads", .model = On(2), .session = Passes(2048, 256)},
    {.name = "three_threads", .model = On(3), .session = Passes(2048, 256)},
    {.name = "four_threads", .model = On(4), .session = Passes(2048, 512)},
    {.name = "single_tokens", .model = On(2), .session = Passes(300, 1)},
    {.name = "few_tokens", .model = On(2), .session = Passes(600, 7)},
    {.name = "wide", .model = On(2), .session = Passes(2048, 1024)},
    {.name = "bf16",
     .model = On(2),
     .session = Passes(2048, 256, kFull, kBF16)},
    {.name = "int8",
     .model = On(2),
     .session = Passes(2048, 512, kFull, kInt8)},
    {.name = "skip", .model = On(2), .session = Passes(2048, 128, kSkip)},
    {.name = "replay", .model = On(2), .session = Passes(2048, 128, kReplay)},
    {.name = "copied", .model = On(2, "copy"), .session = Passes(1024, 256)},
    {.name = "without_engram", .model = On(2), .session = Without(false, true)},
    {.name = "without_rounding",
     .model = On(2),
     .session = Without(true, false)},
    {.name = "directory",
     .file = "m",
     .model = On(2),
     .session = Passes(2048, 256)},
    {.name = "directory_bf16",
     .file = "m",
     .model = On(3, "copy"),
     .session = Passes(2048, 512, kSkip, kBF16)},
    {.name = "batch",
     .model = On(2),
     .session = Passes(1024, 64, kSkip),
     .sequences = 12},
    {.name = "batch_of_more_than_a_chunk",
     .model = On(2),
     .session = Passes(256, 16, kFull, kBF16),
     .sequences = 40},
    {.name = "two_bits",
     .preset = "v41-narrow",
     .dtypes = "q2",
     .model = On(2),
     .session = Passes(1024, 256)},
    {.name = "two_bits_int8",
     .preset = "v41-narrow",
     .dtypes = "q2",
     .model = On(2),
     .session = Passes(1024, 256, kFull, kInt8)},
    {.name = "narrow",
     .preset = "v41-narrow",
     .file = "m",
     .model = On(2),
     .session = Passes(4096, 256)},
    {.name = "narrow_skip_bf16",
     .preset = "v41-narrow",
     .file = "m",
     .model = On(4),
     .session = Passes(4096, 512, kSkip, kBF16)},
};

INSTANTIATE_TEST_SUITE_P(All, MemoryHolds, ::testing::ValuesIn(kRuns),
                         [](const auto& run) {
                           return std::string(run.param.name);
                         });

// The reference keeps nothing from call to call.
TEST(MemoryHolds, TheReferenceHasNoScratch) {
  const TestDirectory folder;
  const std::string path = WriteModel(folder, {.name = "reference"});
  ModelOptions options = On(2);
  options.backend = "ref";
  const auto model = Model::Open(path, options);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ((*model)->PlanMemory({}).operators, 0u);
}

TEST(CheckFits, WhatIsTooLargeIsNamed) {
  EXPECT_TRUE(CheckFits("it would", 1, "x").ok());
  const Status status = CheckFits("caches would", uint64_t{1} << 60, "wait");
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(
      status.message().find("caches would need 1152921504606846976 bytes"),
      std::string::npos);
  EXPECT_NE(status.message().find("; wait"), std::string::npos);
}

}  // namespace
}  // namespace ecphory
