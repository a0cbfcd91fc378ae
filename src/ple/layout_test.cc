#include "ple/layout.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "ple/testing.h"

namespace ecphory::ple {
namespace {

TEST(PleLayout, ReleasedConstants) {
  const auto layout = DeriveLayout({});
  ASSERT_TRUE(layout.ok()) << layout.status().ToString();
  EXPECT_EQ(
      layout->multipliers,
      (std::vector<uint64_t>{23703573157769, 20109073645365, 8052911324071}));
  EXPECT_EQ(layout->sizes,
            (std::vector<uint64_t>{20000003, 20000023, 20000033, 20000047,
                                   20000059, 20000063, 20000069, 20000077,
                                   20000081, 20000093, 20000107, 20000147,
                                   20000153, 20000159, 20000161, 20000171}));
  EXPECT_EQ(layout->offsets[0], 0u);
  EXPECT_EQ(layout->offsets[1], 20000003u);
  EXPECT_EQ(layout->offsets[2], 40000026u);
  EXPECT_EQ(layout->offsets[15], 300001275u);
  EXPECT_EQ(layout->rows(), 320001446u);
  EXPECT_EQ(layout->padded_rows(), 320001536u);
  EXPECT_EQ(layout->heads(), 16u);
  EXPECT_EQ(layout->width, 160u);
}

// A second module goes on where the first one's primes end.
TEST(PleLayout, ModulesShareNoPrime) {
  LayoutSpec spec = SmallSpec();
  const Layout first = *DeriveLayout(spec);
  spec.module_index = 1;
  const Layout second = *DeriveLayout(spec);
  EXPECT_EQ(first.sizes, (std::vector<uint64_t>{97, 101, 103, 107}));
  EXPECT_EQ(second.sizes, (std::vector<uint64_t>{109, 113, 127, 131}));
  EXPECT_NE(first.multipliers, second.multipliers);
}

TEST(PleLayout, LargestVocabIsTheLast) {
  for (const uint64_t m : {uint64_t{23703573157769}, uint64_t{3},
                           (uint64_t{1} << 62) + 1, (uint64_t{1} << 63) - 1}) {
    const uint64_t vocab = LargestVocab({1, m});
    EXPECT_LE(static_cast<unsigned __int128>(vocab - 1) * m, INT64_MAX);
    if (vocab < INT32_MAX) {
      EXPECT_GT(static_cast<unsigned __int128>(vocab) * m, INT64_MAX);
    }
  }
  EXPECT_EQ(LargestVocab({1}), static_cast<uint32_t>(INT32_MAX));
}

// Each refusal has words of its own.
struct Refusal {
  const char* says;
  StatusCode code;
  std::function<void(Layout*)> damage;
};

TEST(PleLayout, RefusesWhatTheHashCannotRelyOn) {
  const Refusal refusals[] = {
      {"ngram_size is 1", StatusCode::kUnsupported,
       [](Layout* l) { l->ngram_size = 1; }},
      {"ngram_size is 9", StatusCode::kUnsupported,
       [](Layout* l) { l->ngram_size = 9; }},
      {"0 heads", StatusCode::kUnsupported,
       [](Layout* l) { l->heads_per_ngram = 0; }},
      {"4294967295 heads", StatusCode::kUnsupported,
       [](Layout* l) { l->heads_per_ngram = UINT32_MAX; }},
      {"rows of 48 values", StatusCode::kUnsupported,
       [](Layout* l) { l->width = 48; }},
      {"rows of 0 values", StatusCode::kUnsupported,
       [](Layout* l) { l->width = 0; }},
      {"layer_multipliers has 2", StatusCode::kCorrupt,
       [](Layout* l) { l->multipliers.pop_back(); }},
      {"layer_multipliers has 4", StatusCode::kCorrupt,
       [](Layout* l) { l->multipliers.push_back(1); }},
      {"head_vocab_sizes has 3", StatusCode::kCorrupt,
       [](Layout* l) { l->sizes.pop_back(); }},
      {"head_offsets has 3", StatusCode::kCorrupt,
       [](Layout* l) { l->offsets.pop_back(); }},
      {"is even", StatusCode::kCorrupt,
       [](Layout* l) { l->multipliers[1] = 4; }},
      {"pass 2^63", StatusCode::kCorrupt,
       [](Layout* l) { l->multipliers[2] = (uint64_t{1} << 62) + 1; }},
      {"no tokens", StatusCode::kCorrupt, [](Layout* l) { l->vocab_size = 0; }},
      {"head 0 has 0 rows", StatusCode::kCorrupt,
       [](Layout* l) { l->sizes[0] = 0; }},
      {"up to 2^31 - 1", StatusCode::kUnsupported,
       [](Layout* l) { l->sizes[3] = INT32_MAX; }},
      {"up to 2^31 - 1", StatusCode::kUnsupported,
       [](Layout* l) { l->offsets[3] = UINT64_MAX; }},
      {"head 2 begins at row 5", StatusCode::kCorrupt,
       [](Layout* l) { l->offsets[2] = 5; }},
      {"EOS id is 100", StatusCode::kCorrupt,
       [](Layout* l) { l->eos_id = 100; }},
      {"EOS id is -1", StatusCode::kCorrupt, [](Layout* l) { l->eos_id = -1; }},
      {"image token id is 200", StatusCode::kCorrupt,
       [](Layout* l) { l->image_id = 200; }},
  };
  ASSERT_TRUE(CheckLayout(SmallLayout()).ok());
  for (const Refusal& refusal : refusals) {
    Layout layout = SmallLayout();
    refusal.damage(&layout);
    const Status status = CheckLayout(layout);
    EXPECT_EQ(status.code(), refusal.code) << status.ToString();
    EXPECT_NE(status.message().find(refusal.says), std::string::npos)
        << status.ToString() << ", expected: " << refusal.says;
  }
}

TEST(PleLayout, RefusesSpecs) {
  const auto says = [](const std::function<void(LayoutSpec*)>& damage) {
    LayoutSpec spec = SmallSpec();
    damage(&spec);
    return DeriveLayout(spec).status().message();
  };
  EXPECT_NE(says([](LayoutSpec* s) {
              s->embed_dim = 130;
            }).find("ple_embed_dim is 130"),
            std::string::npos);
  EXPECT_NE(says([](LayoutSpec* s) {
              s->eos_id.reset();
            }).find("eos_token_id is missing"),
            std::string::npos);
  EXPECT_NE(
      says([](LayoutSpec* s) { s->vocab_size = 0; }).find("vocab_size is 0"),
      std::string::npos);
  EXPECT_NE(says([](LayoutSpec* s) {
              s->vocab_size_base = INT32_MAX;
            }).find("pass 2^31 - 1"),
            std::string::npos);
  EXPECT_NE(
      says([](LayoutSpec* s) { s->module_index = 1000; }).find("module 1000"),
      std::string::npos);
  EXPECT_NE(says([](LayoutSpec* s) { s->heads_per_ngram = 0; }).find("0 heads"),
            std::string::npos);
}

TEST(PleLayout, RefusesPlacements) {
  const Placement good{{1}, {true, true, true, false}, 4};
  EXPECT_TRUE(CheckPlacement(good).ok());
  Placement bad = good;
  bad.layers = {1, 2};
  EXPECT_NE(CheckPlacement(bad).message().find("2 layers"), std::string::npos);
  bad.layers = {};
  EXPECT_NE(CheckPlacement(bad).message().find("0 layers"), std::string::npos);
  bad.layers = {4};
  EXPECT_NE(CheckPlacement(bad).message().find("has 4 layers"),
            std::string::npos);
  bad.layers = {3};
  EXPECT_NE(CheckPlacement(bad).message().find("full attention"),
            std::string::npos);
  bad = good;
  bad.streams = 1;
  EXPECT_NE(CheckPlacement(bad).message().find("count is 1"),
            std::string::npos);
}

}  // namespace
}  // namespace ecphory::ple
