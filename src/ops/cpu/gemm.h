// Panels of unpacked rows of W times many tokens: the arithmetic under matmul
// and experts once a format's rows are unpacked.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/ceil_div.h"
#include "ops/cpu/matmul_rows.h"

namespace ecphory {

// Rows of W as fp32, a multiple of kMatmulRowBlock of them: where W has fewer,
// the last is repeated.
struct Panel {
  const float* values = nullptr;  // rows PanelStride(cols) apart
  size_t cols = 0;
  size_t first_row = 0;  // of W
  size_t rows = 0;       // that exist in W
};

inline constexpr size_t kMaxPanelRows = 32;  // more win nothing

// Unpacked rows that share one visit of the tokens' inputs. For few tokens one
// block of rows, so that reading the next one's codes overlaps with this one's
// products. Else as many as stay in L1 if these are a few, or as many as stay
// in L2 together with the inputs of 6 tokens (half a megabyte of the 1 MB of
// Zen 4): more rows save reads of inputs that lie in L3.
inline size_t PanelRows(size_t cols, size_t tokens) {
  constexpr size_t kFewTokens = 16;
  constexpr size_t kL1Floats = 5 << 10;  // 20 of 32 KB
  constexpr size_t kL2Floats = 128 << 10;
  if (tokens <= kFewTokens) return kMatmulRowBlock;
  const size_t in_l1 = kL1Floats / PanelStride(cols);
  const size_t rows =
      in_l1 >= 2 * kMatmulRowBlock ? in_l1 : kL2Floats / PanelStride(cols);
  return std::clamp(rows / kMatmulRowBlock * kMatmulRowBlock, kMatmulRowBlock,
                    kMaxPanelRows);
}

// Tokens of the widest kernel.
inline constexpr size_t kTokenStep = 6;

inline constexpr size_t kMaxTokenBlock = 86 * kTokenStep;  // 516

// How many of `tokens` share one unpacking of the weights. Unpacking costs
// about as much as 4 tokens' multiply-adds, so 100 tokens make it noise; their
// inputs are read once a panel, out of L3 if they are not much more than 4 MB.
inline size_t TokenBlock(size_t tokens, size_t cols) {
  constexpr size_t kBlockFloats = 1 << 20;
  const size_t limit =
      std::clamp<size_t>(kBlockFloats / cols, 96, kMaxTokenBlock);
  const size_t blocks = std::max<size_t>(1, CeilDiv(tokens, limit));
  // Up to a multiple, of which kMaxTokenBlock is one.
  return CeilDiv(CeilDiv(tokens, blocks), kTokenStep) * kTokenStep;
}

// y[t][row] = row . x[t] for the panel's rows. The sum is formed in DotBlock's
// order (dot-inl.h).
void MultiplyPanel(const Panel& panel, const TokenRows& tokens);

}  // namespace ecphory
