#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/rows.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {

HWY_EXPORT(RoundBf16Values);

// The scalar encoders take about as long as this many multiply-adds a value.
constexpr size_t kEncodeWork = 32;

}  // namespace

void CpuStoreRows(const StoreRowsArgs& args, ThreadPool& pool) {
  const size_t row_bytes = RowBytes(args.format, args.dim);
  pool.ParallelFor(args.rows, GrainFor(args.dim * kEncodeWork),
                   [&](size_t begin, size_t end, size_t) {
                     for (size_t i = begin; i < end; ++i) {
                       const uint64_t row =
                           (args.first_row + i) % args.capacity;
                       EncodeRow(args.format, args.x + i * args.dim, args.dim,
                                 args.cache + row * row_bytes);
                     }
                   });
}

void CpuRoundRows(const RoundRowsArgs& args, ThreadPool& pool) {
  if (args.format == RowFormat::kF32) return;
  pool.ParallelFor(args.rows, GrainFor(args.dim * kEncodeWork),
                   [&](size_t begin, size_t end, size_t) {
                     struct Codes;
                     uint8_t* const codes = ThreadScratch<Codes, uint8_t>(
                         RowBytes(args.format, args.dim));
                     for (size_t i = begin; i < end; ++i) {
                       float* const x = args.x + i * args.dim;
                       EncodeRow(args.format, x, args.dim, codes);
                       DecodeRow(args.format, codes, args.dim, x);
                     }
                   });
}

void CpuRoundBf16(const RoundBf16Args& args, ThreadPool& pool) {
  pool.ParallelFor(args.count, GrainFor(2),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(RoundBf16Values)
                     (args.x + begin, end - begin);
                   });
}

}  // namespace ecphory
#endif
