#include "base/processors.h"

#include <gtest/gtest.h>

namespace ecphory {
namespace {

using List = std::vector<int>;

const List kAllowed = {0, 1, 2, 3, 8, 9};

TEST(Processors, ListsAreNumbersAndRanges) {
  EXPECT_EQ(*ParseProcessorList("0", kAllowed), List{0});
  EXPECT_EQ(*ParseProcessorList("2-3,0", kAllowed), (List{2, 3, 0}));
  EXPECT_EQ(*ParseProcessorList("0-3,8-9", kAllowed), kAllowed);
}

std::string ErrorOf(const std::string& list) {
  const auto parsed = ParseProcessorList(list, kAllowed);
  return parsed.ok() ? "parsed" : parsed.status().message();
}

TEST(Processors, BadListsNameWhatIsWrong) {
  EXPECT_NE(ErrorOf("").find("such as 0-3,8"), std::string::npos);
  EXPECT_NE(ErrorOf("1,").find("such as"), std::string::npos);
  EXPECT_NE(ErrorOf("1,x").find("'x'"), std::string::npos);
  EXPECT_NE(ErrorOf("-1").find("'-1'"), std::string::npos);
  EXPECT_NE(ErrorOf("1-").find("'1-'"), std::string::npos);
  EXPECT_NE(ErrorOf("1--2").find("'1--2'"), std::string::npos);
  EXPECT_NE(ErrorOf("3-1").find("expected 1-3"), std::string::npos);
  EXPECT_NE(ErrorOf("1,0-2").find("processor 1 is given twice"),
            std::string::npos);
  EXPECT_NE(ErrorOf("0-4").find("processor 4: this process may run on 0-3,8-9"),
            std::string::npos);
  EXPECT_NE(ErrorOf("99999999999").find("such as"), std::string::npos);
  EXPECT_NE(ErrorOf("0-2000000000").find("such as"), std::string::npos);
}

TEST(Processors, AllowedOnesAreCounted) {
  const List allowed = AllowedProcessors();
  ASSERT_FALSE(allowed.empty());
  EXPECT_EQ(AvailableProcessors(), allowed.size());
  EXPECT_TRUE(ParseProcessorList(std::to_string(allowed[0]), allowed).ok());
}

TEST(Processors, PinningToNoProcessorFails) {
  EXPECT_FALSE(PinThisThread(-1).ok());
}

}  // namespace
}  // namespace ecphory
