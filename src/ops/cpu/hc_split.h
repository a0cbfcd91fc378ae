// How hc_split cuts its work, said once for every Highway target.
#pragma once

#include <cstddef>

#include "base/ceil_div.h"
#include "base/thread_pool.h"
#include "ops/hyper_connection.h"

namespace ecphory {

// Columns that are taken at once. The sums of a chunk are made in registers and
// then added to those of the chunks before. At 4 streams a tile's rows of fn
// and 4 tokens are 12 + 8 KB, which leaves room in L1.
inline constexpr size_t kHcChunk = 128;
// How many chunks ahead rows of fn are asked for that lie apart: 4 KB of each,
// some 200 ns of what a core reads.
inline constexpr size_t kHcChunksAhead = 8;
// Chunks of a run: half a page of each stream, so that memory is read in runs.
// Their part of fn, 200 KB at 4 streams, stays in the second-level cache while
// all tokens pass; the whole of it, 2 MB at 5120 columns, would come from the
// third level for every few tokens (Xeon, 16 threads: 64 tokens 1.75 times the
// time, 512 tokens 1.1 times).
inline constexpr size_t kHcRunChunks = 4;
// Rows of fn in a tile.
inline constexpr size_t kHcRowTile = 6;
// Lanes that are reserved for a sum before it is reduced.
inline constexpr size_t kHcSumLanes = 16;

inline size_t HcChunks(size_t dim) { return CeilDiv(dim, kHcChunk); }
inline size_t HcRuns(size_t dim) {
  return CeilDiv(HcChunks(dim), kHcRunChunks);
}

// A token's sums before they are reduced: a vector for each row of fn, for the
// missing rows of the last tile, and for the squares; a multiple of 4 of them.
inline size_t HcSquaresAt(size_t rows) {
  return CeilDiv(rows, kHcRowTile) * kHcRowTile;
}
inline size_t HcSumVectors(size_t rows) {
  return CeilDiv(HcSquaresAt(rows) + 1, 4) * 4;
}
inline size_t HcSumsStride(size_t rows) {
  return HcSumVectors(rows) * kHcSumLanes;
}

// fn in a format of one code after the other, which the kernels read: itself,
// or unpacked into memory of the calling thread that the next call reuses.
Matrix HcPlainMatrix(const Matrix& fn, ThreadPool& pool);

// args.fn, plain, as a panel (hc_panel.cc) in such memory. Rows end in whole
// vectors, and the last tile's missing rows repeat the last one.
const float* HcPanel(const HcSplitArgs& args, ThreadPool& pool);

}  // namespace ecphory
