// The engine against the trainer's own forward pass: a second implementation,
// written from the specification in another language, with other shapes than
// the golden models (tests/data/trainer/README.md).
#include <gtest/gtest.h>

#include "format/npy.h"
#include "model/testing.h"

namespace ecphory {
namespace {

std::string Path(const std::string& name) {
  return std::string(ECPHORY_TEST_DATA) + "/data/trainer/" + name;
}

NpyArray Load(const std::string& name) {
  auto array = ReadNpy(Path(name), 16 << 20);
  EXPECT_TRUE(array.ok()) << array.status().ToString();
  return array.ok() ? *array : NpyArray{};
}

std::vector<int32_t> Ids(const std::string& name) {
  const auto values = Load(name).AsInt64();
  EXPECT_TRUE(values.ok());
  return {values->begin(), values->end()};
}

class TrainerTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { model_ = testing::OpenOrDie(Path(""), GetParam()); }

  double Error(const std::string& tokens, const std::string& logits,
               const testing::RunOptions& options) {
    const auto want = Load(logits).AsFloat();
    EXPECT_TRUE(want.ok());
    const auto got = testing::RunLogits(model_, Ids(tokens), options);
    EXPECT_EQ(got.size(), want->size());
    return testing::MaxOf(
        testing::RowErrors(got, *want, model_->config().vocab_size));
  }

  std::shared_ptr<const Model> model_;
};

TEST_P(TrainerTest, Logits) {
  EXPECT_LE(Error("tokens.npy", "logits.npy", {}), 1e-3);
}

TEST_P(TrainerTest, WithoutStateRounding) {
  testing::RunOptions options;
  options.session.state_rounding = false;
  EXPECT_LE(Error("tokens.npy", "logits_no_state_rounding.npy", options), 1e-3);
}

TEST_P(TrainerTest, WithShutGates) {
  testing::RunOptions options;
  options.session.engram = false;
  EXPECT_LE(Error("tokens.npy", "logits_no_engram.npy", options), 1e-3);
}

TEST_P(TrainerTest, WithAnImageSpan) {
  testing::RunOptions options;
  const auto mask = Load("image_mask.npy").AsInt64();
  ASSERT_TRUE(mask.ok());
  options.image_mask.assign(mask->begin(), mask->end());
  EXPECT_LE(Error("tokens_image.npy", "logits_image.npy", options), 1e-3);
}

TEST_P(TrainerTest, ChunksChangeNothing) {
  const std::vector<int32_t> tokens = Ids("tokens.npy");
  const auto whole = testing::RunLogits(model_, tokens, {});
  for (uint32_t chunk : {1u, 4u, 7u}) {
    testing::RunOptions options;
    options.session.chunk = chunk;
    EXPECT_EQ(testing::RunLogits(model_, tokens, options), whole) << chunk;
  }
}

TEST_P(TrainerTest, EngramRows) {
  const auto want = Load("engram_rows.npy").AsInt64();
  ASSERT_TRUE(want.ok());
  const auto rows = model_->EngramRows(Ids("tokens.npy"), {});
  ASSERT_TRUE(rows.ok()) << rows.status().ToString();
  std::vector<int64_t> flat;
  for (const auto& token : *rows) {
    for (const auto& layer : token) {
      flat.insert(flat.end(), layer.rows.begin(), layer.rows.end());
    }
  }
  EXPECT_EQ(flat, *want);
  const std::vector<uint8_t> too_short(3);
  EXPECT_EQ(model_->EngramRows(Ids("tokens.npy"), too_short).status().code(),
            StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Backends, TrainerTest, ::testing::Values("ref", "cpu"),
                         [](const auto& param_info) {
                           return param_info.param;
                         });

}  // namespace
}  // namespace ecphory
