// Engram at the released sizes: hashing, decoding and looking up the 2 x 24
// rows of a token, with tables of 53 MB that lie in the page cache.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "engram/hasher.h"
#include "engram/layout.h"
#include "engram/row_codec.h"
#include "engram/store.h"
#include "io/file.h"
#include "io/test_directory.h"

namespace ecphory::engram {
namespace {

constexpr uint32_t kCompressedVocab = 99'092;
constexpr uint32_t kWidth = 256;
constexpr size_t kColumns = 24;
constexpr uint64_t kTableRows = 200'000;
const size_t kRowBytes = TableRowBytes(TableCodec::kRow264, kWidth);

template <typename T>
T Value(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

LayoutSpec ReleasedSpec() {
  return {{1, 14}, 4, 8, 16'000'000, kCompressedVocab};
}

void BM_DeriveLayout(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(DeriveLayout(ReleasedSpec()));
  }
}
BENCHMARK(BM_DeriveLayout)->Unit(benchmark::kMicrosecond);

void BM_Hash(benchmark::State& state) {
  std::vector<int32_t> map(kCompressedVocab);
  std::iota(map.begin(), map.end(), 0);
  const Hasher hasher =
      Value(Hasher::Create(Value(DeriveLayout(ReleasedSpec())), map, 2));
  const size_t tokens = static_cast<size_t>(state.range(0));
  std::mt19937 rng(1);
  std::vector<int32_t> ids(tokens);
  for (int32_t& id : ids) id = static_cast<int32_t>(rng() % kCompressedVocab);
  std::vector<uint64_t> first(tokens * kColumns), second(tokens * kColumns);
  const std::span<uint64_t> rows[] = {first, second};
  History history;
  for (auto _ : state) {
    hasher.Hash(ids, &history, rows);
    benchmark::DoNotOptimize(first.data());
    benchmark::DoNotOptimize(second.data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_Hash)->ArgName("tokens")->Arg(1)->Arg(256);

// Random finite values: no NaN code, scales in the middle of their range.
std::vector<uint8_t> RandomRows(uint64_t rows) {
  std::mt19937 rng(2);
  std::vector<uint8_t> bytes(rows * kRowBytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool is_code = i % kRowBytes < kWidth;
    bytes[i] = static_cast<uint8_t>(is_code ? rng() & 0xbf : 100 + rng() % 50);
  }
  return bytes;
}

void BM_DecodeRow(benchmark::State& state) {
  const std::vector<uint8_t> rows = RandomRows(kColumns);
  std::vector<float> out(kColumns * kWidth);
  for (auto _ : state) {
    for (size_t i = 0; i < kColumns; ++i) {
      benchmark::DoNotOptimize(
          DecodeTableRow(TableCodec::kRow264, rows.data() + i * kRowBytes,
                         nullptr, kWidth, out.data() + i * kWidth));
    }
  }
  state.SetItemsProcessed(state.iterations() * kColumns);
}
BENCHMARK(BM_DecodeRow);

// Two tables in one file and a store over them.
class Tables {
 public:
  explicit Tables(uint32_t io_threads) {
    const std::vector<uint8_t> bytes = RandomRows(2 * kTableRows);
    const std::string path = directory_ / "tables";
    auto writer = Value(AtomicFileWriter::Create(path));
    ECPHORY_CHECK(writer->Write(bytes).ok() && writer->Commit().ok());
    std::vector<TableSource> sources(2);
    for (size_t i = 0; i < sources.size(); ++i) {
      sources[i].name = "table " + std::to_string(i);
      sources[i].rows = kTableRows;
      sources[i].width = kWidth;
      sources[i].file = Value(OpenFile(path));
      sources[i].offset = i * kTableRows * kRowBytes;
    }
    store_ = Value(Store::Open(std::move(sources), {.io_threads = io_threads}));
  }
  Store& store() { return *store_; }

 private:
  TestDirectory directory_;
  std::unique_ptr<Store> store_;
};

void Spin(std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

// A forward pass over `tokens`: both tables are submitted, the caller computes
// for `compute_us`, then waits. `wait_us` is the time it stood still a pass.
void BM_Lookup(benchmark::State& state) {
  const size_t rows = static_cast<size_t>(state.range(0)) * kColumns;
  const std::chrono::microseconds compute(state.range(2));
  Tables tables(static_cast<uint32_t>(state.range(1)));
  Store& store = tables.store();
  std::mt19937 rng(3);
  std::vector<uint64_t> first(rows), second(rows);
  std::vector<float> out(2 * rows * kWidth);
  store.ResetStats();
  for (auto _ : state) {
    for (uint64_t& row : first) row = rng() % kTableRows;
    for (uint64_t& row : second) row = rng() % kTableRows;
    const Ticket one = store.Submit({0, first, out.data()});
    const Ticket two = store.Submit({1, second, out.data() + rows * kWidth});
    Spin(compute);
    ECPHORY_CHECK(store.Wait(one).ok() && store.Wait(two).ok());
  }
  state.counters["wait_us"] = benchmark::Counter(
      store.stats().wait_seconds * 1e6, benchmark::Counter::kAvgIterations);
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(2 * rows));
}
BENCHMARK(BM_Lookup)
    ->ArgNames({"tokens", "io_threads", "compute_us"})
    ->ArgsProduct({{1}, {1, 4, 8}, {0, 200}})
    ->ArgsProduct({{256}, {1, 4, 8}, {0}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

}  // namespace
}  // namespace ecphory::engram

BENCHMARK_MAIN();
