#include "ops/embed.h"

#include "ops/testing.h"
#include "ops/weights_testing.h"

namespace ecphory {
namespace {

class EmbedTest : public OpTest {};
ECPHORY_INSTANTIATE_OP_TEST(EmbedTest);

TEST_P(EmbedTest, CopiesTheExactRowToEveryStream) {
  constexpr size_t kVocab = 37;
  Random random(2);
  const std::vector<int32_t> tokens = {0, 36, 5, 5, 31, 32, 7};
  for (const WeightFormat format : kWeightFormats) {
    for (const size_t dim : {1, 7, 32, 33, 96}) {
      if (!HasRowsOf(format, dim)) continue;
      const PackedMatrix table = RandomMatrix(format, kVocab, dim, random);
      for (const size_t streams : {1, 2, 4, 5, 16}) {
        for (const size_t threads : {1, 2, 3}) {
          GuardedArray<float> h(tokens.size() * streams * dim);
          ops().embed({.table = table.view,
                       .tokens = tokens.data(),
                       .n_tokens = tokens.size(),
                       .streams = streams,
                       .h = h.data()},
                      Pool(threads));
          std::vector<float> expected;
          for (const int32_t token : tokens) {
            const float* row =
                table.values.data() + static_cast<size_t>(token) * dim;
            for (size_t s = 0; s < streams; ++s) {
              expected.insert(expected.end(), row, row + dim);
            }
          }
          EXPECT_TRUE(SameBits(expected, h))
              << WeightFormatName(format) << " dim " << dim;
        }
      }
    }
  }
}

TEST_P(EmbedTest, RoundsForBf16Streams) {
  constexpr size_t kVocab = 5, kStreams = 4;
  Random random(3);
  const std::vector<int32_t> tokens = {4, 0, 3};
  for (const size_t dim : {1, 7, 96}) {
    const PackedMatrix table =
        RandomMatrix(WeightFormat::kF32, kVocab, dim, random);
    GuardedArray<float> h(tokens.size() * kStreams * dim);
    GuardedArray<uint16_t> bits(h.size());
    for (const Streams streams : {Streams(h.data()), Streams(bits.data())}) {
      ops().embed({.table = table.view,
                   .tokens = tokens.data(),
                   .n_tokens = tokens.size(),
                   .streams = kStreams,
                   .h = streams},
                  Pool(2));
    }
    EXPECT_TRUE(SameBits(ToBf16(h), bits)) << dim;
  }
}

}  // namespace
}  // namespace ecphory
