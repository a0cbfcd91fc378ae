#include "tables/manifest.h"

#include <gtest/gtest.h>

#include "io/test_directory.h"
#include "tables/testing.h"

namespace ecphory::tables {
namespace {

Manifest Example() {
  const std::vector<Region> regions = {{"header", 0, 100, 1},
                                       {"layer_1", 128, 2 * kChunkBytes, 264}};
  const std::vector<uint64_t> digests = {1, 2, 3, 0xfedcba9876543210};
  return MakeManifest(regions, digests);
}

TEST(Manifest, ReadsWhatItWrites) {
  const Manifest manifest = Example();
  EXPECT_EQ(manifest.regions[1].chunk_bytes, kChunkBytes / 264 * 264);
  EXPECT_EQ(manifest.regions[1].digests.size(), 3u);
  const std::string text = ManifestText(manifest);
  const auto again = ParseManifest(text, "m");
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(ManifestText(*again), text);
  EXPECT_EQ(again->Whole(), manifest.Whole());
}

TEST(Manifest, TextIsAsDocumented) {
  EXPECT_EQ(
      ManifestText(Example()),
      "ecphory-tables-manifest 1\n"
      "region header bytes 100 chunk 67108864\n"
      "0000000000000001\n"
      "region layer_1 bytes 134217728 chunk 67108800\n"
      "0000000000000002\n"
      "0000000000000003\n"
      "fedcba9876543210\n"
      "whole " +
          ManifestText(Example()).substr(ManifestText(Example()).size() - 17));
}

TEST(Manifest, EveryChangedCharacterIsNoticed) {
  const std::string text = ManifestText(Example());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = changed[i] == '5' ? '6' : '5';
    const auto parsed = ParseManifest(changed, "m");
    // Names and sizes are not summed: they are held against the tables.
    if (!parsed.ok()) continue;
    EXPECT_NE(ManifestText(*parsed), text) << i;
  }
}

TEST(Manifest, CutAnywhereIsRefused) {
  const std::string text = ManifestText(Example());
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_EQ(ParseManifest(text.substr(0, size), "m").status().code(),
              StatusCode::kCorrupt)
        << size;
  }
}

TEST(Manifest, RefusesWhatItWouldNotWrite) {
  const std::string first = "ecphory-tables-manifest 1\n";
  for (const char* rest :
       {"region a bytes 0 chunk 1\nwhole 0\n",
        "region a bytes 1 chunk 0\nwhole 0\n", "region a bytes 1\n",
        "region a bytes -1 chunk 1\n", "region  bytes 1 chunk 1\n",
        "region a bytes 18446744073709551616 chunk 1\n",
        "region a bytes 1 chunk 1\nxyz\n", "whole 0\n",
        "region a bytes 1 chunk 1\n0000000000000000\n"
        "region a bytes 1 chunk 1\n0000000000000000\n"}) {
    EXPECT_FALSE(ParseManifest(first + rest, "m").ok()) << rest;
  }
  const Status status = ParseManifest("hello\n", "sums.xxh").status();
  EXPECT_NE(status.message().find("sums.xxh: line 1"), std::string::npos);
}

}  // namespace
}  // namespace ecphory::tables
