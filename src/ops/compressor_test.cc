#include "ops/compressor.h"

#include "ops/testing.h"

namespace ecphory {
namespace {

class CompressorTest : public OpTest {};
ECPHORY_INSTANTIATE_OP_TEST(CompressorTest);

TEST_P(CompressorTest, PoolsWithASoftmaxPerChannel) {
  Random random(20);
  for (const size_t ratio : {2, 3, 4}) {
    for (const size_t dim : kDims) {
      const size_t capacity = 3 * ratio + 1;  // groups wrap around the ring
      const size_t groups = 2;
      const uint64_t first_group = 5;
      const GuardedArray<float> kv = random.Array(capacity * dim);
      const GuardedArray<float> gate = random.Array(capacity * dim, 5);
      std::vector<Expected> expected(groups * dim);
      for (size_t i = 0; i < groups * dim; ++i) {
        const uint64_t first = (first_group + i / dim) * ratio;
        double denominator = 0;
        for (size_t r = 0; r < ratio; ++r) {
          denominator += std::exp(gate[(first + r) % capacity * dim + i % dim]);
        }
        for (size_t r = 0; r < ratio; ++r) {
          const size_t at = (first + r) % capacity * dim + i % dim;
          const double weight =
              std::exp(static_cast<double>(gate[at])) / denominator;
          expected[i].Add(weight * kv[at]);
        }
      }
      for (const size_t threads : {1, 2, 3}) {
        GuardedArray<float> latent(groups * dim);
        ops().pool_groups(PoolGroupsArgs{.kv = kv.data(),
                                         .gate = gate.data(),
                                         .capacity = capacity,
                                         .dim = dim,
                                         .ratio = ratio,
                                         .first_group = first_group,
                                         .groups = groups,
                                         .latent = latent.data()},
                          Pool(threads));
        // exp() multiplies the error of its argument, |gate| <= 5.
        EXPECT_TRUE(AllClose(expected, latent.data(), 5 * SumBound(ratio)))
            << "ratio " << ratio << " dim " << dim;
      }
    }
  }
}

TEST_P(CompressorTest, ExtremeGatesChooseOrAverage) {
  const GuardedArray<float> kv = {1, 2, 3, 5, 6, 7};
  const GuardedArray<float> gate = {1e4f,  -1e4f, 3e4f,  //
                                    -1e4f, 1e4f,  3e4f};
  GuardedArray<float> latent(3);
  ops().pool_groups(PoolGroupsArgs{.kv = kv.data(),
                                   .gate = gate.data(),
                                   .capacity = 2,
                                   .dim = 3,
                                   .ratio = 2,
                                   .first_group = 0,
                                   .groups = 1,
                                   .latent = latent.data()},
                    Pool(1));
  EXPECT_EQ((std::vector<float>{1, 6, 5}), latent.Copy());
}

}  // namespace
}  // namespace ecphory
