#include "ecphory/version.h"

#include <gtest/gtest.h>

#include <string>

namespace ecphory {
namespace {

TEST(Version, StringAgreesWithTheNumbers) {
  const std::string numbers = std::to_string(ECPHORY_VERSION_MAJOR) + "." +
                              std::to_string(ECPHORY_VERSION_MINOR) + "." +
                              std::to_string(ECPHORY_VERSION_PATCH);
  EXPECT_EQ(numbers, ECPHORY_VERSION_STRING);
  EXPECT_EQ(Version(), numbers);
}

}  // namespace
}  // namespace ecphory
