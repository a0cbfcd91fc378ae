#include "model/compute_threads.h"

#include <gtest/gtest.h>

#include <string>

#include "ecphory/session.h"
#include "model/test_models.h"

namespace ecphory {
namespace {

using testing::ExpectHas;

ModelOptions With(uint32_t threads, const std::string& affinity) {
  ModelOptions options;
  options.threads = threads;
  options.cpu_affinity = affinity;
  return options;
}

std::string ErrorOf(uint32_t threads, const std::string& affinity) {
  const auto chosen = ChooseThreads(With(threads, affinity));
  return chosen.ok() ? "chosen" : chosen.status().message();
}

TEST(ComputeThreads, AreTheProcessorsUnlessTold) {
  const std::vector<int> allowed = AllowedProcessors();
  const auto none = ChooseThreads({});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->count, allowed.size());
  EXPECT_TRUE(none->processors.empty());
  const auto all = ChooseThreads(With(0, "auto"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->count, allowed.size());
  EXPECT_EQ(all->processors.size(), allowed.size());
  const auto one = ChooseThreads(With(0, std::to_string(allowed.back())));
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->count, 1u);
  EXPECT_EQ(one->processors, std::vector<int>{allowed.back()});
  const auto fewer = ChooseThreads(With(1, "auto"));
  ASSERT_TRUE(fewer.ok());
  EXPECT_EQ(fewer->processors.size(), 1u);
}

TEST(ComputeThreads, WhatCannotBeIsNamed) {
  ExpectHas(ErrorOf(0, ""), "--cpu-affinity ''");
  ExpectHas(ErrorOf(0, "x"), "--cpu-affinity 'x': 'x', expected processors");
  ExpectHas(ErrorOf(0, "3-1"), "'3-1' runs backwards");
  ExpectHas(ErrorOf(0, "999999"), "--cpu-affinity '999999'");
  const std::string first = std::to_string(AllowedProcessors().front());
  ExpectHas(ErrorOf(2, first),
            "--threads 2: --cpu-affinity " + first + " names 1 processor");
  ExpectHas(ErrorOf(1025, "none"), "threads = 1025");
}

// The caller's thread runs where it could before, and computes the same.
TEST(ComputeThreads, BindTheCallerOnlyMeanwhile) {
  const std::vector<int> allowed = AllowedProcessors();
  const std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6};
  std::vector<float> logits;
  for (const char* affinity : {"none", "auto"}) {
    const auto model = Model::Open(testing::GoldenDir("A"), With(0, affinity));
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    EXPECT_EQ(AllowedProcessors(), allowed);
    const auto session = Session::Create(*model, {});
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    std::vector<int> meanwhile;
    AppendOptions append;
    append.on_progress = [&](size_t) { meanwhile = AllowedProcessors(); };
    ASSERT_TRUE((*session)->Append(tokens, append).ok());
    EXPECT_EQ(AllowedProcessors(), allowed);
    const bool bound = std::string(affinity) == "auto";
    EXPECT_EQ(meanwhile.size(), bound ? 1 : allowed.size());
    const std::span<const float> last = (*session)->logits();
    if (bound) {
      EXPECT_EQ(std::vector<float>(last.begin(), last.end()), logits);
    }
    logits.assign(last.begin(), last.end());
  }
}

}  // namespace
}  // namespace ecphory
