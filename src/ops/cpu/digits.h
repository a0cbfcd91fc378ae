// Products of 2-bit weights with inputs as they are, through integers
// (digits-inl.h): inputs are split into digits once, by the caller of all
// threads, or one token by each thread for itself (matmul_few.cc).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "ops/cpu/matmul_rows.h"
#include "tensor/matrix.h"

namespace ecphory {

// Whether the format is multiplied like this on this processor.
bool TakesDigits(WeightFormat format);

// One input in memory.
struct DigitRow {
  const uint8_t* groups = nullptr;  // null where it has no digits
  bool lowest = false;  // whether there are lowest digits other than zeros
};

// The bytes of an input of `cols` values, 4.6 to 4.9 a value; a multiple of 64.
// 0 where the format does not take digits.
size_t DigitRowBytes(WeightFormat format, size_t cols);

// x [cols] to `out`: DigitRowBytes(format, cols) bytes, aligned to 64.
DigitRow SplitToDigits(WeightFormat format, const float* x, size_t cols,
                       uint8_t* out);

// Rows x_stride floats apart to rows DigitRowBytes() apart, by all threads.
void SplitRowsToDigits(WeightFormat format, const float* x, size_t x_stride,
                       size_t cols, size_t count, uint8_t* out, DigitRow* rows,
                       ThreadPool& pool);

// So many share one unpacking of the weights, which takes about as long as the
// products of 3 tokens; of 5,120 values they have 1.5 MB of digits.
inline constexpr size_t kMaxDigitTokens = 64;

// y[t][row] = weight[row] . x[t] for rows [begin, end) and up to
// kMaxDigitTokens, those of tokens.digits that have digits. The bits of a
// result do not depend on the range or on the other tokens. Thread-safe.
void DigitMatmulRows(const Matrix& weight, const TokenRows& tokens,
                     size_t begin, size_t end);

// Unpacked rows, which a thread keeps for several tokens.
size_t DigitPanelBytes(WeightFormat format, size_t cols, size_t tokens);

}  // namespace ecphory
