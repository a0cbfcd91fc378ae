// Counts allocations of the whole test program, so it has its own file.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>
#include <vector>

#include "engram/store.h"
#include "engram/store_testing.h"
#include "io/test_directory.h"

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

namespace ecphory::engram {
namespace {

class StoreAllocation : public testing::TestWithParam<IoMode> {};

TEST_P(StoreAllocation, NoneOnceTheBuffersHaveGrown) {
  const TestTable table(TableCodec::kRow264, 500, 64);
  const TestDirectory directory;
  const std::string path = directory / "table";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(table.main_bytes().data()),
             static_cast<std::streamsize>(table.main_bytes().size()));
  const TableSource source = table.Source(*OpenFile(path));
  // A cache too small for all rows: some are found, some read.
  auto store = Store::Open({source, source}, {.io = GetParam(),
                                              .io_threads = 3,
                                              .queue_depth = 16,
                                              .cache_bytes = 12'000});
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  std::vector<uint64_t> rows(48);
  std::vector<float> out(2 * rows.size() * 64);
  bool ok = true;
  const auto step = [&](uint64_t seed) {
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] = (seed + i * 7919) % 500;
    }
    const LookupRequest requests[] = {{0, rows, out.data()},
                                      {1, rows, out.data() + rows.size() * 64}};
    Ticket tickets[2];
    (*store)->Submit(requests, tickets);
    (void)(*store)->Ready(tickets[1]);
    for (Ticket ticket : tickets) ok = (*store)->Wait(ticket).ok() && ok;
  };
  for (int i = 0; i < 50; ++i) step(i);
  const uint64_t before = allocations;
  for (int i = 0; i < 200; ++i) step(i % 50);
  EXPECT_EQ(allocations, before);
  EXPECT_TRUE(ok);
}

INSTANTIATE_TEST_SUITE_P(WaysIn, StoreAllocation,
                         testing::Values(IoMode::kUring, IoMode::kPread,
                                         IoMode::kBuffered, IoMode::kMmap,
                                         IoMode::kRam),
                         [](const auto& test) {
                           return std::string(IoModeName(test.param));
                         });

}  // namespace
}  // namespace ecphory::engram
