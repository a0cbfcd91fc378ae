// A hyper-connection's fn as the tiles of hc_split take it: chunk by chunk of
// columns, tile by tile of rows, the vectors of a tile's rows side by side.
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/hc_panel.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <algorithm>
#include "hwy/highway.h"

#include "base/ceil_div.h"
#include "ops/cpu/hc_rows-inl.h"
#include "ops/cpu/hc_split.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// n < kLanes values in a format of one code after the other, zero behind them.
template <class Codec>
HWY_INLINE VF DecodePartial(const uint8_t* p, size_t n) {
  uint8_t codes[kLanes * Codec::kBytes] = {};
  std::memcpy(codes, p, n * Codec::kBytes);
  return Codec::Decode(codes);
}

template <class Codec>
HWY_INLINE float* PackRow(const uint8_t* p, size_t columns, float* out) {
  size_t i = 0;
  for (; i + kLanes <= columns; i += kLanes, out += kHcRowTile * kLanes) {
    Store(Codec::Decode(p + i * Codec::kBytes), out);
  }
  if (i < columns) {
    Store(DecodePartial<Codec>(p + i * Codec::kBytes, columns - i), out);
    out += kHcRowTile * kLanes;
  }
  return out;
}

// Chunks [begin, end) of fn into the panel.
template <class Codec>
HWY_INLINE void PackChunksOf(const HcSplitArgs& args, size_t begin, size_t end,
                             float* panel) {
  const size_t tiles = CeilDiv(args.fn.rows, kHcRowTile);
  for (size_t c = begin; c < end; ++c) {
    const Chunk chunk(args, c);
    const size_t row_values = args.streams * chunk.vectors * kLanes;
    float* const first =
        panel + tiles * kHcRowTile * args.streams * chunk.begin;
    for (size_t r = 0; r < tiles * kHcRowTile; ++r) {
      const uint8_t* const row =
          RowData(args.fn, std::min(r, args.fn.rows - 1));
      float* out = first + r / kHcRowTile * kHcRowTile * row_values +
                   r % kHcRowTile * kLanes;
      for (size_t s = 0; s < args.streams; ++s) {
        const size_t column = s * args.dim + chunk.begin;
        out = PackRow<Codec>(row + column * Codec::kBytes,
                             chunk.end - chunk.begin, out);
      }
    }
  }
}

void PackChunks(const HcSplitArgs& args, size_t begin, size_t end,
                float* panel) {
  WithCodec(args.fn.format, [&](auto codec) HWY_ATTR {
    PackChunksOf<decltype(codec)>(args, begin, end, panel);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(PackChunks);
}  // namespace

Matrix HcPlainMatrix(const Matrix& fn, ThreadPool& pool) {
  switch (fn.format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16: return fn;
    default: break;
  }
  struct Unpacked;
  float* const values = ThreadScratch<Unpacked>(fn.rows * fn.cols);
  pool.ParallelFor(fn.rows, GrainFor(fn.cols),
                   [&](size_t begin, size_t end, size_t) {
                     for (size_t r = begin; r < end; ++r) {
                       DequantizeRow(fn, r, values + r * fn.cols);
                     }
                   });
  return {.format = WeightFormat::kF32,
          .rows = fn.rows,
          .cols = fn.cols,
          .data = reinterpret_cast<const uint8_t*>(values)};
}

const float* HcPanel(const HcSplitArgs& args, ThreadPool& pool) {
  struct Purpose;
  const size_t rows = CeilDiv(args.fn.rows, kHcRowTile) * kHcRowTile;
  const size_t chunks = HcChunks(args.dim);
  float* const panel =
      ThreadScratch<Purpose>(rows * args.streams * chunks * kHcChunk);
  pool.ParallelFor(chunks, GrainFor(rows * args.streams * kHcChunk),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(PackChunks)(args, begin, end, panel);
                   });
  return panel;
}

}  // namespace ecphory
#endif
