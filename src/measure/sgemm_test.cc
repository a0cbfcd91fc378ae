#include "measure/sgemm.h"

#include <gtest/gtest.h>

#include <vector>

namespace ecphory::measure {
namespace {

TEST(Sgemm, AMissingLibraryIsNamed) {
  const auto sgemm = Sgemm::Load("/nosuch/library.so", 1);
  ASSERT_FALSE(sgemm.ok());
  EXPECT_EQ(sgemm.status().code(), StatusCode::kNotFound);
  const std::string& message = sgemm.status().message();
  EXPECT_EQ(message.find("/nosuch/library.so: "), 0u) << message;
  EXPECT_EQ(message.rfind("/nosuch/library.so: "), 0u) << message;
}

TEST(Sgemm, ALibraryWithoutAProductIsRefused) {
  const auto sgemm = Sgemm::Load("libm.so.6", 1);
  ASSERT_FALSE(sgemm.ok());
  EXPECT_EQ(sgemm.status().code(), StatusCode::kUnsupported);
}

// Against the product by hand, where this machine has a library.
TEST(Sgemm, MultipliesByTheTranspose) {
  auto sgemm = Sgemm::Load("", 2);
  // Debian's reference implementation, a part of many other packages.
  if (!sgemm.ok()) sgemm = Sgemm::Load("libblas.so.3", 1);
  if (!sgemm.ok()) GTEST_SKIP() << sgemm.status().message();
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};   // [2, 3]
  const std::vector<float> w = {1, 0, 2, -1, 1, 1};  // [2, 3]
  std::vector<float> y(4, -7);
  (*sgemm)->Run(x.data(), w.data(), y.data(), 2, 2, 3);
  EXPECT_EQ(y, (std::vector<float>{7, 4, 16, 7}));
}

}  // namespace
}  // namespace ecphory::measure
