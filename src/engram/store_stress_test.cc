// Many sequences at once that look rows up, wait, look and cancel at random.
// ECPHORY_STRESS_SECONDS makes it longer.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engram/store.h"
#include "engram/store_testing.h"
#include "io/test_directory.h"

namespace ecphory::engram {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kRows = 20000;
constexpr uint32_t kWidth = 64;
constexpr int kSequences = 8;

double StressSeconds() {
  const char* seconds = std::getenv("ECPHORY_STRESS_SECONDS");
  return seconds != nullptr ? std::atof(seconds) : 0.6;
}

// One sequence: up to four lookups open, each row checked that arrives.
class Sequence {
 public:
  Sequence(Store* store, const TestTable* table, uint32_t seed)
      : store_(store), table_(table), rng_(seed) {}

  void Step() {
    const size_t index = rng_() % lookups_.size();
    Lookup& lookup = lookups_[index];
    if (lookup.ticket == 0) return Submit(&lookup);
    switch (rng_() % 4) {
      case 0: (void)store_->Ready(lookup.ticket); return;
      case 1: store_->Cancel(lookup.ticket); break;
      default: Wait(&lookup); break;
    }
    // Whatever was cancelled must not write here any more.
    std::fill(lookup.out.begin(), lookup.out.end(), 0.5f);
    lookup.ticket = 0;
  }

  void End() {
    for (Lookup& lookup : lookups_) store_->Cancel(lookup.ticket);
  }

 private:
  struct Lookup {
    Ticket ticket = 0;
    size_t table = 0;
    std::vector<uint64_t> rows;
    std::vector<float> out;
  };

  void Submit(Lookup* lookup) {
    const size_t count = rng_() % 16 == 0 ? 1000 : rng_() % 48;
    lookup->table = rng_() % store_->tables();
    lookup->rows.resize(count);
    for (uint64_t& row : lookup->rows) row = rng_() % kRows;
    lookup->out.assign(count * kWidth, 0.25f);
    lookup->ticket =
        store_->Submit({lookup->table, lookup->rows, lookup->out.data()});
  }

  void Wait(Lookup* lookup) {
    const Status status = store_->Wait(lookup->ticket);
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (size_t i = 0; i < lookup->rows.size(); i += 7) {
      const std::vector<float> expected = table_->Row(lookup->rows[i]);
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(),
                             lookup->out.begin() + i * kWidth));
    }
  }

  Store* const store_;
  const TestTable* const table_;
  std::mt19937 rng_;
  std::vector<Lookup> lookups_{4};
};

class StoreStress : public testing::TestWithParam<IoMode> {};

TEST_P(StoreStress, SequencesWaitAndCancel) {
  const TestTable table(TableCodec::kRow264, kRows, kWidth, "t");
  const TestDirectory directory;
  const std::string path = directory / "table";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(table.main_bytes().data()),
             static_cast<std::streamsize>(table.main_bytes().size()));
  const TableSource source = table.Source(*OpenFile(path));
  auto store = Store::Open({source, source}, {.io = GetParam(),
                                              .io_threads = 4,
                                              .queue_depth = 24,
                                              .cache_bytes = 200'000});
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  const auto end =
      Clock::now() + std::chrono::duration<double>(StressSeconds());
  std::vector<std::thread> threads;
  std::atomic<uint64_t> steps{0};
  for (uint32_t i = 0; i < kSequences; ++i) {
    threads.emplace_back([&, i] {
      Sequence sequence(store->get(), &table, i);
      while (Clock::now() < end && !testing::Test::HasFailure()) {
        sequence.Step();
        ++steps;
      }
      sequence.End();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(steps, 100u);
  RecordProperty("steps", static_cast<int>(steps));
}

INSTANTIATE_TEST_SUITE_P(WaysIn, StoreStress,
                         testing::Values(IoMode::kUring, IoMode::kPread,
                                         IoMode::kBuffered, IoMode::kMmap,
                                         IoMode::kRam),
                         [](const auto& test) {
                           return std::string(IoModeName(test.param));
                         });

}  // namespace
}  // namespace ecphory::engram
