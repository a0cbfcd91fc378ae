// Unpacking rows of a cache, for operators that read them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/row_codec.h"

namespace ecphory {

// out[i] = row i, dim floats each. Equal to DecodeRow(), except that -0 may
// come out as +0.
void DecodeRows(RowFormat format, const uint8_t* const* rows, size_t count,
                size_t dim, float* out);

// out[i] = values [first, first + n) of row i, n floats each. `dim`, `first`
// and `n` are multiples of 32.
void DecodeRowSlices(RowFormat format, const uint8_t* const* rows, size_t count,
                     size_t dim, size_t first, size_t n, float* out);

}  // namespace ecphory
