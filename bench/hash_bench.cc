// Hashing n-grams to rows at the released sizes, one core: 2 x 24 rows a token.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "engram/hasher.h"
#include "engram/layout.h"

namespace ecphory::engram {
namespace {

constexpr uint32_t kCompressedVocab = 99'092;

template <typename T>
T Value(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

Layout ReleasedLayout() {
  return Value(DeriveLayout({{1, 14}, 4, 8, 16'000'000, kCompressedVocab}));
}

void SetRows(benchmark::State& state, const Layout& layout, size_t tokens) {
  const size_t rows = tokens * layout.layers.size() * layout.columns();
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(rows));
}

void BM_Hash(benchmark::State& state) {
  std::vector<int32_t> map(kCompressedVocab);
  std::iota(map.begin(), map.end(), 0);
  const Hasher hasher = Value(Hasher::Create(ReleasedLayout(), map, 2));
  const size_t tokens = static_cast<size_t>(state.range(0));
  const size_t columns = hasher.layout().columns();
  std::mt19937 rng(1);
  std::vector<int32_t> ids(tokens);
  for (int32_t& id : ids) id = static_cast<int32_t>(rng() % kCompressedVocab);
  std::vector<uint64_t> first(tokens * columns), second(tokens * columns);
  const std::span<uint64_t> rows[] = {first, second};
  History history;
  for (auto _ : state) {
    hasher.Hash(ids, &history, rows);
    benchmark::ClobberMemory();
  }
  SetRows(state, hasher.layout(), tokens);
}
BENCHMARK(BM_Hash)->ArgName("tokens")->Arg(1)->Arg(64)->Arg(4096);

// The same remainders with the processor's division, for comparison.
void BM_Divide(benchmark::State& state) {
  const Layout layout = ReleasedLayout();
  const size_t tokens = static_cast<size_t>(state.range(0));
  std::mt19937_64 rng(1);
  std::vector<uint64_t> mixed(tokens), rows(layout.columns());
  for (uint64_t& x : mixed) x = rng() >> 1;
  for (auto _ : state) {
    for (uint64_t x : mixed) {
      for (const LayerLayout& layer : layout.layers) {
        for (size_t i = 0; i < rows.size(); ++i) {
          rows[i] = x % layer.primes[i] + layer.offsets[i];
        }
        benchmark::DoNotOptimize(rows.data());
        benchmark::ClobberMemory();
      }
    }
  }
  SetRows(state, layout, tokens);
}
BENCHMARK(BM_Divide)->ArgName("tokens")->Arg(64);

}  // namespace
}  // namespace ecphory::engram

BENCHMARK_MAIN();
