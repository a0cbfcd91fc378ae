#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/row_decode.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/code_tables.h"
#include "ops/cpu/decode-inl.h"
#include "ops/cpu/row_decode.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE void StoreBlock(const VF* values, float* out) {
#pragma GCC unroll 8
  for (size_t v = 0; v < kBlockVectors; ++v) Store(values[v], out + v * kLanes);
}

HWY_INLINE void DecodeFp8Block32(const CodeTables& tables, const uint8_t* in,
                                 size_t dim, float* out) {
  const uint8_t* const scales = in + dim;
  for (size_t i = 0; i < dim; i += 32) {
    VF values[kBlockVectors];
    DecodeE4M3Block(in + i, tables.e8m0[scales[i / 32]], values);
    StoreBlock(values, out + i);
  }
}

HWY_INLINE void DecodeFp4Block32(const CodeTables& tables, const uint8_t* in,
                                 size_t dim, float* out) {
  const uint8_t* const scales = in + dim / 2;
  for (size_t i = 0; i < dim; i += 32) {
    VF values[kBlockVectors];
    DecodeE2M1Block<NibbleOrder::kPairs>(in + i / 2,
                                         tables.e8m0[scales[i / 32]], values);
    StoreBlock(values, out + i);
  }
}

// Two blocks of 16 at a time.
HWY_INLINE void DecodeFp4Block16(const CodeTables& tables, const uint8_t* in,
                                 size_t dim, float* out) {
  const uint8_t* const scales = in + dim / 2;
  for (size_t i = 0; i < dim; i += 32) {
    alignas(16) int8_t twice[32];
    DecodeE2M1Halves<NibbleOrder::kPairs>(in + i / 2, twice);
#pragma GCC unroll 8
    for (size_t v = 0; v < kBlockVectors; ++v) {
      const float scale = tables.e4m3[scales[i / 16 + v * kLanes / 16]];
      const VF half_scale = hn::Set(kF, 0.5f * scale);
      Store(hn::Mul(DecodeI8(twice + v * kLanes), half_scale),
            out + i + v * kLanes);
    }
  }
}

void DecodeBlocks(RowFormat format, const uint8_t* const* rows, size_t count,
                  size_t dim, float* out) {
  const CodeTables& tables = GetCodeTables();
  for (size_t i = 0; i < count; ++i, out += dim) {
    switch (format) {
      case RowFormat::kFp8Block32:
        DecodeFp8Block32(tables, rows[i], dim, out);
        break;
      case RowFormat::kFp4Block32:
        DecodeFp4Block32(tables, rows[i], dim, out);
        break;
      case RowFormat::kFp4Block16:
        DecodeFp4Block16(tables, rows[i], dim, out);
        break;
      case RowFormat::kF32: DecodeRow(format, rows[i], dim, out); break;
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(DecodeBlocks);
}  // namespace

void DecodeRows(RowFormat format, const uint8_t* const* rows, size_t count,
                size_t dim, float* out) {
  if (dim % 32 == 0) {
    HWY_DYNAMIC_DISPATCH(DecodeBlocks)(format, rows, count, dim, out);
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    DecodeRow(format, rows[i], dim, out + i * dim);
  }
}

}  // namespace ecphory
#endif
