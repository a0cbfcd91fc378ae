#include "ops/table_rows.h"

#include "ops/ref/ref_ops.h"

namespace ecphory::ref {

void DecodeRows(const DecodeRowsArgs& args, ThreadPool&) {
  const TableRows& from = args.from;
  for (size_t i = 0; i < args.count; ++i) {
    const uint64_t row = from.numbers == nullptr ? i : from.numbers[i];
    const uint8_t* const scales = from.scales == nullptr
                                      ? nullptr
                                      : from.scales + row * from.scale_stride;
    if (!DecodeTableRow(from.codec, from.rows + row * from.row_stride, scales,
                        args.width, args.x + i * args.width)) {
      *args.broken = 1;
    }
  }
}

}  // namespace ecphory::ref
