#include "ops/rows.h"

#include <vector>

#include "ops/ref/math.h"
#include "ops/ref/ref_ops.h"

namespace ecphory::ref {

void StoreRows(const StoreRowsArgs& args, ThreadPool&) {
  const size_t row_bytes = RowBytes(args.format, args.dim);
  for (size_t i = 0; i < args.rows; ++i) {
    const uint64_t slot = (args.first_row + i) % args.capacity;
    EncodeRow(args.format, args.x + i * args.dim, args.dim,
              args.cache + slot * row_bytes);
  }
}

void RoundRows(const RoundRowsArgs& args, ThreadPool&) {
  std::vector<uint8_t> row(RowBytes(args.format, args.dim));
  for (size_t i = 0; i < args.rows; ++i) {
    float* x = args.x + i * args.dim;
    EncodeRow(args.format, x, args.dim, row.data());
    DecodeRow(args.format, row.data(), args.dim, x);
  }
}

void RoundBf16(const RoundBf16Args& args, ThreadPool&) {
  RoundValues(args.x, args.count);
}

}  // namespace ecphory::ref
