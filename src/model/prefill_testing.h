// Models and helpers of the tests of prompts that skip layers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "ecphory/session.h"
#include "model/prefill.h"

namespace ecphory::testing::prefill {

// Random ids below 500, which every model of these has.
std::vector<int32_t> Tokens(size_t count, uint32_t seed);
std::vector<float> Logits(const Session& session);
std::vector<uint8_t> SnapshotOf(const Session& session);
SessionOptions WithChunk(uint32_t chunk);
std::unique_ptr<Session> Start(const std::shared_ptr<const Model>& model,
                               Prefill prefill, SessionOptions options = {});
// Appends until `stop` tokens are done, or more, and cancels.
Status AppendUntil(size_t stop, std::span<const int32_t> tokens,
                   Session& session);

// A golden model with another config.
struct TestModel {
  const char* name;
  const char* golden;
  void (*change)(nlohmann::json& text);
};
// Golden A, B and C with 1, 2 and 1 layers after the last KV source.
extern const TestModel kA, kB, kC;
// Golden A whose only KV source is layer 2: three layers after it, Engram, an
// index and a candidate source among them.
extern const TestModel kDeep;
// These, and windows and sources of other kinds.
std::vector<TestModel> AllModels();
std::shared_ptr<const Model> Open(const TestModel& model,
                                  const char* backend = "cpu");

// Runs with each of AllModels().
class PrefillTest : public ::testing::TestWithParam<TestModel> {
 protected:
  const ModelConfig& config() const { return model_->config(); }
  // Tokens of which some are skipped, with any chunk below 80.
  size_t Long() const { return DecoderHalo(config()) + 80; }
  // Position, logits, steps back and snapshot.
  static void ExpectSame(Session& got, Session& want);
  // Decodes the tokens one by one in both.
  static void ExpectSameDecoding(Session& got, Session& want,
                                 std::span<const int32_t> tokens);

  const std::shared_ptr<const Model> model_ = Open(GetParam());
};

}  // namespace ecphory::testing::prefill
