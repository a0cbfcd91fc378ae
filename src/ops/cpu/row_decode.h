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

}  // namespace ecphory
