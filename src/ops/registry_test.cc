#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "ops/cpu_instructions.h"
#include "ops/ops.h"

namespace ecphory {
namespace {

TEST(Registry, TheForcedBackendIsTheOneThatAnswers) {
  ASSERT_TRUE(FindOps("ref").ok());
  ASSERT_TRUE(FindOps("cpu").ok());
  ASSERT_TRUE(FindOps("auto").ok());
  EXPECT_EQ(&RefOps(), *FindOps("ref"));
  EXPECT_EQ(&CpuOps(), *FindOps("cpu"));
  EXPECT_EQ(&CpuOps(), *FindOps("auto"));
  EXPECT_STREQ("ref", RefOps().name);
  EXPECT_STREQ("cpu", CpuOps().name);
  EXPECT_STRNE("", CpuTargetName());
  EXPECT_TRUE(CpuInstructions().starts_with(CpuTargetName()));
}

TEST(Registry, UnknownNamesAreRefusedWithTheChoices) {
  for (const char* name : {"", "REF", "cuda", "cpu "}) {
    const Result<const Ops*> ops = FindOps(name);
    ASSERT_FALSE(ops.ok()) << name;
    EXPECT_EQ(StatusCode::kInvalidArgument, ops.status().code());
    EXPECT_NE(std::string::npos, ops.status().message().find("cpu or ref"));
  }
  const std::string huge(1 << 16, 'x');
  EXPECT_LT(FindOps(huge.c_str()).status().message().size(), 200u);
}

}  // namespace
}  // namespace ecphory
