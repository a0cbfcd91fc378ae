// The store hands its rows to this backend as bf16 (engram/row_decode.h is the
// vector decoder of the other codecs), so that only those have to be fast.
#include "ops/table_rows.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "tensor/float_codec.h"

namespace ecphory {

namespace {

constexpr uint16_t kBf16Infinity = 0x7f80;

bool DecodeBf16(const uint8_t* row, size_t width, float* x) {
  uint16_t largest = 0;
  for (size_t i = 0; i < width; ++i) {
    uint16_t bits;
    std::memcpy(&bits, row + i * sizeof(bits), sizeof(bits));
    x[i] = BF16ToF32(bits);
    largest = std::max(largest, static_cast<uint16_t>(bits & 0x7fff));
  }
  return largest < kBf16Infinity;
}

bool DecodeOne(const TableRows& from, uint64_t row, size_t width, float* x) {
  const uint8_t* const codes = from.rows + row * from.row_stride;
  if (from.codec == TableCodec::kBf16) return DecodeBf16(codes, width, x);
  const uint8_t* const scales =
      from.scales == nullptr ? nullptr : from.scales + row * from.scale_stride;
  return DecodeTableRow(from.codec, codes, scales, width, x);
}

}  // namespace

void CpuDecodeRows(const DecodeRowsArgs& args, ThreadPool& pool) {
  std::atomic<bool> broken = false;
  pool.ParallelFor(
      args.count, GrainFor(2 * args.width),
      [&](size_t begin, size_t end, size_t) {
        for (size_t i = begin; i < end; ++i) {
          const uint64_t row =
              args.from.numbers == nullptr ? i : args.from.numbers[i];
          if (!DecodeOne(args.from, row, args.width, args.x + i * args.width)) {
            broken.store(true, std::memory_order_relaxed);
          }
        }
      });
  if (broken) *args.broken = 1;
}

}  // namespace ecphory
