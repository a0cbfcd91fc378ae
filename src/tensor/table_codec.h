// How a table row holds its values on disk. All codecs give bf16-exact fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ecphory {

enum class TableCodec : uint8_t {
  kRow264,  // width e4m3 codes, then width/32 e8m0 scales ('row264' at 256)
  kReleasedPair,  // codes and scales in two tensors: two places a row
  kBf16,          // raw little-endian bf16
  kQ8_0,          // per 32 values: f16 d, 32 int8 q; value d * q
  kQ4_0,  // per 32: f16 d, 16 bytes; value d * (q - 8), low nibbles first
  kQ4_1,  // per 32: f16 d, f16 m, 16 bytes; value d * q + m
};

// Values that share a scale; a row is a multiple of it.
inline constexpr size_t kTableBlock = 32;

const char* TableCodecName(TableCodec codec);

// Bytes of one row of `width` values in its main tensor; per 32 values 33, 32,
// 64, 34, 18 and 20, in the order above.
size_t TableRowBytes(TableCodec codec, size_t width);
// Bytes of a row's scales kept elsewhere (kReleasedPair: width/32, else 0).
size_t TableScaleBytes(TableCodec codec, size_t width);

// The definition of every codec: decodes one row to fp32 values, each computed
// in fp32 (one rounding at most: the sum of kQ4_1) and then rounded to bf16,
// nearest even. False when a value or an f16 or e8m0 scale is not finite, or an
// e4m3 code is NaN (0x7f, 0xff); `out` is then unspecified. `scales` is null
// unless kReleasedPair. row_decode.h is the fast way.
[[nodiscard]] bool DecodeTableRow(TableCodec codec, const uint8_t* row,
                                  const uint8_t* scales, size_t width,
                                  float* out);

// Encodes fp32 values as e4m3 codes with power-of-two scales (tools, tests):
// the smallest scale that keeps |x/s| <= 448.
void EncodeE4M3Row(const float* x, size_t width, uint8_t* codes,
                   uint8_t* scales);

// Encodes finite fp32 values as Q8_0: d is the f16 nearest to amax / 127, or
// the next one up where that would put a code past 127; codes are nearest even.
// A block that is not finite, or whose d is none in f16, decodes as broken.
void EncodeQ8Row(const float* x, size_t width, uint8_t* row);

}  // namespace ecphory
