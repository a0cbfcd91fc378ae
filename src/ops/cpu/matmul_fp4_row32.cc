#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/matmul_fp4_row32.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// e2m1 codes, an e8m0 scale per 32 columns of a row.
struct Decoder {
  Decoder(const Matrix& weight, size_t row)
      : codes(weight.data + (weight.first_row + row) * (weight.cols / 2)),
        scales(weight.scales + (weight.first_row + row) * (weight.cols / 32)),
        tables(GetCodeTables()) {}
  HWY_INLINE void Block(size_t block, VF* out) const {
    DecodeE2M1Block<NibbleOrder::kPairs>(codes + block * 16,
                                         tables.e8m0[scales[block]], out);
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

void MatmulRowsFp4Row32(const Matrix& weight, const TokenRows& tokens,
                        size_t begin, size_t end, float* panel) {
  HWY_DYNAMIC_DISPATCH(Rows)(weight, tokens, begin, end, panel);
}

}  // namespace ecphory
#endif
