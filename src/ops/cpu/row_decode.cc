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

// `in` and `scales` of the first of n values.
HWY_INLINE void DecodeFp8Block32(const CodeTables& tables, const uint8_t* in,
                                 const uint8_t* scales, size_t n, float* out) {
  for (size_t i = 0; i < n; i += 32) {
    VF values[kBlockVectors];
    DecodeE4M3Block(in + i, tables.e8m0[scales[i / 32]], values);
    StoreBlock(values, out + i);
  }
}

HWY_INLINE void DecodeFp4Block32(const CodeTables& tables, const uint8_t* in,
                                 const uint8_t* scales, size_t n, float* out) {
  for (size_t i = 0; i < n; i += 32) {
    VF values[kBlockVectors];
    DecodeE2M1Block<NibbleOrder::kPairs>(in + i / 2,
                                         tables.e8m0[scales[i / 32]], values);
    StoreBlock(values, out + i);
  }
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

// 16 codes, a block and a vector: each lane shifts its code to its lowest bits,
// where the permutation of a table of all values takes it from.
HWY_INLINE VF DecodeE2M1Lanes(const uint8_t* p) {
  alignas(64) static constexpr uint32_t kShifts[16] = {
      0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28};
  alignas(64) static constexpr float kValues[16] = {
      0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  const hn::RebindToUnsigned<DF> du;
  uint32_t low, high;
  std::memcpy(&low, p, sizeof(low));
  std::memcpy(&high, p + sizeof(low), sizeof(high));
  const auto words =
      hn::IfThenElse(hn::FirstN(du, 8), hn::Set(du, low), hn::Set(du, high));
  const auto codes = hn::Shr(words, hn::Load(du, kShifts));
  return VF{_mm512_permutexvar_ps(codes.raw, hn::Load(kF, kValues).raw)};
}

HWY_INLINE void DecodeFp4Block16(const CodeTables& tables, const uint8_t* in,
                                 const uint8_t* scales, size_t n, float* out) {
  for (size_t i = 0; i < n; i += 16) {
    const VF scale = hn::Set(kF, tables.e4m3[scales[i / 16]]);
    Store(hn::Mul(DecodeE2M1Lanes(in + i / 2), scale), out + i);
  }
}

#else

// Two blocks of 16 at a time.
HWY_INLINE void DecodeFp4Block16(const CodeTables& tables, const uint8_t* in,
                                 const uint8_t* scales, size_t n, float* out) {
  for (size_t i = 0; i < n; i += 32) {
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

#endif

HWY_INLINE void DecodeSlice(const CodeTables& tables, RowFormat format,
                            const uint8_t* row, size_t dim, size_t first,
                            size_t n, float* out) {
  switch (format) {
    case RowFormat::kFp8Block32:
      return DecodeFp8Block32(tables, row + first, row + dim + first / 32, n,
                              out);
    case RowFormat::kFp4Block32:
      return DecodeFp4Block32(tables, row + first / 2,
                              row + dim / 2 + first / 32, n, out);
    case RowFormat::kFp4Block16:
      return DecodeFp4Block16(tables, row + first / 2,
                              row + dim / 2 + first / 16, n, out);
    case RowFormat::kF32:
      std::memcpy(out, row + first * sizeof(float), n * sizeof(float));
      return;
  }
}

void DecodeSlices(RowFormat format, const uint8_t* const* rows, size_t count,
                  size_t dim, size_t first, size_t n, float* out) {
  const CodeTables& tables = GetCodeTables();
  for (size_t i = 0; i < count; ++i) {
    DecodeSlice(tables, format, rows[i], dim, first, n, out + i * n);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(DecodeSlices);
}  // namespace

void DecodeRowSlices(RowFormat format, const uint8_t* const* rows, size_t count,
                     size_t dim, size_t first, size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeSlices)(format, rows, count, dim, first, n, out);
}

void DecodeRows(RowFormat format, const uint8_t* const* rows, size_t count,
                size_t dim, float* out) {
  if (dim % 32 == 0) {
    return DecodeRowSlices(format, rows, count, dim, 0, dim, out);
  }
  for (size_t i = 0; i < count; ++i) {
    DecodeRow(format, rows[i], dim, out + i * dim);
  }
}

}  // namespace ecphory
#endif
