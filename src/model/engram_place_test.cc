// Engram tables on disk and whole in memory, on each device: the same rows, the
// same bits, and errors that say what cannot be.
#include "model/engram_place.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ecphory/convert.h"
#include "ecphory/device_plan.h"
#include "ecphory/session.h"
#include "io/test_directory.h"
#include "model/memory_plan.h"
#include "model/model_impl.h"
#include "model/prefill_testing.h"
#include "model/test_models.h"
#include "model/testing.h"

namespace ecphory {
namespace {

using testing::GoldenDir;
using testing::prefill::Logits;
using testing::prefill::Tokens;
using Ids = std::span<const int32_t>;

class EngramPlaceTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string reason = testing::Unavailable(GetParam());
    if (!reason.empty()) GTEST_SKIP() << reason;
    on_host_ = OpenDevice(GetParam()).value()->is_host();
  }

  ModelOptions Options(const std::string& place) const {
    ModelOptions options;
    options.threads = 2;
    options.backend = GetParam();
    options.engram_place = place;
    return options;
  }
  Result<std::shared_ptr<const Model>> Open(const std::string& path,
                                            const std::string& place) const {
    return Model::Open(path, Options(place));
  }
  // Those that are there.
  std::vector<std::string> Places() const {
    if (on_host_) return {"disk", "host"};
    return {"disk", "host", "gpu"};
  }
  static std::unique_ptr<Session> Start(std::shared_ptr<const Model> model,
                                        SessionOptions options = {}) {
    options.context = 512;
    options.chunk = 150;
    return Session::Create(std::move(model), options).value();
  }
  // Logits of every token of a prompt, then of one token at a time.
  static std::vector<float> AllLogits(const std::shared_ptr<const Model>& model,
                                      Ids prompt, Ids steps,
                                      const SessionOptions& options) {
    auto session = Start(model, options);
    std::vector<float> all;
    AppendOptions append;
    append.logits = LogitsWanted::kAll;
    append.on_logits = [&](size_t, size_t, std::span<const float> logits) {
      all.insert(all.end(), logits.begin(), logits.end());
      return Status();
    };
    EXPECT_TRUE(session->Append(prompt, append).ok());
    for (const int32_t& token : steps) {
      session->Prefetch({&token, 1});
      EXPECT_TRUE(session->Append({&token, 1}, {}).ok());
      const std::vector<float> logits = Logits(*session);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    EXPECT_EQ(session->stats().replayed_steps > 8,
              !model->impl().device->is_host());
    return all;
  }

  bool on_host_ = true;
};

TEST_P(EngramPlaceTest, EveryPlaceGivesTheSameBits) {
  const auto prompt = Tokens(200, 50), steps = Tokens(16, 51);
  for (const Activations activations :
       {Activations::kF32, Activations::kBF16}) {
    SessionOptions options;
    options.activations = activations;
    std::vector<float> want;
    for (const std::string& place : Places()) {
      const auto model = Open(GoldenDir("A"), place);
      ASSERT_TRUE(model.ok()) << model.status().ToString();
      EXPECT_EQ((*model)->engram_io().place, place);
      EXPECT_FALSE((*model)->engram_io().reason.empty());
      EXPECT_EQ((*model)->engram_io().mode.empty(), place != "disk");
      const auto got = AllLogits(*model, prompt, steps, options);
      if (want.empty()) want = got;
      EXPECT_EQ(got, want) << place;
    }
  }
}

// Rows of the released layout lie in two tensors; of a GGUF file in one.
TEST_P(EngramPlaceTest, EveryPlaceGivesTheSameBitsOfAGguf) {
  const auto prompt = Tokens(60, 52), steps = Tokens(16, 53);
  const TestDirectory folder;
  const std::string path = folder / "a.gguf";
  ASSERT_TRUE(Convert(GoldenDir("A"), path, {}).ok());
  std::vector<float> want;
  for (const std::string& place : Places()) {
    const auto model = Open(path, place);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    const auto got = AllLogits(*model, prompt, steps, {});
    if (want.empty()) want = got;
    EXPECT_EQ(got, want) << place;
  }
}

TEST_P(EngramPlaceTest, ABrokenRowIsNamed) {
  const auto tokens = Tokens(100, 40);
  const auto intact = testing::OpenOrDie(GoldenDir("A"), GetParam());
  const uint64_t row = (*intact->EngramRows(tokens, {}))[69].back().rows.back();
  const std::string table =
      "layers." + std::to_string(intact->config().engram.layer_ids.back()) +
      ".engram.embed.weight";
  testing::ModelDir files;
  testing::TestTensor& tensor = files.At(table);
  tensor.bytes[row * tensor.shape[1] + 5] = '\x7f';
  const std::string path = files.Write();
  for (const std::string& place : Places()) {
    const auto model = Open(path, place);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    auto session = Start(*model);
    ASSERT_TRUE(session->Append(Ids(tokens).first(69), {}).ok());
    for (int i = 0; i < 2; ++i) {
      const Status status = session->Append(Ids(tokens).subspan(69, 1), {});
      EXPECT_EQ(status.code(), StatusCode::kCorrupt) << place;
      testing::ExpectHas(status.message(), table);
      testing::ExpectHas(status.message(), "row " + std::to_string(row));
      EXPECT_EQ(session->position(), 69u);
    }
    EXPECT_TRUE(session->Append(Tokens(9, 54), {}).ok());
  }
}

TEST_P(EngramPlaceTest, LoadingIsSeenAndStopped) {
  for (const std::string& place : Places()) {
    if (place == "disk" || on_host_) continue;
    const uint64_t bytes =
        (*Open(GoldenDir("A"), place))->impl().planned.engram_table_bytes;
    ModelOptions options = Options(place);
    std::vector<uint64_t> totals;
    options.on_load = [&](uint64_t done, uint64_t total) {
      totals.push_back(total);
      EXPECT_LE(done, total);
      return true;
    };
    ASSERT_TRUE(Model::Open(GoldenDir("A"), options).ok());
    ASSERT_FALSE(totals.empty());
    EXPECT_EQ(totals.front(), bytes);
    options.on_load = [](uint64_t, uint64_t) { return false; };
    EXPECT_EQ(Model::Open(GoldenDir("A"), options).status().code(),
              StatusCode::kCancelled);
  }
}

TEST_P(EngramPlaceTest, PlansCountTheTables) {
  const std::string path = GoldenDir("A");
  for (const std::string& place : Places()) {
    const auto info = InspectModel(path, 0, 0, Options(place));
    ASSERT_TRUE(info.ok()) << info.status().ToString();
    uint64_t bytes = 0;
    for (const auto& table : info->engram_tables) bytes += table.bytes;
    EXPECT_EQ(info->memory.engram_tables, place == "host" ? bytes : 0) << place;
    if (on_host_) continue;
    const auto plan = PlanDevice(path, 0, 0, Options(place));
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_EQ(plan->engram_tables, place == "gpu" ? bytes : 0) << place;
  }
}

TEST_P(EngramPlaceTest, WhatCannotBeIsRefused) {
  const auto refused = [&](ModelOptions options, const char* text) {
    const Status status = Model::Open(GoldenDir("A"), options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    testing::ExpectHas(status.message(), text);
    EXPECT_EQ(InspectModel(GoldenDir("A"), 0, 0, options).status().message(),
              status.message());
  };
  refused(Options("tape"), "expected disk, host or gpu");
  if (on_host_)
    refused(Options("gpu"), "computes in the memory of the process");
  ModelOptions options = Options("disk");
  options.engram_io = "ram";
  refused(options, "engram_place = host");
  options = Options("host");
  options.engram_io = "pread";
  refused(options, "nothing is read from disk");
  options = Options("host");
  options.engram_cache_bytes = 5;
  refused(options, "cache of 5 bytes");
}

TEST_P(EngramPlaceTest, BytesThatDoNotFitAreNamed) {
  if (on_host_) GTEST_SKIP() << "the system's memory, memory_plan_test.cc";
  const auto device = OpenDevice(GetParam()).value();
  EXPECT_TRUE(CheckFits("tables", 1000, *device, "leave them").ok());
  const Status status =
      CheckFits("tables", uint64_t{1} << 50, *device, "leave them");
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  testing::ExpectHas(status.message(), "tables need 1125899906842624 bytes");
  testing::ExpectHas(status.message(), "are free; leave them");
}

INSTANTIATE_TEST_SUITE_P(Devices, EngramPlaceTest,
                         ::testing::ValuesIn(testing::Backends()),
                         [](const auto& device) {
                           return std::string(device.param);
                         });

}  // namespace
}  // namespace ecphory
