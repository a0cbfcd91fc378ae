#include "base/size_text.h"

#include <gtest/gtest.h>

namespace ecphory {
namespace {

TEST(SizeText, UnitsAndTheNumberItself) {
  EXPECT_EQ(SizeText(0), "0 bytes");
  EXPECT_EQ(SizeText(999), "999 bytes");
  EXPECT_EQ(SizeText(1000), "1.0 kB (1000 bytes)");
  EXPECT_EQ(SizeText(99'949), "99.9 kB (99949 bytes)");
  EXPECT_EQ(SizeText(99'951), "100 kB (99951 bytes)");
  EXPECT_EQ(SizeText(999'600), "1.0 MB (999600 bytes)");
  EXPECT_EQ(SizeText(4'412'345'678), "4.4 GB (4412345678 bytes)");
  EXPECT_EQ(SizeText(UINT64_MAX), "18.4 EB (18446744073709551615 bytes)");
}

}  // namespace
}  // namespace ecphory
