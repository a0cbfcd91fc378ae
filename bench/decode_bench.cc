// Decoding table rows against a copy of the same bytes: the packed row and the
// decoded one, in a working set that fits the L1 or L2 cache, or none.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "engram/row_decode.h"
#include "tensor/table_codec.h"

namespace ecphory::engram {
namespace {

struct Shape {
  TableCodec codec;
  size_t width;
};
constexpr Shape kShapes[] = {
    {TableCodec::kRow264, 256}, {TableCodec::kReleasedPair, 256},
    {TableCodec::kBf16, 160},   {TableCodec::kQ8_0, 160},
    {TableCodec::kQ4_0, 160},   {TableCodec::kQ4_1, 160},
};

// Scales of a row that lie with its codes or behind them.
size_t StoredBytes(const Shape& shape) {
  return TableRowBytes(shape.codec, shape.width) +
         TableScaleBytes(shape.codec, shape.width);
}

// Random finite rows, packed one behind the other.
std::vector<uint8_t> RandomRows(const Shape& shape, size_t rows) {
  std::mt19937 rng(1);
  std::vector<uint8_t> bytes(rows * StoredBytes(shape));
  const bool e4m3 = shape.codec == TableCodec::kRow264 ||
                    shape.codec == TableCodec::kReleasedPair;
  // No e4m3 NaN, and no bf16 or f16 with a full exponent.
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng() & 0xbf);
  if (!e4m3) return bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i % StoredBytes(shape) >= shape.width) {
      bytes[i] = static_cast<uint8_t>(100 + rng() % 50);
    }
  }
  return bytes;
}

// As many rows as fill `working_set` with input and output together.
template <typename T>
size_t RowsIn(const Shape& shape, size_t working_set) {
  return working_set / (StoredBytes(shape) + shape.width * sizeof(T));
}

void SetRate(const Shape& shape, size_t rows, size_t row_bytes,
             benchmark::State& state) {
  state.SetLabel(TableCodecName(shape.codec));
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(rows));
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>(rows * row_bytes));
}

template <typename T>
void BM_Decode(benchmark::State& state) {
  const Shape& shape = kShapes[state.range(0)];
  const size_t rows = RowsIn<T>(shape, static_cast<size_t>(state.range(1)));
  const size_t stored = StoredBytes(shape);
  const size_t main = TableRowBytes(shape.codec, shape.width);
  const std::vector<uint8_t> in = RandomRows(shape, rows);
  std::vector<T> out(rows * shape.width);
  for (auto _ : state) {
    bool ok = true;
    for (size_t i = 0; i < rows; ++i) {
      const uint8_t* row = in.data() + i * stored;
      ok &= DecodeTableRowFast(shape.codec, row, row + main, shape.width,
                               out.data() + i * shape.width);
    }
    ECPHORY_CHECK(ok);
    benchmark::ClobberMemory();
  }
  SetRate(shape, rows, stored + shape.width * sizeof(T), state);
}

// What decoding is measured against: as many bytes copied as the row has,
// packed and decoded, row by row.
template <typename T>
void BM_Copy(benchmark::State& state) {
  const Shape& shape = kShapes[state.range(0)];
  const size_t bytes = StoredBytes(shape) + shape.width * sizeof(T);
  const size_t rows = RowsIn<T>(shape, static_cast<size_t>(state.range(1)));
  std::vector<uint8_t> in((rows / 2 + 1) * bytes, 1);
  std::vector<uint8_t> out(in.size());
  for (auto _ : state) {
    for (size_t i = 0; i < rows; ++i) {
      std::memcpy(out.data() + i / 2 * bytes, in.data() + i / 2 * bytes, bytes);
      benchmark::ClobberMemory();
    }
  }
  SetRate(shape, rows, bytes, state);
}

void Cases(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"codec", "bytes"});
  for (int64_t set : {24 << 10, 512 << 10, 128 << 20}) {
    for (int64_t i = 0; i < std::ssize(kShapes); ++i) bench->Args({i, set});
  }
}
BENCHMARK_TEMPLATE(BM_Decode, uint16_t)->Apply(Cases);
BENCHMARK_TEMPLATE(BM_Copy, uint16_t)->Apply(Cases);
BENCHMARK_TEMPLATE(BM_Decode, float)->Apply(Cases);
BENCHMARK_TEMPLATE(BM_Copy, float)->Apply(Cases);

}  // namespace
}  // namespace ecphory::engram

BENCHMARK_MAIN();
