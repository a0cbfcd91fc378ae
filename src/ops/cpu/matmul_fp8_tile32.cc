#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/matmul_fp8_tile32.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// e4m3 codes, an e8m0 scale per tile of 32x32.
struct Decoder {
  Decoder(const Matrix& weight, size_t row)
      : codes(weight.data + (weight.first_row + row) * weight.cols),
        scales(weight.scales +
               (weight.first_row + row) / 32 * (weight.cols / 32)),
        tables(GetCodeTables()) {}
  HWY_INLINE void Block(size_t block, VF* out) const {
    DecodeE4M3Block(codes + block * 32, tables.e8m0[scales[block]], out);
  }
  const uint8_t* codes;
  const uint8_t* scales;
  const CodeTables& tables;
};

void Rows(const Matrix& weight, const TokenRows& tokens, size_t begin,
          size_t end, float* panel) {
  MatmulRowRange<Decoder>(weight, tokens, begin, end, panel);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(Rows);
}  // namespace

void MatmulRowsFp8Tile32(const Matrix& weight, const TokenRows& tokens,
                         size_t begin, size_t end, float* panel) {
  HWY_DYNAMIC_DISPATCH(Rows)(weight, tokens, begin, end, panel);
}

}  // namespace ecphory
#endif
