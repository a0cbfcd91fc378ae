#include "engram/layout.h"

#include <gtest/gtest.h>

#include <string>

#include "engram/testing.h"

namespace ecphory::engram {
namespace {

using nlohmann::json;

LayoutSpec ReleasedSpec() {
  LayoutSpec spec;
  spec.layer_ids = {1, 14};
  spec.max_ngram = 4;
  spec.heads = 8;
  spec.vocab_size = 16'000'000;
  spec.compressed_vocab_size = 99'092;
  return spec;
}

LayoutSpec SmallSpec() {
  LayoutSpec spec;
  spec.layer_ids = {1, 3};
  spec.max_ngram = 3;
  spec.heads = 2;
  spec.vocab_size = 500;
  spec.compressed_vocab_size = 394;
  return spec;
}

// Numbers of SmallSpec() as a file would store them.
struct Numbers {
  std::vector<uint64_t> primes = {503, 509, 521, 523, 541, 547, 557, 563};
  std::vector<uint64_t> multipliers = {3, 5, 7, 9, 11, 13};
};

void ExpectEqual(const Layout& layout, const json& golden) {
  std::vector<uint64_t> primes, offsets, rows, multipliers;
  for (const LayerLayout& layer : layout.layers) {
    primes.insert(primes.end(), layer.primes.begin(), layer.primes.end());
    offsets.insert(offsets.end(), layer.offsets.begin(), layer.offsets.end());
    rows.push_back(layer.rows);
    multipliers.insert(multipliers.end(), layer.multipliers.begin(),
                       layer.multipliers.end());
  }
  EXPECT_EQ(primes, Flatten(golden.at("primes")));
  EXPECT_EQ(offsets, Flatten(golden.at("offsets")));
  EXPECT_EQ(rows, Flatten(golden.at("rows")));
  EXPECT_EQ(multipliers, Flatten(golden.at("multipliers")));
}

void ExpectRefused(const Result<Layout>& layout, const std::string& part) {
  ASSERT_FALSE(layout.ok()) << "accepted, expected: " << part;
  EXPECT_NE(layout.status().message().find(part), std::string::npos)
      << layout.status().ToString();
}

TEST(Layout, ReleasedNumbers) {
  const auto layout = DeriveLayout(ReleasedSpec());
  ASSERT_TRUE(layout.ok()) << layout.status().ToString();
  ExpectEqual(*layout, ReadGoldenJson("engram_release/engram_release.json"));
  // docs/engram.md quotes these.
  EXPECT_EQ(layout->layers[0].rows, 384'006'168u);
  EXPECT_EQ(layout->layers[1].rows, 384'016'682u);
  EXPECT_EQ(layout->layers[1].primes.back(), 16'000'889u);
  EXPECT_EQ(layout->columns(), 24u);
}

TEST(Layout, SmallModels) {
  for (const char* model : {"A", "C"}) {
    SCOPED_TRACE(model);
    const json golden =
        ReadGoldenJson(std::string("v41/") + model + "/engram.json");
    LayoutSpec spec;
    spec.layer_ids = golden.at("layer_ids").get<std::vector<uint32_t>>();
    spec.max_ngram = golden.at("max_ngram_size");
    spec.heads = golden.at("n_heads");
    spec.vocab_size = 500;
    spec.compressed_vocab_size = golden.at("compressed_vocab_size");
    const auto derived = DeriveLayout(spec);
    ASSERT_TRUE(derived.ok()) << derived.status().ToString();
    ExpectEqual(*derived, golden);

    const auto stored = LayoutFromNumbers(spec, Flatten(golden.at("primes")),
                                          Flatten(golden.at("multipliers")));
    ASSERT_TRUE(stored.ok()) << stored.status().ToString();
    ExpectEqual(*stored, golden);
  }
}

TEST(Layout, MultipliersOfEveryGoldenPair) {
  const json golden = ReadGoldenJson("engram_release/pcg64_multipliers.json");
  ASSERT_EQ(golden.at("pairs").size(), 20u);
  for (const json& pair : golden.at("pairs")) {
    const uint32_t layer = pair.at("layer");
    const uint32_t compressed_vocab = pair.at("compressed_vocab");
    EXPECT_EQ(NumpyMultipliers(layer, compressed_vocab, 8),
              Flatten(pair.at("multipliers")))
        << "layer " << layer << ", vocabulary " << compressed_vocab;
  }
}

TEST(Layout, LargestCompressedVocabularyTakesThe32BitPath) {
  // default_rng(10007).integers(0, 2**31 + 1, 4) * 2 + 1 in NumPy 2.4.
  EXPECT_EQ(
      NumpyMultipliers(1, INT32_MAX, 4),
      (std::vector<uint64_t>{644226611, 3536058433, 1659298245, 1286169411}));
}

TEST(Layout, PrimesStartAtTheVocabularySize) {
  LayoutSpec spec = SmallSpec();
  spec.vocab_size = 503;  // a prime
  EXPECT_EQ(DeriveLayout(spec)->layers[0].primes[0], 503u);
  spec.vocab_size = 504;  // one above it
  EXPECT_EQ(DeriveLayout(spec)->layers[0].primes[0], 509u);
  spec.vocab_size = 1;
  EXPECT_EQ(DeriveLayout(spec)->layers[0].primes,
            (std::vector<uint64_t>{2, 3, 5, 7}));
}

TEST(Layout, DerivedNumbersPassTheCheck) {
  for (uint32_t compressed_vocab : {1u, 2u, 394u, 99'092u, 0x7fffffffu}) {
    LayoutSpec spec = ReleasedSpec();
    spec.compressed_vocab_size = compressed_vocab;
    const auto layout = DeriveLayout(spec);
    ASSERT_TRUE(layout.ok()) << layout.status().ToString();
    EXPECT_TRUE(CheckLayout(*layout).ok()) << CheckLayout(*layout).ToString();
  }
}

TEST(Layout, RefusesSizesOutOfRange) {
  const auto refuse = [](auto change, const char* part) {
    LayoutSpec spec = SmallSpec();
    change(spec);
    ExpectRefused(DeriveLayout(spec), part);
  };
  refuse([](auto& s) { s.max_ngram = 1; }, "max_ngram_size is 1");
  refuse([](auto& s) { s.max_ngram = 9; }, "max_ngram_size is 9");
  refuse([](auto& s) { s.heads = 0; }, "0 heads");
  refuse([](auto& s) { s.heads = UINT32_MAX; }, "columns in all");
  refuse([](auto& s) { s.layer_ids.clear(); }, "0 layers");
  refuse([](auto& s) { s.layer_ids = {3, 3}; }, "3 after 3");
  refuse([](auto& s) { s.layer_ids = {3, 1}; }, "1 after 3");
  refuse([](auto& s) { s.compressed_vocab_size = 0; },
         "compressed_vocab_size is 0");
  refuse([](auto& s) { s.compressed_vocab_size = 1u << 31; },
         "compressed_vocab_size is 2147483648");
  refuse([](auto& s) { s.vocab_size = 0; }, "engram_vocab_size is 0");
  refuse([](auto& s) { s.vocab_size = kMaxPrime; }, "pass 2^40");
  refuse([](auto& s) { s.vocab_size = UINT64_MAX; }, "pass 2^40");
}

TEST(Layout, RefusesBrokenStoredNumbers) {
  const auto refuse = [](auto change, const char* part) {
    Numbers numbers;
    change(numbers);
    ExpectRefused(
        LayoutFromNumbers(SmallSpec(), numbers.primes, numbers.multipliers),
        part);
  };
  const Numbers good;
  ASSERT_TRUE(
      LayoutFromNumbers(SmallSpec(), good.primes, good.multipliers).ok());

  refuse([](auto& n) { n.primes.pop_back(); }, "7 primes");
  refuse([](auto& n) { n.multipliers.push_back(1); }, "7 multipliers");
  refuse([](auto& n) { n.primes[5] = 549; }, "layer 3: 549 is listed");
  refuse([](auto& n) { n.primes[0] = 0; }, "0 is listed as a prime");
  refuse([](auto& n) { n.primes[1] = 18446744073709551557u; }, "up to 2^40");
  refuse([](auto& n) { n.primes[3] = 503; }, "503 is listed twice");
  refuse([](auto& n) { n.multipliers[4] = 12; }, "12 is even");
  refuse([](auto& n) { n.multipliers[0] = 0; }, "0 is even");
}

TEST(Layout, RefusesMultipliersWhoseProductsOverflow) {
  Numbers numbers;
  // 393 * 23469140042887469 is the last product below 2^63.
  numbers.multipliers[2] = 23469140042887469u;
  EXPECT_TRUE(
      LayoutFromNumbers(SmallSpec(), numbers.primes, numbers.multipliers).ok());
  for (uint64_t multiplier :
       {uint64_t{23469140042887471u}, (uint64_t{1} << 63) + 1, UINT64_MAX}) {
    numbers.multipliers[2] = multiplier;
    ExpectRefused(
        LayoutFromNumbers(SmallSpec(), numbers.primes, numbers.multipliers),
        "layer 1: multiplier " + std::to_string(multiplier));
  }
}

TEST(Layout, MultipliersAbove2To53AreKept) {
  const uint64_t multiplier = (uint64_t{1} << 53) + 1;
  Numbers numbers;
  numbers.multipliers[1] = multiplier;
  const auto layout =
      LayoutFromNumbers(SmallSpec(), numbers.primes, numbers.multipliers);
  ASSERT_TRUE(layout.ok()) << layout.status().ToString();
  EXPECT_EQ(layout->layers[0].multipliers[1], multiplier);
}

TEST(Layout, CheckRefusesHandMadeFaults) {
  const Layout good = *DeriveLayout(SmallSpec());
  Layout layout = good;
  layout.layers[1].offsets[2] += 1;
  EXPECT_FALSE(CheckLayout(layout).ok());
  layout = good;
  layout.layers[0].rows -= 1;
  EXPECT_FALSE(CheckLayout(layout).ok());
  layout = good;
  layout.layers[0].multipliers.pop_back();
  EXPECT_FALSE(CheckLayout(layout).ok());
  layout = good;
  layout.max_ngram = 0;
  EXPECT_FALSE(CheckLayout(layout).ok());
}

}  // namespace
}  // namespace ecphory::engram
