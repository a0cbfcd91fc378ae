#include "engram/hasher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <numeric>
#include <random>
#include <string>

#include "engram/testing.h"

namespace ecphory::engram {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;
// [layer][token][column] flattened per layer.
using Rows = std::vector<std::vector<uint64_t>>;

Ids Identity(uint32_t n) {
  Ids map(n);
  std::iota(map.begin(), map.end(), 0);
  return map;
}

// Hashes `ids` from `history` on.
Rows HashFrom(const Hasher& hasher, std::span<const int32_t> ids,
              History* history) {
  const Layout& layout = hasher.layout();
  Rows rows(layout.layers.size(),
            std::vector<uint64_t>(ids.size() * layout.columns()));
  const std::vector<std::span<uint64_t>> spans(rows.begin(), rows.end());
  hasher.Hash(ids, history, spans);
  return rows;
}

Rows HashAll(const Hasher& hasher, std::span<const int32_t> ids) {
  History history;
  return HashFrom(hasher, ids, &history);
}

Rows HashInChunks(const Hasher& hasher, std::span<const int32_t> ids,
                  size_t chunk) {
  Rows all(hasher.layout().layers.size());
  History history;
  for (size_t begin = 0; begin < ids.size(); begin += chunk) {
    const auto part = ids.subspan(begin, std::min(chunk, ids.size() - begin));
    const Rows rows = HashFrom(hasher, part, &history);
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].insert(all[i].end(), rows[i].begin(), rows[i].end());
    }
  }
  return all;
}

// Golden's [token][layer][column] order.
std::vector<uint64_t> TokenMajor(const Rows& rows, size_t columns) {
  std::vector<uint64_t> flat;
  for (size_t begin = 0; begin < rows[0].size(); begin += columns) {
    for (const auto& layer : rows) {
      flat.insert(flat.end(), layer.begin() + begin,
                  layer.begin() + begin + columns);
    }
  }
  return flat;
}

