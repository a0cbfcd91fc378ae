// How a table row holds its values on disk. All codecs give bf16-exact fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ecphory::engram {

enum class TableCodec : uint8_t {
  kRow264,  // width e4m3 codes, then width/32 e8m0 scales ('row264' at 256)
  kReleasedPair,  // codes and scales in two tensors: two places a row
  kBf16,          // raw little-endian bf16
};

const char* TableCodecName(TableCodec codec);

// Bytes of one row of `width` values in its main tensor: width + width/32,
// width, or 2 * width.
size_t TableRowBytes(TableCodec codec, size_t width);
// Bytes of a row's scales kept elsewhere (kReleasedPair: width/32, else 0).
size_t TableScaleBytes(TableCodec codec, size_t width);

// Decodes one row to fp32 values that are exact in bf16 (nearest even).
// False when a code is NaN (0x7f, 0xff), a scale is 255 or a value is not
// finite; `out` is then unspecified. `scales` is null unless kReleasedPair.
[[nodiscard]] bool DecodeTableRow(TableCodec codec, const uint8_t* row,
                                  const uint8_t* scales, size_t width,
                                  float* out);

// Encodes fp32 values as e4m3 codes with power-of-two scales (tools, tests):
// the smallest scale that keeps |x/s| <= 448.
void EncodeE4M3Row(const float* x, size_t width, uint8_t* codes,
                   uint8_t* scales);

}  // namespace ecphory::engram
