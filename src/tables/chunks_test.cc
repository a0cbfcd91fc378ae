#include "tables/chunks.h"

#include <gtest/gtest.h>

#include <new>

namespace ecphory::tables {
namespace {

// On the caller's thread and on a helper's: neither may end the process.
TEST(ForEachChunk, MemoryThatRunsOutIsAnError) {
  for (const size_t failing : {0, 1, 5}) {
    const Status status = ForEachChunk(6, 3, [&](size_t chunk, size_t) {
      if (chunk == failing) throw std::bad_alloc();
      return Status();
    });
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << failing;
  }
}

TEST(ForEachChunk, TheFirstErrorIsKept) {
  const Status status = ForEachChunk(100, 4, [](size_t chunk, size_t) {
    return chunk < 50 ? Status() : Corrupt("chunk %zu", chunk);
  });
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace ecphory::tables
