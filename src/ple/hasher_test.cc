#include "ple/hasher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "ple/testing.h"

namespace ecphory::ple {
namespace {

using Ids = std::vector<int32_t>;
using Rows = std::vector<uint64_t>;

Rows HashFrom(const Hasher& hasher, std::span<const int32_t> ids,
              History* history) {
  Rows rows(ids.size() * hasher.layout().heads());
  hasher.Hash(ids, history, rows);
  return rows;
}

Rows HashAll(const Hasher& hasher, std::span<const int32_t> ids) {
  History history;
  return HashFrom(hasher, ids, &history);
}

// The rule as it is written down, with plain divisions and the whole sequence
// at hand: going back from t, the first EOS met and all before it are EOS.
Rows PlainRows(const Layout& layout, std::span<const int32_t> ids) {
  Rows rows;
  for (size_t t = 0; t < ids.size(); ++t) {
    uint64_t mixed = 0;
    bool cut = false;
    for (size_t n = 0; n < layout.ngram_size; ++n) {
      if (n > 0) cut = cut || n > t || ids[t - n] == layout.eos_id;
      const int32_t id = cut ? layout.eos_id : ids[t - n];
      mixed ^= static_cast<uint64_t>(id) * layout.multipliers[n];
      for (size_t i = 0; n > 0 && i < layout.heads_per_ngram; ++i) {
        const size_t head = (n - 1) * layout.heads_per_ngram + i;
        rows.push_back(mixed % layout.sizes[head] + layout.offsets[head]);
      }
    }
  }
  return rows;
}

struct GoldenRows {
  Ids ids;
  std::vector<uint64_t> first;  // heads 0, 1, 2 of the last token
  std::vector<uint64_t> ninth;  // heads 8, 9, 10
  uint64_t last;                // head 15
};

TEST(PleHasher, ReleasedSequences) {
  const GoldenRows golden[] = {
      {{0},
       {768795, 32189829, 51641306},
       {173280301, 194832882, 202840854},
       304432235},
      {{1, 2, 3},
       {14605717, 24410875, 49313567},
       {161523077, 195939126, 219424565},
       309645223},
      {{9707, 11, 1879},
       {6380558, 26411572, 56460672},
       {164226950, 190352573, 210933682},
       312121804},
      {{248044, 5, 6},
       {15567690, 35687509, 55747620},
       {164414634, 193473829, 212527239},
       307414745},
      {{5, 248044},
       {18392917, 34857659, 47499630},
       {173113148, 192355065, 202997842},
       301167364},
      {{5, 248044, 6, 7},
       {9319853, 32980418, 54810932},
       {168958489, 198213555, 200828695},
       303426962},
      {{248319, 248319, 248319},
       {3035822, 30922970, 45995374},
       {171350132, 183732882, 212505503},
       303365432},
  };
  const Hasher hasher = *Hasher::Create(ReleasedLayout());
  for (const GoldenRows& sequence : golden) {
    const Rows all = HashAll(hasher, sequence.ids);
    const Rows rows(all.end() - 16, all.end());
    EXPECT_EQ(Rows(rows.begin(), rows.begin() + 3), sequence.first);
    EXPECT_EQ(Rows(rows.begin() + 8, rows.begin() + 11), sequence.ninth);
    EXPECT_EQ(rows[15], sequence.last);
  }
}

Ids RandomIds(size_t count, int32_t below, int32_t eos, uint32_t seed) {
  std::mt19937 rng(seed);
  Ids ids(count);
  for (int32_t& id : ids) {
    id = static_cast<int32_t>(rng() % static_cast<uint32_t>(below));
    if (rng() % 5 == 0) id = eos;
  }
  return ids;
}

TEST(PleHasher, EqualsTheRuleWithPlainDivisions) {
  for (const Layout& layout : {ReleasedLayout(), SmallLayout()}) {
    const Hasher hasher = *Hasher::Create(layout);
    const Ids ids = RandomIds(4000, static_cast<int32_t>(layout.vocab_size),
                              layout.eos_id, 1);
    EXPECT_EQ(HashAll(hasher, ids), PlainRows(layout, ids));
  }
  LayoutSpec spec = SmallSpec();
  spec.ngram_size = 6;
  spec.embed_dim = 10 * 32;
  const Hasher hasher = *Hasher::Create(*DeriveLayout(spec));
  const Ids ids = RandomIds(4000, 100, 7, 2);
  EXPECT_EQ(HashAll(hasher, ids), PlainRows(hasher.layout(), ids));
}

TEST(PleHasher, ChunksOfEverySizeEqualOneShot) {
  const Hasher hasher = *Hasher::Create(SmallLayout());
  const Ids ids = RandomIds(60, 100, 7, 3);
  const Rows whole = HashAll(hasher, ids);
  for (size_t chunk = 1; chunk <= 7; ++chunk) {
    History history;
    Rows rows;
    for (size_t i = 0; i < ids.size(); i += chunk) {
      const Rows part = HashFrom(
          hasher, std::span(ids).subspan(i, std::min(chunk, ids.size() - i)),
          &history);
      rows.insert(rows.end(), part.begin(), part.end());
    }
    EXPECT_EQ(rows, whole) << "chunks of " << chunk;
  }
}

// A snapshot is a copy: take one, run ahead, come back, at every depth.
TEST(PleHasher, RollbackAtEveryDepth) {
  const Hasher hasher = *Hasher::Create(SmallLayout());
  const Ids ids = RandomIds(40, 100, 7, 4);
  const Rows whole = HashAll(hasher, ids);
  const size_t heads = hasher.layout().heads();
  for (size_t begin = 0; begin < 30; ++begin) {
    for (size_t depth = 0; depth <= 5; ++depth) {
      History history;
      HashFrom(hasher, std::span(ids).first(begin), &history);
      const History snapshot = history;
      HashFrom(hasher, Ids(depth, 42), &history);
      history = snapshot;
      const Rows rest =
          HashFrom(hasher, std::span(ids).subspan(begin), &history);
      EXPECT_TRUE(
          std::equal(rest.begin(), rest.end(),
                     whole.begin() + static_cast<ptrdiff_t>(begin * heads)));
    }
  }
}

TEST(PleHasher, TheStartOfASequenceIsAsAfterEos) {
  const Hasher hasher = *Hasher::Create(ReleasedLayout());
  const size_t heads = 16;
  const Rows start = HashAll(hasher, Ids{9, 8});
  const Rows after = HashAll(hasher, Ids{1, 2, 248044, 9, 8});
  EXPECT_TRUE(
      std::equal(start.begin(), start.end(), after.begin() + 3 * heads));
  EXPECT_NE(start, HashAll(hasher, Ids{0, 0, 9, 8}));
}

TEST(PleHasher, PaddingIsEosAndCuts) {
  Layout layout = SmallLayout();
  const Hasher hasher = *Hasher::Create(layout);
  const Ids tokens = {1, 2, -5, 3, 1000, 4};
  const Position kinds[] = {Position::kToken,   Position::kToken,
                            Position::kPadding, Position::kToken,
                            Position::kImage,   Position::kToken};
  Ids ids(6);
  ASSERT_TRUE(hasher.Resolve(tokens, kinds, ids).ok());
  EXPECT_EQ(ids, (Ids{1, 2, 7, 3, 7, 4}));  // no image id: EOS
  layout.image_id = 55;
  const Hasher with_image = *Hasher::Create(layout);
  ASSERT_TRUE(with_image.Resolve(tokens, kinds, ids).ok());
  EXPECT_EQ(ids, (Ids{1, 2, 7, 3, 55, 4}));
  EXPECT_EQ(HashAll(with_image, ids), PlainRows(layout, ids));
}

TEST(PleHasher, NamesATokenOutsideTheVocabulary) {
  const Hasher hasher = *Hasher::Create(SmallLayout());
  Ids ids(2);
  for (const int32_t bad : {100, -1}) {
    const Status status = hasher.Resolve(Ids{3, bad}, {}, ids);
    EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
    EXPECT_NE(status.message().find("token " + std::to_string(bad) +
                                    " at position 1, expected ids 0..99"),
              std::string::npos)
        << status.ToString();
  }
}

}  // namespace
}  // namespace ecphory::ple