Hasher ReleasedHasher() {
  LayoutSpec spec{{1, 14}, 4, 8, 16'000'000, 99'092};
  return *Hasher::Create(*DeriveLayout(spec), Identity(99'092), 2);
}

// Compressed ids 0..9, pad id 7; small numbers that a reader can check.
Layout TinyLayout() {
  LayoutSpec spec{{1}, 4, 1, 100, 10};
  const std::vector<uint64_t> primes = {101, 103, 107};
  const std::vector<uint64_t> multipliers = {3, 5, 9, 17};
  return *LayoutFromNumbers(spec, primes, multipliers);
}

Hasher TinyHasher() { return *Hasher::Create(TinyLayout(), Identity(10), 7); }

// The rows of one token whose look-back is `a` (current), b, c, d.
std::vector<uint64_t> TinyRows(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  const uint64_t two = (a * 3) ^ (b * 5);
  const uint64_t three = two ^ (c * 9);
  const uint64_t four = three ^ (d * 17);
  return {two % 101, three % 103 + 101, four % 107 + 101 + 103};
}

// The rule with plain divisions, for the tokens of one sequence.
Rows PlainRows(const Layout& layout, std::span<const int32_t> ids,
               int32_t pad_id) {
  Rows rows(layout.layers.size());
  for (size_t t = 0; t < ids.size(); ++t) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const LayerLayout& layer = layout.layers[i];
      uint64_t mixed = 0;
      bool dead = false;
      for (size_t n = 0; n < layout.max_ngram; ++n) {
        dead = dead || n > t || ids[t - n] < 0;
        const int32_t id = dead ? pad_id : ids[t - n];
        mixed ^= static_cast<uint64_t>(id) * layer.multipliers[n];
        for (size_t head = 0; n > 0 && head < layout.heads; ++head) {
          const size_t column = (n - 1) * layout.heads + head;
          rows[i].push_back(mixed % layer.primes[column] +
                            layer.offsets[column]);
        }
      }
    }
  }
  return rows;
}

// Whole range of ids at the released sizes, and a layout whose primes are near
// 2^40 and whose products come close to 2^63.
TEST(Hasher, EqualsPlainDivisions) {
  std::mt19937 rng(1);
  const LayoutSpec large{{0, 3}, 5, 3, (uint64_t{1} << 40) - 2000, 7};
  for (const LayoutSpec& spec :
       {LayoutSpec{{1, 14}, 4, 8, 16'000'000, 99'092}, large}) {
    const uint32_t classes = spec.compressed_vocab_size;
    const Hasher hasher =
        *Hasher::Create(*DeriveLayout(spec), Identity(classes), 2);
    Ids ids(5000);
    for (int32_t& id : ids) {
      id = rng() % 20 == 0 ? kDead : static_cast<int32_t>(rng() % classes);
    }
    EXPECT_EQ(HashAll(hasher, ids), PlainRows(hasher.layout(), ids, 2));
  }
}

TEST(Hasher, ReleasedSequences) {
  const Hasher hasher = ReleasedHasher();
  const json golden = ReadGoldenJson("engram_release/engram_release.json");
  for (const json& sequence : golden.at("sequences")) {
    SCOPED_TRACE(sequence.at("name").get<std::string>());
    const Ids ids = sequence.at("compressed_ids").get<Ids>();
    EXPECT_EQ(TokenMajor(HashAll(hasher, ids), 24),
              Flatten(sequence.at("rows")));
  }
}

TEST(Hasher, ChunksOfEverySizeEqualOneShot) {
  const Hasher hasher = ReleasedHasher();
  const json golden = ReadGoldenJson("engram_release/engram_release.json");
  for (const json& sequence : golden.at("sequences")) {
    const Ids ids = sequence.at("compressed_ids").get<Ids>();
    const Rows whole = HashAll(hasher, ids);
    for (size_t chunk : {1, 2, 3, 4, 5, 7}) {
      EXPECT_EQ(HashInChunks(hasher, ids, chunk), whole)
          << sequence.at("name") << ", chunks of " << chunk;
    }
  }
}

TEST(Hasher, SmallModels) {
  for (const std::string model : {"A", "C"}) {
    const json facts = ReadGoldenJson("v41/" + model + "/engram.json");
    LayoutSpec spec{facts.at("layer_ids"), facts.at("max_ngram_size"),
                    facts.at("n_heads"), 500,
                    facts.at("compressed_vocab_size")};
    // token_map.npy: int32 [512] after a 128-byte header.
    const std::string npy = ReadGolden("v41/" + model + "/token_map.npy");
    ASSERT_EQ(npy.size(), 128u + 512 * 4);
    Ids map(512);
    std::memcpy(map.data(), npy.data() + 128, 512 * 4);
    const auto hasher =
        Hasher::Create(*DeriveLayout(spec), map, facts.at("pad_compressed_id"));
    ASSERT_TRUE(hasher.ok()) << hasher.status().ToString();

    const GoldenTensors golden("v41/" + model + "/golden.safetensors");
    for (const std::string name : {"s7", "s40", "s40img", "s150"}) {
      SCOPED_TRACE(model + " " + name);
      const Ids tokens = golden.Get<int32_t>(name + ".ids");
      Ids compressed(tokens.size());
      ASSERT_TRUE(hasher
                      ->Compress(tokens,
                                 golden.Get<uint8_t>(name + ".image_mask"),
                                 compressed)
                      .ok());
      EXPECT_EQ(
          TokenMajor(HashAll(*hasher, compressed), hasher->layout().columns()),
          golden.Get<uint64_t>(name + ".hash_ids"));
    }
  }
}

TEST(Hasher, FirstTokensLookBackOnPadding) {
  const Rows rows = HashAll(TinyHasher(), Ids{1, 2, 3, 4});
  std::vector<uint64_t> expected;
  for (const auto& token : {TinyRows(1, 7, 7, 7), TinyRows(2, 1, 7, 7),
                            TinyRows(3, 2, 1, 7), TinyRows(4, 3, 2, 1)}) {
    expected.insert(expected.end(), token.begin(), token.end());
  }
  EXPECT_EQ(rows[0], expected);
}

TEST(Hasher, DeadPositionsStopTheLookBack) {
  const Rows rows = HashAll(TinyHasher(), Ids{1, 2, kDead, 3, 4, 5});
  std::vector<uint64_t> expected;
  for (const auto& token :
       {TinyRows(1, 7, 7, 7), TinyRows(2, 1, 7, 7),
        TinyRows(7, 7, 7, 7),  // dead itself
        TinyRows(3, 7, 7, 7),  // dead predecessor, though 2 and 1 are known
        TinyRows(4, 3, 7, 7), TinyRows(5, 4, 3, 7)}) {
    expected.insert(expected.end(), token.begin(), token.end());
  }
  EXPECT_EQ(rows[0], expected);
}

TEST(Hasher, HistoryIsTheNewestIdsAndACopyIsASnapshot) {
  const Hasher hasher = TinyHasher();
  History history;
  HashFrom(hasher, Ids{1, 2}, &history);
  EXPECT_EQ(history.length, 2u);
  EXPECT_EQ(history.ids[0], 2);
  EXPECT_EQ(history.ids[1], 1);

  const History snapshot = history;
  const Rows first = HashFrom(hasher, Ids{kDead, 4, 5, 6}, &history);
  EXPECT_EQ(history.length, 3u);
  EXPECT_EQ(history.ids[0], 6);
  EXPECT_EQ(history.ids[2], 4);
  history = snapshot;
  EXPECT_EQ(HashFrom(hasher, Ids{kDead, 4, 5, 6}, &history), first);
}

TEST(Hasher, ReplayingTheLastTokensRestoresTheHistory) {
  const Hasher hasher = TinyHasher();
  History whole, replayed;
  HashFrom(hasher, Ids{9, 8, 1, 2, 3}, &whole);
  HashFrom(hasher, Ids{1, 2, 3}, &replayed);
  EXPECT_EQ(HashFrom(hasher, Ids{4, 5}, &whole),
            HashFrom(hasher, Ids{4, 5}, &replayed));
}

TEST(Hasher, CompressMapsTokensAndMarksDeadOnes) {
  const Ids map = {5, 4, 4};
  const auto hasher = Hasher::Create(TinyLayout(), map, 0);
  ASSERT_TRUE(hasher.ok());
  Ids out(3);
  ASSERT_TRUE(hasher->Compress(Ids{0, 1, 2}, {}, out).ok());
  EXPECT_EQ(out, (Ids{5, 4, 4}));
  const std::vector<uint8_t> dead = {0, 1, 0};
  ASSERT_TRUE(hasher->Compress(Ids{0, 1, 2}, dead, out).ok());
  EXPECT_EQ(out, (Ids{5, kDead, 4}));
}

TEST(Hasher, CompressRefusesTokensOutsideTheVocabulary) {
  const Hasher hasher = TinyHasher();
  const std::vector<uint8_t> all_dead = {1, 1, 1};
  for (int32_t token : {-1, 10, INT_MIN, INT_MAX}) {
    Ids out(3);
    const Ids tokens = {0, 9, token};
    for (const auto dead :
         {std::span<const uint8_t>(), std::span<const uint8_t>(all_dead)}) {
      const Status status = hasher.Compress(tokens, dead, out);
      EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
      EXPECT_EQ(status.message(), "token " + std::to_string(token) +
                                      " at position 2, expected ids 0..9");
    }
  }
}

TEST(Hasher, CreateRefusesMapsAndPadsOutOfRange) {
  const auto refuse = [](Ids map, int32_t pad, const std::string& part) {
    const auto hasher = Hasher::Create(TinyLayout(), std::move(map), pad);
    ASSERT_FALSE(hasher.ok()) << "accepted, expected: " << part;
    EXPECT_NE(hasher.status().message().find(part), std::string::npos)
        << hasher.status().ToString();
  };
  refuse({0, 10}, 0, "token_map[1] is 10, expected 0..9");
  refuse({-1, 0}, 0, "token_map[0] is -1");
  refuse({}, 0, "token map is empty");
  refuse({0, 1}, 10, "pad id is 10, expected 0..9");
  refuse({0, 1}, -1, "pad id is -1");
}

TEST(Hasher, CreateRefusesABrokenLayout) {
  Layout layout = TinyLayout();
  layout.layers[0].multipliers[3] = 18;
  const auto hasher = Hasher::Create(layout, Identity(10), 7);
  ASSERT_FALSE(hasher.ok());
  EXPECT_NE(hasher.status().message().find("18 is even"), std::string::npos);
}

}  // namespace
}  // namespace ecphory::engram
