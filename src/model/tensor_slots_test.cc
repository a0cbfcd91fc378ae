#include "model/tensor_slots.h"

#include <gtest/gtest.h>

#include <set>

#include "model/names.h"
#include "model/test_models.h"

namespace ecphory {
namespace {

TEST(TensorSlots, ReleasedModelHas1046Tensors) {
  Weights weights;
  const auto slots = MakeTensorSlots(testing::ReleasedConfig(), &weights);
  const size_t tables = 2;
  EXPECT_EQ(slots.size() + tables, 1046u);
}

TEST(TensorSlots, ReleasedModelHas552BillionParameters) {
  Weights weights;
  double values = 0;
  for (const auto& slot :
       MakeTensorSlots(testing::ReleasedConfig(), &weights)) {
    values += static_cast<double>(slot.ValueCount());
  }
  EXPECT_NEAR(values, 552e9, 1e9);
}

TEST(TensorSlots, EveryNameIsUniqueAndHasAGgufName) {
  Weights weights;
  std::set<std::string> names, gguf_names;
  for (const auto& slot :
       MakeTensorSlots(testing::ReleasedConfig(), &weights)) {
    EXPECT_TRUE(names.insert(slot.name).second) << slot.name;
    const std::string gguf = GgufTensorName(slot.name);
    EXPECT_NE(gguf, "") << slot.name;
    EXPECT_TRUE(gguf_names.insert(gguf).second) << gguf;
  }
}

TEST(TensorSlots, EachHasOnePlaceOfItsKind) {
  Weights weights;
  for (const auto& slot :
       MakeTensorSlots(testing::ReleasedConfig(), &weights)) {
    const bool vector = slot.role == TensorRole::kVector;
    const bool experts = slot.role == TensorRole::kExperts;
    EXPECT_EQ(slot.vector != nullptr, vector) << slot.name;
    EXPECT_EQ(slot.experts != nullptr, experts) << slot.name;
    EXPECT_EQ(slot.expert_part != nullptr, experts) << slot.name;
    EXPECT_EQ(slot.matrix != nullptr, !vector && !experts) << slot.name;
  }
}

TEST(TensorSlots, ClaimedSizesAllocateNothing) {
  Weights weights;
  MakeTensorSlots(testing::ReleasedConfig(), &weights);
  EXPECT_EQ(weights.layers.size(), 40u);
  EXPECT_TRUE(weights.layers[0].moe.experts.empty());
  EXPECT_TRUE(weights.layers[0].attn_norm.empty());
}

TEST(TensorSlots, ExpertNames) {
  TensorSlot slot;
  slot.name = "layers.3.ffn.experts.w1";
  EXPECT_EQ(slot.ExpertName(17), "layers.3.ffn.experts.17.w1");
}

}  // namespace
}  // namespace ecphory
