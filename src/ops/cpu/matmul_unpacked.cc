// y = x W^T for any format: rows are unpacked by the format's definition.
#include <algorithm>

#include "base/ceil_div.h"
#include "ops/cpu/gemm.h"

namespace ecphory {

void MatmulRowsUnpacked(const Matrix& weight, const TokenRows& tokens,
                        size_t begin, size_t end, float* panel) {
  const size_t panel_rows = PanelRows(weight.cols, tokens.tokens);
  for (size_t row = begin; row < end; row += panel_rows) {
    const size_t count = std::min(panel_rows, end - row);
    const size_t padded = CeilDiv(count, kMatmulRowBlock) * kMatmulRowBlock;
    for (size_t r = 0; r < padded; ++r) {
      DequantizeRow(weight, row + std::min(r, count - 1),
                    panel + r * PanelStride(weight.cols));
    }
    MultiplyPanel({panel, weight.cols, row, count}, tokens);
  }
}

}  // namespace ecphory
