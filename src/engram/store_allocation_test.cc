// Counts allocations of the whole test program, so it has its own file.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engram/store.h"
#include "engram/store_testing.h"

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

TEST(StoreAllocation, NoneOnceTheBuffersHaveGrown) {
  const TestTable table(TableCodec::kRow264, 500, 64);
  auto store = Store::Open({table.Source(), table.Source()}, {.io_threads = 3});
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  std::vector<uint64_t> rows(48);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = i * 7919 % 500;
  std::vector<float> out(2 * rows.size() * 64);
  bool ok = true;
  const auto step = [&] {
    const Ticket first = (*store)->Submit({0, rows, out.data()});
    const Ticket second =
        (*store)->Submit({1, rows, out.data() + rows.size() * 64});
    ok = (*store)->Wait(first).ok() && (*store)->Wait(second).ok() && ok;
  };
  step();
  const uint64_t before = allocations;
  for (int i = 0; i < 200; ++i) step();
  EXPECT_EQ(allocations, before);
  EXPECT_TRUE(ok);
}

}  // namespace
}  // namespace ecphory::engram
