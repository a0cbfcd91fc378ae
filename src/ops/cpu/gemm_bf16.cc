// The loops of gemm.cc with half the bytes and half the instructions a product.
#include "ops/cpu/gemm_bf16.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/gemm_bf16.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/dot-inl.h"
#include "ops/cpu/weight_decoder-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

bool CanMultiply() { return __builtin_cpu_supports("avx512bf16") != 0; }

constexpr size_t kPair = 2 * kLanes;

HWY_INLINE void StorePair(VF high, VF low, uint16_t* out) {
  const hn::RebindToUnsigned<DF> du;
  const auto kept = hn::And(hn::BitCast(du, high), hn::Set(du, 0xffff0000u));
  const auto moved = hn::ShiftRight<16>(hn::BitCast(du, low));
  hn::StoreU(hn::Or(kept, moved), du, reinterpret_cast<uint32_t*>(out));
}

void Pack(const float* x, size_t n, uint16_t* out) {
  for (size_t i = 0; i < n; i += kPair) {
    StorePair(Load(x + i), Load(x + i + kLanes), out + i);
  }
}

// Block by block in the order of the format's decoder.
template <WeightFormat kFormat>
void PackAs(const float* x, size_t n, uint16_t* out) {
  alignas(64) float block[kPair];
  for (size_t i = 0; i < n; i += kPair) {
    Pack(PackX<WeightDecoder<kFormat>::kOrder>(x + i, kPair, block), kPair,
         out + i);
  }
}

void PackInput(WeightFormat format, const float* x, size_t n, uint16_t* out) {
  switch (format) {
    case WeightFormat::kMXFP4: return PackAs<WeightFormat::kMXFP4>(x, n, out);
    case WeightFormat::kFp4Row32:
      return PackAs<WeightFormat::kFp4Row32>(x, n, out);
    case WeightFormat::kFp8Tile32:
      return PackAs<WeightFormat::kFp8Tile32>(x, n, out);
    default: return PackAs<WeightFormat::kBF16>(x, n, out);
  }
}

// The instruction is not part of any target of Highway 1.0.3.
#define ECPHORY_BF16_ATTR \
  __attribute__((target(HWY_TARGET_STR_AVX3 ",avx512bf16")))

ECPHORY_BF16_ATTR HWY_INLINE __m512bh LoadPairs(const uint16_t* p) {
  __m512i pairs = _mm512_loadu_si512(p);
  asm("" : "+v"(pairs));  // KeepInRegister
  return reinterpret_cast<__m512bh>(pairs);
}

template <size_t kVectors>
ECPHORY_BF16_ATTR HWY_INLINE void DotPairs(
    const uint16_t* const* HWY_RESTRICT rows,
    const uint16_t* const* HWY_RESTRICT x, size_t n, float* HWY_RESTRICT sums) {
  __m512 acc[kVectors][kRowBlock];
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) {
    acc[v][0] = acc[v][1] = acc[v][2] = acc[v][3] = _mm512_setzero_ps();
  }
  for (size_t i = 0; i < n; i += kPair) {
    const __m512bh r0 = LoadPairs(rows[0] + i);
    const __m512bh r1 = LoadPairs(rows[1] + i);
    const __m512bh r2 = LoadPairs(rows[2] + i);
    const __m512bh r3 = LoadPairs(rows[3] + i);
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
      const __m512bh xv = LoadPairs(x[v] + i);
      acc[v][0] = _mm512_dpbf16_ps(acc[v][0], r0, xv);
      acc[v][1] = _mm512_dpbf16_ps(acc[v][1], r1, xv);
      acc[v][2] = _mm512_dpbf16_ps(acc[v][2], r2, xv);
      acc[v][3] = _mm512_dpbf16_ps(acc[v][3], r3, xv);
    }
  }
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) {
    StoreSums4(VF{acc[v][0]}, VF{acc[v][1]}, VF{acc[v][2]}, VF{acc[v][3]},
               sums + v * kRowBlock);
  }
}

