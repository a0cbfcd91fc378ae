#include "model/names.h"

#include <gtest/gtest.h>

namespace ecphory {
namespace {

TEST(Names, GgufNames) {
  EXPECT_EQ(GgufTensorName("embed"), "token_embd.weight");
  EXPECT_EQ(GgufTensorName("head"), "output.weight");
  EXPECT_EQ(GgufTensorName("layers.3.attn.wq_a"), "blk.3.attn_q_a.weight");
  EXPECT_EQ(GgufTensorName("layers.12.attn.indexer.wq_b"),
            "blk.12.indexer.attn_q_b.weight");
  EXPECT_EQ(GgufTensorName("layers.0.ffn.gate.bias"), "blk.0.exp_probs_b.bias");
  EXPECT_EQ(GgufTensorName("layers.0.ffn.experts.w2"),
            "blk.0.ffn_down_exps.weight");
  EXPECT_EQ(GgufTensorName("layers.1.engram.embed"),
            "blk.1.engram_embd.weight");
}

TEST(Names, WhatGgufDoesNotHave) {
  EXPECT_EQ(GgufTensorName("layers.1.engram.embed.scale"), "");
  EXPECT_EQ(GgufTensorName("layers.0.ffn.experts.0.w1"), "");
  EXPECT_EQ(GgufTensorName("mtp.0.norm"), "");
}

TEST(Names, LayersAreSplitOff) {
  const auto name = SplitLayerName("layers.17.attn.wkv");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->layer, 17u);
  EXPECT_EQ(name->suffix, "attn.wkv");
  EXPECT_EQ(SplitLayerName("blk.2.attn_kv.weight")->suffix, "attn_kv.weight");
  EXPECT_EQ(LayerTensor(17, "attn.wkv"), "layers.17.attn.wkv");
}

TEST(Names, NamesThatAreNoLayers) {
  for (const char* name :
       {"", "layers", "layers.", "layers.x.y", "layers.3", "layers.-1.y",
        "layers.99999999999.y", "mtp.0.y", "layers..y"}) {
    EXPECT_FALSE(SplitLayerName(name)) << name;
  }
}

}  // namespace
}  // namespace ecphory
