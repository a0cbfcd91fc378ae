// Counts allocations of the whole test program, so it has its own file.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "ecphory/engram.h"

namespace {
std::atomic<uint64_t> allocations{0};
}

// Not inlined: GCC takes malloc and delete in one function for a mismatch.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace {

// A decode step: one token hashed, both tables asked for and joined.
TEST(Allocation, NoneForATokenOnceTheBuffersHaveGrown) {
  const std::string path = std::string(ECPHORY_TEST_DATA) + "/golden/v41/A";
  ecphory_engram_options options;
  ecphory_engram_options_init(&options, sizeof(options));
  options.io_mode = ECPHORY_ENGRAM_IO_PREAD;
  options.io_threads = 2;
  ecphory_engram* engram = nullptr;
  ecphory_engram_sequence* sequence = nullptr;
  ASSERT_EQ(ecphory_engram_open(path.c_str(), &options, &engram),
            ECPHORY_ENGRAM_OK);
  ASSERT_EQ(ecphory_engram_sequence_create(engram, &sequence),
            ECPHORY_ENGRAM_OK);
  constexpr size_t kColumns = 6, kWidth = 64;
  uint64_t rows[2 * kColumns];
  std::vector<float> values(2 * kColumns * kWidth);
  ecphory_engram_request requests[2] = {};
  for (uint32_t i = 0; i < 2; ++i) {
    requests[i].table = i;
    requests[i].format = ECPHORY_ENGRAM_F32;
    requests[i].rows = rows + i * kColumns;
    requests[i].count = kColumns;
    requests[i].out = values.data() + i * kColumns * kWidth;
    requests[i].out_bytes = kColumns * kWidth * sizeof(float);
  }
  bool ok = true;
  const auto step = [&](int32_t token) {
    ecphory_engram_ticket tickets[2];
    ok =
        ecphory_engram_hash(sequence, &token, nullptr, 1, rows, 2 * kColumns) ==
            ECPHORY_ENGRAM_OK &&
        ecphory_engram_submit_batch(engram, requests, 2, tickets) ==
            ECPHORY_ENGRAM_OK &&
        ecphory_engram_wait(engram, tickets[0], nullptr) == ECPHORY_ENGRAM_OK &&
        ecphory_engram_wait(engram, tickets[1], nullptr) == ECPHORY_ENGRAM_OK &&
        ok;
  };
  for (int32_t token = 0; token < 50; ++token) step(token);
  const uint64_t before = allocations;
  for (int32_t token = 50; token < 350; ++token) step(token);
  EXPECT_EQ(allocations, before);
  EXPECT_TRUE(ok);
  ecphory_engram_sequence_free(&sequence);
  ecphory_engram_close(&engram);
}

}  // namespace