template <size_t kVectors>
ECPHORY_BF16_ATTR HWY_INLINE void MultiplyVectors(const Bf16Panel& panel,
                                                  const uint16_t* const* x,
                                                  float* const* y) {
  const size_t stride = Bf16PanelStride(panel.cols);
  const uint16_t* row = panel.values;
  for (size_t r = 0; r < panel.rows; r += kRowBlock, row += 4 * stride) {
    const uint16_t* const rows[kRowBlock] = {
        row, row + stride, row + 2 * stride, row + 3 * stride};
    float sums[kVectors * kRowBlock];
    DotPairs<kVectors>(rows, x, panel.cols, sums);
    StoreSums<kVectors>(sums, y, panel.first_row + r, panel.rows - r);
  }
}

// The tokens from t on, at most kVectors.
template <size_t kVectors>
ECPHORY_BF16_ATTR HWY_INLINE void MultiplyUpTo(const Bf16Panel& panel,
                                               const TokenRows& tokens,
                                               size_t t) {
  if constexpr (kVectors > 0) {
    if (tokens.tokens - t < kVectors) {
      return MultiplyUpTo<kVectors - 1>(panel, tokens, t);
    }
    MultiplyVectors<kVectors>(panel, tokens.x16 + t, tokens.y + t);
  }
}

ECPHORY_BF16_ATTR void Multiply(const Bf16Panel& panel,
                                const TokenRows& tokens) {
  size_t t = 0;
  for (; t + kVectorBlock <= tokens.tokens; t += kVectorBlock) {
    MultiplyVectors<kVectorBlock>(panel, tokens.x16 + t, tokens.y + t);
  }
  MultiplyUpTo<kVectorBlock - 1>(panel, tokens, t);
}

#else

bool CanMultiply() { return false; }
// Never called, as TakesBf16() says.
void Pack(const float*, size_t, uint16_t*) { ECPHORY_CHECK(false); }
void PackInput(WeightFormat, const float*, size_t, uint16_t*) {
  ECPHORY_CHECK(false);
}
void Multiply(const Bf16Panel&, const TokenRows&) { ECPHORY_CHECK(false); }

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#if HWY_ARCH_X86
#include <immintrin.h>
#endif

namespace ecphory {

namespace {

HWY_EXPORT(CanMultiply);
HWY_EXPORT(Pack);
HWY_EXPORT(PackInput);
HWY_EXPORT(Multiply);

bool HoldsBf16(WeightFormat format) {
  switch (format) {
    case WeightFormat::kBF16:
    case WeightFormat::kMXFP4:
    case WeightFormat::kFp8Tile32:
    case WeightFormat::kFp4Row32: return true;
    default: return false;
  }
}

// One block of tokens; fewer are bound by unpacking, to which this adds.
constexpr size_t kMinTokens = 6;

}  // namespace

bool TakesBf16(const Matrix& weight, MatmulInput input, size_t tokens) {
  return IsBf16(input) && tokens >= kMinTokens && weight.cols % 32 == 0 &&
         HoldsBf16(weight.format) && HWY_DYNAMIC_DISPATCH(CanMultiply)();
}

void PackBf16Input(WeightFormat format, const float* x, size_t n,
                   uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(PackInput)(format, x, n, out);
}

void PackBf16(const float* x, size_t n, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(Pack)(x, n, out);
}

void MultiplyPanelBf16(const Bf16Panel& panel, const TokenRows& tokens) {
  HWY_DYNAMIC_DISPATCH(Multiply)(panel, tokens);
}

DenormalsAreZero::DenormalsAreZero(MatmulInput input)
    : active_(IsBf16(input) && HWY_DYNAMIC_DISPATCH(CanMultiply)()) {
#if HWY_ARCH_X86
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;
  if (!active_) return;
  saved_ = _mm_getcsr();
  _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero);
#endif
}

DenormalsAreZero::~DenormalsAreZero() {
#if HWY_ARCH_X86
  if (active_) _mm_setcsr(saved_);
#endif
}

}  // namespace ecphory
#endif
