#include "engram/numpy_random.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "engram/testing.h"

namespace ecphory::engram {
namespace {

TEST(NumpyGenerator, RawOutputsOfEveryGoldenSeed) {
  const auto golden = ReadGoldenJson("engram_release/pcg64_multipliers.json");
  ASSERT_EQ(golden.at("pairs").size(), 20u);
  for (const auto& pair : golden.at("pairs")) {
    NumpyGenerator generator(pair.at("seed").get<uint64_t>());
    for (const std::string raw : pair.at("raw_u64")) {
      EXPECT_EQ(std::to_string(generator.Next64()), raw)
          << "seed " << pair.at("seed");
    }
  }
}

// default_rng(seed).integers(0, bound, size=4, dtype=int64) in NumPy 2.4.
struct Draws {
  uint64_t seed;
  uint64_t bound;
  std::array<uint64_t, 4> values;
};

TEST(NumpyGenerator, BoundedIntegersOfEverySize) {
  const Draws draws[] = {
      {10007u, 1u, {0u, 0u, 0u, 0u}},
      {10007u, 2u, {0u, 1u, 1u, 0u}},
      {10007u, 1000u, {149u, 823u, 619u, 51u}},
      {10007u, 2147483648u, {322113305u, 1768029216u, 1331345946u, 111663947u}},
      // A redraw after the first value.
      {10007u, 3221225472u, {483169958u, 1997018919u, 167495920u, 1764548960u}},
      // The last bound on 32-bit draws, and the first on 64-bit draws.
      {10007u, 4294967296u, {644226611u, 3536058432u, 2662691893u, 223327894u}},
      {10007u,
       4294967297u,
       {3536058432u, 223327894u, 1659298245u, 3414020522u}},
      {10007u,
       4611686018427387904u,
       {3796813830707316620u, 239796500919311629u, 1781657924734481866u,
        3665776621713512656u}},
      // Redraws on the 64-bit path.
      {10007u,
       6917529027641081856u,
       {359694751378967443u, 1538764283633127253u, 155932486627929098u,
        4429730739593083823u}},
      {4294967295u, 12345u, {2355u, 3110u, 8940u, 2704u}},
      // A seed of two 32-bit words.
      {42979737721065u,
       35184372088833u,
       {29555432057924u, 33622383405080u, 1856579647763u, 12907522776268u}},
  };
  for (const Draws& expected : draws) {
    NumpyGenerator generator(expected.seed);
    for (uint64_t value : expected.values) {
      EXPECT_EQ(generator.Integer(expected.bound), value)
          << "seed " << expected.seed << ", bound " << expected.bound;
    }
  }
}

}  // namespace
}  // namespace ecphory::engram
