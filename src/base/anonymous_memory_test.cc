#include "base/anonymous_memory.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ecphory
