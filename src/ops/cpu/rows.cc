#include <algorithm>

#include "base/highway_config.h"
#include "tensor/float_codec.h"
#define HWY_TARGET_INCLUDE "ops/cpu/rows.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/row_encode-inl.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

void RoundBf16Values(float* x, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(RoundBf16(Load(x + i)), x + i);
  if (i < n) StorePartial(RoundBf16(LoadPartial(x + i, n - i)), x + i, n - i);
}

void RoundFp4Blocks(float* x, size_t n) {
  for (size_t i = 0; i < n; i += kCodeBlock) RoundFp4Block(x + i);
}

void EncodeFp8Row(const float* x, size_t dim, uint8_t* out) {
  for (size_t i = 0; i < dim; i += kCodeBlock) {
    EncodeFp8Block(x + i, out + i, out + dim + i / kCodeBlock);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {

HWY_EXPORT(RoundBf16Values);
HWY_EXPORT(RoundFp4Blocks);
HWY_EXPORT(EncodeFp8Row);

// The scalar encoders take about as long as this many multiply-adds a value,
// those in lanes as the second.
constexpr size_t kEncodeWork = 32;
constexpr size_t kLaneEncodeWork = 8;

// The format of every layer's window is encoded in lanes; those of compressed
// rows, of which a few layers make one a token, are not.
void Encode(RowFormat format, const float* x, size_t dim, uint8_t* out) {
  if (format == RowFormat::kFp8Block32) {
    return HWY_DYNAMIC_DISPATCH(EncodeFp8Row)(x, dim, out);
  }
  EncodeRow(format, x, dim, out);
}

// Of the formats that are rounded in place only that of index queries comes in
// numbers.
void Round(RowFormat format, float* x, size_t rows, size_t dim) {
  struct Codes;
  if (format == RowFormat::kFp4Block32) {
    return HWY_DYNAMIC_DISPATCH(RoundFp4Blocks)(x, rows * dim);
  }
  uint8_t* const codes = ThreadScratch<Codes, uint8_t>(RowBytes(format, dim));
  for (size_t i = 0; i < rows; ++i, x += dim) {
    Encode(format, x, dim, codes);
    DecodeRow(format, codes, dim, x);
  }
}

}  // namespace

void CpuStoreRows(const StoreRowsArgs& args, ThreadPool& pool) {
  const size_t work =
      args.format == RowFormat::kFp8Block32 ? kLaneEncodeWork : kEncodeWork;
  const size_t row_bytes = RowBytes(args.format, args.dim);
  pool.ParallelFor(args.rows, GrainFor(args.dim * work),
                   [&](size_t begin, size_t end, size_t) {
                     for (size_t i = begin; i < end; ++i) {
                       const uint64_t row =
                           (args.first_row + i) % args.capacity;
                       Encode(args.format, args.x + i * args.dim, args.dim,
                              args.cache + row * row_bytes);
                     }
                   });
}

void CpuRoundRows(const RoundRowsArgs& args, ThreadPool& pool) {
  if (args.format == RowFormat::kF32) return;
  const size_t work =
      args.format == RowFormat::kFp4Block32 ? kLaneEncodeWork : kEncodeWork;
  pool.ParallelFor(args.rows, GrainFor(args.dim * work),
                   [&](size_t begin, size_t end, size_t) {
                     Round(args.format, args.x + begin * args.dim, end - begin,
                           args.dim);
                   });
}

void RoundRunToBf16(float* x, size_t n) {
  HWY_DYNAMIC_DISPATCH(RoundBf16Values)(x, n);
}

void CpuRoundBf16(const RoundBf16Args& args, ThreadPool& pool) {
  pool.ParallelFor(args.count, GrainFor(2),
                   [&](size_t begin, size_t end, size_t) {
                     RoundRunToBf16(args.x + begin, end - begin);
                   });
}

// Plain shifts, which any compiler does in lanes.
}  // namespace ecphory
#endif
