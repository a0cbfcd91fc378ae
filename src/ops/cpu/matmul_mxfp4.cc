#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/matmul_mxfp4.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// Blocks of an e8m0 scale and 16 bytes of e2m1.
struct Decoder {
  Decoder(const Matrix& weight, size_t row)
      : blocks(weight.data + (weight.first_row + row) * weight.row_bytes()),
        tables(GetCodeTables()) {}
  HWY_INLINE void Block(size_t block, VF* out) const {
    const uint8_t* p = blocks + block * 17;
    DecodeE2M1Block<NibbleOrder::kHalves>(p + 1, tables.e8m0[p[0]], out);
  }
  const uint8_t* blocks;
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

void MatmulRowsMXFP4(const Matrix& weight, const TokenRows& tokens,
                     size_t begin, size_t end, float* panel) {
  HWY_DYNAMIC_DISPATCH(Rows)(weight, tokens, begin, end, panel);
}

}  // namespace ecphory
#endif
