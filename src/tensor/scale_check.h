// Scales inside rows of blocks that no weight can have.
#pragma once

#include <cstddef>
#include <optional>

#include "tensor/matrix.h"

namespace ecphory {

// The first row with an infinite or NaN scale, of formats that keep scales in
// their rows; nothing for others. Touches every page of the matrix.
std::optional<size_t> FirstRowWithBrokenScale(const Matrix& matrix);

}  // namespace ecphory
