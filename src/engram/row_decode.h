// Decoding table rows at the speed of the memory they lie in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/table_codec.h"

namespace ecphory::engram {

// DecodeTableRow(), bit for bit, by the widest vectors of this processor
// (chosen once, at the first call). Arguments and result are the same: `width`
// a multiple of 32, `scales` null unless kReleasedPair, false for a broken row,
// whose `out` is then unspecified. Reads no byte outside the row and its
// scales, writes none outside out[width]. Any alignment. Thread-safe.
[[nodiscard]] bool DecodeTableRowFast(TableCodec codec, const uint8_t* row,
                                      const uint8_t* scales, size_t width,
                                      float* out);
// The same values as bf16, half the bytes; nothing is lost.
[[nodiscard]] bool DecodeTableRowFast(TableCodec codec, const uint8_t* row,
                                      const uint8_t* scales, size_t width,
                                      uint16_t* out);

}  // namespace ecphory::engram
