// Besides the targets of ops/cpu the one that looks up 128 bytes at once.
#define HWY_WANT_AVX3_DL 1
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "engram/row_decode.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "engram/row_decode.h"
#include "engram/row_decode_tables.h"
#include "engram/row_decode_testing.h"
#include "hwy/highway.h"
#include "tensor/float_codec.h"
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "engram/row_decode_e4m3-inl.h"
#include "engram/row_decode_quant-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace ecphory::engram {
namespace HWY_NAMESPACE {
namespace {

bool Plain(TableCodec codec, const uint8_t* row, const uint8_t* scales,
           size_t width, float* out) {
  return DecodeTableRow(codec, row, scales, width, out);
}

// Block by block, so that no memory is needed for the row.
bool Plain(TableCodec codec, const uint8_t* row, const uint8_t* scales,
           size_t width, uint16_t* out) {
  const size_t bytes = TableRowBytes(codec, kTableBlock);
  const size_t scale_bytes = TableScaleBytes(codec, kTableBlock);
  bool ok = true;
  for (size_t block = 0; block < width / kTableBlock; ++block) {
    float values[kTableBlock];
    ok &= DecodeTableRow(codec, row + block * bytes,
                         scales + block * scale_bytes, kTableBlock, values);
    for (float value : values) *out++ = F32ToBF16(value);
  }
  return ok;
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

template <typename T>
bool DecodePair(const uint8_t* codes, const uint8_t* scales, size_t width,
                T* out) {
  return Plain(TableCodec::kReleasedPair, codes, scales, width, out);
}
template <TableCodec kCodec, typename T>
bool DecodeQuant(const uint8_t* row, size_t width, T* out) {
  return Plain(kCodec, row, nullptr, width, out);
}
template <typename T>
bool DecodeBf16Row(const uint8_t* row, size_t width, T* out) {
  return Plain(TableCodec::kBf16, row, nullptr, width, out);
}

#else

bool AllInRange(const uint8_t* scales, size_t count) {
  bool ok = true;
  for (size_t i = 0; i < count; ++i) {
    ok &= scales[i] - kLowScale <= kHighScale - kLowScale;
  }
  return ok;
}

// A scale so large or small that a value may round or overflow is rare.
template <typename T>
HWY_NOINLINE bool DecodePair(const uint8_t* codes, const uint8_t* scales,
                             size_t width, T* out) {
  if (HWY_UNLIKELY(!AllInRange(scales, width / kTableBlock))) {
    return Plain(TableCodec::kReleasedPair, codes, scales, width, out);
  }
  return DecodeE4M3(codes, scales, width, out);
}

#endif

template <typename T>
HWY_INLINE bool DecodeRow(TableCodec codec, const uint8_t* row,
                          const uint8_t* scales, size_t width, T* out) {
  switch (codec) {
    case TableCodec::kRow264: return DecodePair(row, row + width, width, out);
    case TableCodec::kReleasedPair: return DecodePair(row, scales, width, out);
    case TableCodec::kBf16: return DecodeBf16Row(row, width, out);
    case TableCodec::kQ8_0:
      return DecodeQuant<TableCodec::kQ8_0>(row, width, out);
    case TableCodec::kQ4_0:
      return DecodeQuant<TableCodec::kQ4_0>(row, width, out);
    case TableCodec::kQ4_1:
      return DecodeQuant<TableCodec::kQ4_1>(row, width, out);
  }
  return false;
}

bool DecodeF32(TableCodec codec, const uint8_t* row, const uint8_t* scales,
               size_t width, float* out) {
  return DecodeRow(codec, row, scales, width, out);
}
bool DecodeBf16(TableCodec codec, const uint8_t* row, const uint8_t* scales,
                size_t width, uint16_t* out) {
  return DecodeRow(codec, row, scales, width, out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory::engram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory::engram {

namespace {
HWY_EXPORT(DecodeF32);
HWY_EXPORT(DecodeBf16);
}  // namespace

bool DecodeTableRowFast(TableCodec codec, const uint8_t* row,
                        const uint8_t* scales, size_t width, float* out) {
  return HWY_DYNAMIC_DISPATCH(DecodeF32)(codec, row, scales, width, out);
}
bool DecodeTableRowFast(TableCodec codec, const uint8_t* row,
                        const uint8_t* scales, size_t width, uint16_t* out) {
  return HWY_DYNAMIC_DISPATCH(DecodeBf16)(codec, row, scales, width, out);
}

std::vector<int64_t> RowDecodeTargetsForTest() {
  // Asked for once: a forced target hides the others.
  static const std::vector<int64_t> targets =
      hwy::SupportedAndGeneratedTargets();
  return targets;
}

const char* RowDecodeTargetNameForTest(int64_t target) {
  return hwy::TargetName(target);
}

void SetRowDecodeTargetForTest(int64_t target) {
  RowDecodeTargetsForTest();
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace ecphory::engram
#endif
