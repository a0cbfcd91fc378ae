#include "io/disk_room.h"

#include <gtest/gtest.h>

#include "io/test_directory.h"

namespace ecphory {
namespace {

TEST(CheckDiskRoom, WhatIsMissingIsSaidInWords) {
  const TestDirectory folder;
  EXPECT_TRUE(CheckDiskRoom(folder / "new.gguf", 1).ok());
  const Status status = CheckDiskRoom(folder / "new.gguf", uint64_t{1} << 62);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find(
                "new.gguf: needs 4.6 EB (4611686018427387904 bytes), the disk "
                "has "),
            std::string::npos)
      << status.ToString();
}

}  // namespace
}  // namespace ecphory
