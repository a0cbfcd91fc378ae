// Products of 2-bit weights with inputs as they are, through integers
// (digits-inl.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/matmul_rows.h"
#include "tensor/matrix.h"

namespace ecphory {

// Whether the format is multiplied like this on this processor.
bool TakesDigits(WeightFormat format);

// So many share one unpacking of the weights, which takes about as long as the
// products of 3 tokens; of 5,120 values they have 1.5 MB of digits.
inline constexpr size_t kMaxDigitTokens = 64;

// y[t][row] = weight[row] . x[t] for rows [begin, end) and up to
// kMaxDigitTokens, those that have digits; returns which have none, a bit each.
// The bits of a result do not depend on the range or on the other tokens.
// Thread-safe.
uint64_t DigitMatmulRows(const Matrix& weight, const TokenRows& tokens,
                         size_t begin, size_t end);

// What a thread keeps for that: the digits, and for several tokens unpacked
// rows.
size_t DigitScratchBytes(WeightFormat format, size_t cols, size_t tokens);

}  // namespace ecphory
