// A small model measured from end to end.
#include "measure/model_run.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

namespace ecphory::measure {
namespace {

BenchOptions Options() {
  BenchOptions options;
  options.model = ECPHORY_TEST_DATA "/golden/v41/A";
  options.model_options.threads = 2;
  options.seconds = 0.005f;
  options.contexts = {{0, 50}};
  options.prompt = 64;
  return options;
}

Result<BenchModel> Measure(
    const BenchOptions& options,
    const std::function<Status(const std::string&)>& step) {
  Yardsticks yardsticks({.sample = {options.seconds, options.rounds},
                         .bytes = 4 << 20,
                         .pages = options.pages,
                         .sgemm = nullptr});
  return MeasureModel(options, yardsticks, step);
}

void CheckPass(const BenchPass& pass) {
  EXPECT_TRUE(pass.figure.bound == "read" || pass.figure.bound == "fma");
  EXPECT_GT(pass.figure.bound_seconds, 0);
  EXPECT_GT(pass.figure.share.rounds, 0u);
  EXPECT_LE(pass.figure.share.rounds, pass.figure.seconds.rounds);
  EXPECT_GT(pass.figure.seconds.median, 0);
  EXPECT_GT(pass.figure.bytes, 0);
  EXPECT_GT(pass.figure.flops, 0);
  double share = 0;
  for (size_t i = 0; i < pass.parts.size(); ++i) {
    share += pass.parts[i].share;
    EXPECT_LE(pass.parts[i].seconds, pass.parts[0].seconds);
  }
  EXPECT_NEAR(share, 1, 1e-3);
  EXPECT_GT(pass.parts.size(), 8u);
}

TEST(ModelRun, PromptAndSteps) {
  const BenchOptions options = Options();
  std::vector<std::string> steps;
  const auto model = Measure(options, [&](const std::string& what) {
    steps.push_back(what);
    return Status();
  });
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(steps.size(), ModelSteps(options));
  EXPECT_EQ(model->prompt, 64u);
  EXPECT_GT(model->first_token_seconds, model->open_seconds);
  EXPECT_EQ(model->prefill.tokens, 64u);
  CheckPass(model->prefill);
  ASSERT_EQ(model->decode.size(), 2u);
  for (const BenchPass& pass : model->decode) CheckPass(pass);
  EXPECT_EQ(model->decode[1].figure.name, "decode/50");
  // More rows of the caches are read after 50 tokens than after none.
  EXPECT_GT(model->decode[1].figure.bytes, model->decode[0].figure.bytes);
}

// Golden model A holds 1,024 tokens, of which 12 are steps.
TEST(ModelRun, ContextsAreAtMostTheModels) {
  BenchOptions options = Options();
  options.contexts = {{5, 1013}};
  size_t calls = 0;
  options.progress = [&](const std::string&, uint64_t, uint64_t) {
    return ++calls == 0;
  };
  const auto report = RunBench(options);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(
      report.status().message(),
      "context of 1013 tokens and 12 steps behind it: the model's maximum "
      "is 1024");
  EXPECT_EQ(calls, 0u);
  options.contexts.reset();
  std::string last;
  const auto model = Measure(options, [&](const std::string& what) {
    last = what;
    return what == "prefill" || what == "opening the model"
               ? Status()
               : Cancelled("enough");
  });
  EXPECT_EQ(last, "decode/1012");
}

TEST(ModelRun, PromptsAreAtMostTheModels) {
  BenchOptions options = Options();
  options.prompt = 1025;
  const auto nothing = [](const std::string&) { return Status(); };
  const auto model = Measure(options, nothing);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(model.status().message(),
            "prompt of 1025 tokens: the model's maximum is 1024");
}

TEST(ModelRun, StopsWhenToldTo) {
  const auto model =
      Measure(Options(), [](const std::string&) { return Cancelled("stop"); });
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), StatusCode::kCancelled);
}

TEST(ModelRun, AMissingModelIsNamed) {
  BenchOptions options = Options();
  options.model = "nosuch.gguf";
  const auto model =
      Measure(options, [](const std::string&) { return Status(); });
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.status().message().find("nosuch.gguf"), std::string::npos);
}

// Not after minutes of operators.
TEST(ModelRun, AModelThatCannotBeOpenedIsRefusedBeforeAnythingIsMeasured) {
  BenchOptions options = Options();
  options.ops = true;
  for (const char* model : {"nosuch.gguf", ECPHORY_TEST_DATA "/golden"}) {
    options.model = model;
    size_t calls = 0;
    options.progress = [&](const std::string&, uint64_t, uint64_t) {
      ++calls;
      return false;
    };
    const auto report = RunBench(options);
    ASSERT_FALSE(report.ok());
    EXPECT_NE(report.status().message().find(model), std::string::npos)
        << report.status().ToString();
    EXPECT_EQ(calls, 0u);
  }
}

TEST(ModelRun, SaysWhichActivations) {
  for (const auto& [activations, name] : {std::pair{Activations::kF32, "f32"},
                                          {Activations::kBF16, "bf16"},
                                          {Activations::kInt8, "int8"}}) {
    BenchOptions options = Options();
    options.contexts.emplace();
    options.session.activations = activations;
    const auto model =
        Measure(options, [](const std::string&) { return Status(); });
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    EXPECT_EQ(model->activations, name);
  }
}

}  // namespace
}  // namespace ecphory::measure
