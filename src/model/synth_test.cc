#include "ecphory/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/thread_pool.h"
#include "ecphory/convert.h"
#include "engram/layout.h"
#include "io/test_directory.h"
#include "model/synth_plan.h"
#include "model/synth_released.h"
#include "model/test_models.h"

namespace ecphory {
namespace {

using Json = nlohmann::json;
using testing::ExpectHas;

class SynthTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) {
    return folder_.path() + "/" + name;
  }
  SynthModelOptions Mini(const std::string& name) {
    return {.preset = "mini", .engram_rows = 2000, .output = Path(name)};
  }
  TestDirectory folder_;
};

void Write(const SynthModelOptions& options) {
  const Result<SynthModelFacts> facts = SynthModel(options);
  ASSERT_TRUE(facts.ok()) << facts.status().ToString();
}

std::vector<int32_t> SomeTokens(uint32_t vocab, size_t count) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<int32_t>((7919 * i + 11) % vocab);
  }
  return tokens;
}

double Rms(const std::vector<float>& values) {
  double squares = 0;
  for (const float x : values) squares += double{x} * double{x};
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// Streams of RMS 1 to 1.7 at the end of every layer, logits of deviation 2, as
// synth_scale.h has it; the bounds leave room for the layers' own chance.
void ExpectOrdinarySizes(const std::shared_ptr<const Model>& model) {
  testing::Capture capture;
  testing::RunOptions options;
  options.observer = &capture;
  const auto tokens = SomeTokens(model->config().vocab_size, 150);
  const std::vector<float> logits = testing::RunLogits(model, tokens, options);
  for (uint32_t layer = 0; layer < model->config().n_layers; ++layer) {
    const std::string name = "L" + std::to_string(layer) + ".streams_out";
    const double rms = Rms(capture.tensors().at(name).f32);
    EXPECT_GT(rms, 0.7) << name;
    EXPECT_LT(rms, 2.0) << name;
  }
  EXPECT_GT(Rms(logits), 1.5);
  EXPECT_LT(Rms(logits), 2.6);
}

TEST_F(SynthTest, GgufOpensAndKeepsItsSize) {
  Write(Mini("m.gguf"));
  const auto model = testing::OpenOrDie(Path("m.gguf"), "cpu");
  EXPECT_EQ(model->info().tensors.size(), 226u);
  EXPECT_TRUE(model->info().unused.empty());
  ExpectOrdinarySizes(model);
}

TEST_F(SynthTest, DirectoryOpensKeepsItsSizeAndConverts) {
  Write(Mini("m"));
  const auto model = testing::OpenOrDie(Path("m"), "cpu");
  EXPECT_TRUE(model->info().unused.empty());
  ExpectOrdinarySizes(model);
  ASSERT_TRUE(Convert(Path("m"), Path("m.gguf"), {}).ok());
  // Conversion chooses the types that --dtypes released stands for.
  Write(Mini("direct.gguf"));
  const GgufFile converted = testing::ParseGgufOrDie(Path("m.gguf"));
  const GgufFile direct = testing::ParseGgufOrDie(Path("direct.gguf"));
  ASSERT_EQ(converted.index().tensors().size(),
            direct.index().tensors().size());
  for (const TensorInfo& tensor : direct.index().tensors()) {
    const TensorInfo* other = converted.index().Find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(DTypeName(other->dtype), std::string(DTypeName(tensor.dtype)))
        << tensor.name;
  }
}

// The release's 40 layers with all its sources, narrow.
std::string NarrowRelease() {
  const Result<SynthShape> shape =
      MakeSynthShape("v41-flash", {.experts = 16, .engram_rows = 2400});
  EXPECT_TRUE(shape.ok());
  Json config = Json::parse(shape->config);
  Json& text = config["text_config"];
  const std::pair<const char*, int> sizes[] = {
      {"vocab_size", 1000},
      {"hidden_size", 256},
      {"head_dim", 64},
      {"num_attention_heads", 8},
      {"q_lora_rank", 64},
      {"o_lora_rank", 32},
      {"moe_intermediate_size", 64},
      {"index_n_heads", 4},
      {"index_head_dim", 64},
      {"engram_n_heads", 8},
      {"engram_compressed_vocab_size", 900}};
  for (const auto& [key, value] : sizes) text[key] = value;
  config["image_token_id"] = 999;
  return config.dump();
}

TEST_F(SynthTest, FortyLayersKeepTheirSize) {
  const Result<ModelSource> source =
      MakeSynthSource({"narrow", NarrowRelease(), {}}, Path("narrow"));
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  const auto tensors = PlanSynthReleased(source->config);
  ThreadPool pool(2);
  SynthStream stream(3, &pool);
  ASSERT_TRUE(WriteSynthDirectory(*source, NarrowRelease(), tensors,
                                  Path("narrow"), {}, &stream)
                  .ok());
  const auto model = testing::OpenOrDie(Path("narrow"), "cpu");
  ASSERT_EQ(model->config().n_layers, 40u);
  ExpectOrdinarySizes(model);
}

TEST_F(SynthTest, BytesDoNotDependOnThreads) {
  SynthModelOptions one = Mini("1.gguf"), three = Mini("3.gguf");
  one.threads = 1;
  three.threads = 3;
  Write(one);
  Write(three);
  const std::string first = testing::ReadFileOrDie(Path("1.gguf"));
  EXPECT_EQ(first, testing::ReadFileOrDie(Path("3.gguf")));
  SynthModelOptions other = Mini("other.gguf");
  other.seed = 2;
  Write(other);
  EXPECT_NE(first, testing::ReadFileOrDie(Path("other.gguf")));
}

TEST_F(SynthTest, TokenizerEncodesEveryText) {
  for (const char* name : {"m.gguf", "m"}) {
    Write(Mini(name));
    const auto model = testing::OpenOrDie(Path(name), "cpu");
    ASSERT_NE(model->tokenizer(), nullptr);
    std::string text = "The memory, \xff\xfe 記憶 1234";
    for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
    const auto ids = model->tokenizer()->Encode(text);
    ASSERT_TRUE(ids.ok());
    EXPECT_LT(ids->size(), text.size());
    EXPECT_EQ(*model->tokenizer()->Decode(*ids), text);
  }
}

TEST_F(SynthTest, ExistingOutputsStay) {
  Write(Mini("m.gguf"));
  const std::string before = testing::ReadFileOrDie(Path("m.gguf"));
  SynthModelOptions again = Mini("m.gguf");
  again.seed = 5;
  ExpectHas(SynthModel(again).status().message(), "--overwrite");
  EXPECT_EQ(before, testing::ReadFileOrDie(Path("m.gguf")));
  again.overwrite = true;
  Write(again);
  EXPECT_NE(before, testing::ReadFileOrDie(Path("m.gguf")));
  Write(Mini("m"));
  SynthModelOptions directory = Mini("m");
  directory.overwrite = true;
  ExpectHas(SynthModel(directory).status().message(), "exists");
}

TEST_F(SynthTest, CancellingLeavesNothing) {
  for (const char* name : {"m.gguf", "m"}) {
    SynthModelOptions options = Mini(name);
    options.progress = [](uint64_t, uint64_t) { return false; };
    const Status status = SynthModel(options).status();
    EXPECT_EQ(status.code(), StatusCode::kCancelled);
    EXPECT_TRUE(status.message().starts_with(Path(name))) << status.message();
    EXPECT_EQ(status.message().find("partial"), std::string::npos)
        << status.message();
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(SynthTest, ProgressEndsAtTheWhole) {
  for (const char* name : {"m.gguf", "m"}) {
    SynthModelOptions options = Mini(name);
    uint64_t last = 0, all = 1;
    options.progress = [&](uint64_t done, uint64_t total) {
      EXPECT_GE(done, last);
      last = done;
      all = total;
      return true;
    };
    Write(options);
    EXPECT_EQ(last, all);
  }
}

TEST_F(SynthTest, V4IsRefusedByNameWhenRun) {
  const Result<SynthV4> shape = MakeSynthV4({.layers = 1, .experts = 6});
  ASSERT_TRUE(shape.ok());
  GgufWriter writer(16384);
  ASSERT_TRUE(AddSynthV4Keys(*shape, *ParseSynthTypes("q2"), &writer).ok());
  ASSERT_TRUE(writer.WriteTo(Path("v4.gguf"), {}).ok());
  const auto opened = Model::Open(Path("v4.gguf"), {});
  ASSERT_FALSE(opened.ok());
  ExpectHas(opened.status().message(), "DeepSeek V4");
  const GgufFile file = testing::ParseGgufOrDie(Path("v4.gguf"));
  EXPECT_EQ(*file.GetUint("deepseek4.hash_layer_count"), 1u);
  EXPECT_EQ(*file.GetUint("deepseek4.block_count"), 1u);
}

}  // namespace
}  // namespace ecphory
