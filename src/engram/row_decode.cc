#include "engram/row_decode.h"

#include "tensor/float_codec.h"

namespace ecphory::engram {

bool DecodeTableRowFast(TableCodec codec, const uint8_t* row,
                        const uint8_t* scales, size_t width, float* out) {
  return DecodeTableRow(codec, row, scales, width, out);
}

// Row after row of one block, so that no memory is needed for the whole.
bool DecodeTableRowFast(TableCodec codec, const uint8_t* row,
                        const uint8_t* scales, size_t width, uint16_t* out) {
  if (codec == TableCodec::kRow264) {
    return DecodeTableRowFast(TableCodec::kReleasedPair, row, row + width,
                              width, out);
  }
  const size_t bytes = TableRowBytes(codec, kTableBlock);
  for (size_t block = 0; block < width / kTableBlock; ++block) {
    float values[kTableBlock];
    const uint8_t* scale = scales == nullptr ? nullptr : scales + block;
    if (!DecodeTableRow(codec, row + block * bytes, scale, kTableBlock,
                        values)) {
      return false;
    }
    for (float value : values) *out++ = F32ToBF16(value);
  }
  return true;
}

}  // namespace ecphory::engram
