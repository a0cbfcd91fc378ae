// The row cache's own time: a row found, not found and kept; and 432 rows found
// and decoded to bf16, beside the least that could cost (copying the raw rows
// from one block and decoding them).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "base/check.h"
#include "engram/row_cache.h"
#include "engram/row_decode.h"
#include "tensor/table_codec.h"

namespace ecphory::engram {
namespace {

constexpr size_t kWidth = 256;
constexpr size_t kRowBytes = 264;
constexpr uint64_t kTableRows = 384'006'168;
constexpr size_t kBatch = 432;  // 9 tokens, both tables

// Finite values: no NaN code, scales in the middle of their range.
std::vector<uint8_t> RandomRows(size_t rows) {
  std::minstd_rand rng(2);
  std::vector<uint8_t> bytes(rows * kRowBytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint32_t random = rng() >> 8;
    const bool is_code = i % kRowBytes < kWidth;
    bytes[i] =
        static_cast<uint8_t>(is_code ? random & 0xbf : 100 + random % 50);
  }
  return bytes;
}

// A full cache, and rows that it holds, in random order.
class FullCache {
 public:
  explicit FullCache(int64_t megabytes) {
    const std::vector<RowCacheTable> tables = {{kTableRows, kRowBytes}};
    auto cache =
        RowCache::Create(static_cast<uint64_t>(megabytes) << 20, tables);
    ECPHORY_CHECK(cache.ok());
    cache_ = std::move(cache).value();
    const std::vector<uint8_t> bytes = RandomRows(1024);
    std::vector<uint8_t> out(kRowBytes);
    const uint64_t offered = 2 * cache_->capacity(0);
    for (uint64_t row = 0; row < offered; ++row) {
      cache_->Insert(0, row, bytes.data() + row % 1024 * kRowBytes);
    }
    for (uint64_t row = 0; row < offered; ++row) {
      if (cache_->Find(0, row, out.data())) held_.push_back(row);
    }
    std::shuffle(held_.begin(), held_.end(), std::mt19937(3));
  }
  RowCache& cache() { return *cache_; }
  const std::vector<uint64_t>& held() const { return held_; }

 private:
  std::unique_ptr<RowCache> cache_;
  std::vector<uint64_t> held_;
};

void BM_FindHit(benchmark::State& state) {
  FullCache full(state.range(0));
  std::vector<uint8_t> out(kRowBytes);
  size_t i = 0;
  for (auto _ : state) {
    i = i + 1 == full.held().size() ? 0 : i + 1;
    benchmark::DoNotOptimize(full.cache().Find(0, full.held()[i], out.data()));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_FindHit)->ArgName("MB")->Arg(1)->Arg(16)->Arg(256);

void BM_FindMiss(benchmark::State& state) {
  FullCache full(state.range(0));
  std::vector<uint8_t> out(kRowBytes);
  uint64_t row = kTableRows / 2;
  for (auto _ : state) {
    benchmark::DoNotOptimize(full.cache().Find(0, ++row, out.data()));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_FindMiss)->ArgName("MB")->Arg(1)->Arg(16)->Arg(256);

void BM_Insert(benchmark::State& state) {
  FullCache full(state.range(0));
  const std::vector<uint8_t> bytes = RandomRows(1);
  uint64_t row = kTableRows / 2;
  for (auto _ : state) full.cache().Insert(0, ++row, bytes.data());
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_Insert)->ArgName("MB")->Arg(1)->Arg(16)->Arg(256);

bool Decode(const uint8_t* rows, size_t count, std::vector<uint16_t>* out) {
  bool whole = true;
  for (size_t i = 0; i < count; ++i) {
    whole &= DecodeTableRowFast(TableCodec::kRow264, rows + i * kRowBytes,
                                nullptr, kWidth, out->data() + i * kWidth);
  }
  return whole;
}

void BM_CacheAndDecode(benchmark::State& state) {
  FullCache full(state.range(0));
  std::vector<uint8_t> raw(kBatch * kRowBytes), found(kBatch);
  std::vector<uint16_t> out(kBatch * kWidth);
  const size_t batches = full.held().size() / kBatch;
  size_t i = 0;
  for (auto _ : state) {
    i = i + 1 == batches ? 0 : i + 1;
    const std::span<const uint64_t> rows(full.held().data() + i * kBatch,
                                         kBatch);
    ECPHORY_CHECK(full.cache().FindBatch(0, rows, raw.data(), found.data()) ==
                  kBatch);
    ECPHORY_CHECK(Decode(raw.data(), kBatch, &out));
    benchmark::DoNotOptimize(out.data());
  }
  state.SetItemsProcessed(state.iterations() * int64_t{kBatch});
}
BENCHMARK(BM_CacheAndDecode)->ArgName("MB")->Arg(1)->Arg(16)->Arg(256);

void BM_CopyAndDecode(benchmark::State& state) {
  const size_t rows = (static_cast<size_t>(state.range(0)) << 20) / kRowBytes;
  const std::vector<uint8_t> from = RandomRows(rows);
  std::vector<uint8_t> raw(kBatch * kRowBytes);
  std::vector<uint16_t> out(kBatch * kWidth);
  size_t i = 0;
  for (auto _ : state) {
    i = i + 1 == rows / kBatch ? 0 : i + 1;
    std::memcpy(raw.data(), from.data() + i * raw.size(), raw.size());
    ECPHORY_CHECK(Decode(raw.data(), kBatch, &out));
    benchmark::DoNotOptimize(out.data());
  }
  state.SetItemsProcessed(state.iterations() * int64_t{kBatch});
}
BENCHMARK(BM_CopyAndDecode)->ArgName("MB")->Arg(1)->Arg(16)->Arg(256);

}  // namespace
}  // namespace ecphory::engram

BENCHMARK_MAIN();
