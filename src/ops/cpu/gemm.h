// Panels of unpacked rows of W times many tokens: the arithmetic under matmul
// and experts once a format's rows are unpacked.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/ceil_div.h"
#include "ops/cpu/matmul_rows.h"

namespace ecphory {

// Columns [begin, end) of rows of W as fp32, a multiple of kMatmulRowBlock of
// rows: where W has fewer, the last is repeated. Panels of the same rows follow
// each other, column by column.
struct Panel {
  const float* values = nullptr;  // as panel-inl.h has them
  size_t begin = 0;
  size_t end = 0;
  size_t cols = 0;       // of W
  size_t first_row = 0;  // of W
  size_t rows = 0;       // that exist in W
  size_t padded_rows() const {
    return CeilDiv(rows, kMatmulRowBlock) * kMatmulRowBlock;
  }
  // Sums of all rows and tokens, which wait for the next columns, if a panel
  // has not all of them.
  float* sums = nullptr;
};

// How products are cut on this processor: what is unpacked together, and the
// tokens that share it.
struct PanelShape {
  size_t rows = 0;
  size_t cols = 0;
  size_t tokens = 0;
  size_t most_tokens = 0;  // that would not be cut
  size_t sums = 0;         // floats of Panel::sums
};

// Of W with `cols` columns times `tokens` tokens, or times as many of them as
// shape.tokens.
PanelShape PanelShapeOf(size_t cols, size_t tokens);

// What a kernel of matmul_rows.h is given: a row of W, then a panel and its
// sums. With bf16 inputs a panel's rows are half as long.
inline size_t PanelFloats(size_t cols, size_t tokens, bool bf16) {
  const PanelShape shape = PanelShapeOf(bf16 ? cols / 2 : cols, tokens);
  return PanelStride(cols) + shape.rows * PanelStride(shape.cols) + shape.sums;
}

// Tokens of the widest kernel.
inline constexpr size_t kTokenStep = 6;

inline constexpr size_t kMaxTokenBlock = 86 * kTokenStep;  // 516

// How many tokens share one unpacking of the weights at most, up to `most`.
// Unpacking costs about as much as 4 tokens' multiply-adds, so 100 tokens make
// it noise; their inputs are read once a panel, out of L3 if they are not much
// more than 4 MB.
inline size_t TokenLimit(size_t cols, size_t most) {
  constexpr size_t kBlockFloats = 1 << 20;
  return std::clamp<size_t>(kBlockFloats / cols, 96, most);
}

// How many of `tokens` do: equally many each time, and then a multiple of
// kTokenStep, of which `most` is one.
inline size_t TokenBlock(size_t tokens, size_t cols, size_t most) {
  const size_t limit = TokenLimit(cols, most);
  const size_t blocks = std::max<size_t>(1, CeilDiv(tokens, limit));
  return CeilDiv(CeilDiv(tokens, blocks), kTokenStep) * kTokenStep;
}

// y[t][row] = row . x[t] for the panel's rows, once their last columns are
// there. The sum is formed in DotBlock's order (dot-inl.h).
void MultiplyPanel(const Panel& panel, const TokenRows& tokens);

}  // namespace ecphory
