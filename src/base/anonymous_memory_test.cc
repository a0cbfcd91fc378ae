#include "base/anonymous_memory.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <utility>

namespace ecphory {
namespace {

using Pages = AnonymousMemory::Pages;

TEST(AnonymousMemory, IsZeroAlignedAndWritable) {
  for (const Pages pages : {Pages::kSmall, Pages::kHuge}) {
    for (const size_t bytes : {size_t{0}, size_t{5}, size_t{5} << 20}) {
      auto memory = AnonymousMemory::Map(bytes, pages);
      ASSERT_TRUE(memory.ok()) << memory.status().ToString();
      EXPECT_GE(memory->size(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % (2u << 20), 0u);
      EXPECT_EQ(memory->data()[0], 0);
      EXPECT_EQ(memory->data()[memory->size() - 1], 0);
      memory->data()[memory->size() - 1] = 1;
    }
  }
}

TEST(AnonymousMemory, MovesLeaveNothingBehind) {
  auto memory = AnonymousMemory::Map(100, Pages::kSmall);
  ASSERT_TRUE(memory.ok());
  uint8_t* const data = memory->data();
  AnonymousMemory other = std::move(*memory);
  EXPECT_EQ(other.data(), data);
  EXPECT_EQ(memory->data(), nullptr);
}

TEST(AnonymousMemory, WhatNoMachineHasIsRefused) {
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX / 4}) {
    const auto memory = AnonymousMemory::Map(bytes, Pages::kHuge);
    ASSERT_FALSE(memory.ok());
    EXPECT_EQ(memory.status().code(), StatusCode::kResourceExhausted);
  }
}

// Whether large pages were asked for where `p` points, as the kernel says.
bool HugePagesAskedAt(const uint8_t* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream range(line);
    if (range >> std::hex >> begin >> dash >> end && dash == '-') {
      here = begin <= address && address < end;
    } else if (here && line.starts_with("VmFlags:")) {
      return line.find(" hg") != std::string::npos;
    }
  }
  return false;
}

TEST(AnonymousMemory, LargePagesAreAskedForWhereTheyFit) {
  if (::access("/sys/kernel/mm/transparent_hugepage", R_OK) != 0) {
    GTEST_SKIP() << "a kernel without large pages";
  }
  constexpr size_t kHuge = 2u << 20;
  auto memory = AnonymousMemory::Map(4 * kHuge, Pages::kSmall);
  ASSERT_TRUE(memory.ok());
  uint8_t* const base = memory->data();
  AdviseHugePages(base + 1, 2 * kHuge - 2);  // none is whole
  EXPECT_FALSE(HugePagesAskedAt(base + kHuge));
  AdviseHugePages(base + 1, 3 * kHuge);
  EXPECT_FALSE(HugePagesAskedAt(base));
  EXPECT_TRUE(HugePagesAskedAt(base + kHuge));
  EXPECT_TRUE(HugePagesAskedAt(base + 3 * kHuge - 1));
  EXPECT_FALSE(HugePagesAskedAt(base + 3 * kHuge));
}

}  // namespace
}  // namespace ecphory
