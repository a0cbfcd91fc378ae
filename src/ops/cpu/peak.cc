#include "ops/cpu/peak.h"

#include "base/highway_config.h"
#include "ops/cpu/gemm_amx.h"
#define HWY_TARGET_INCLUDE "ops/cpu/peak.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// 12 chains cover the latency of two FMA units of 4-5 cycles.
constexpr size_t kChains = 12;

// Rows that a matrix-vector kernel has under way, and how far ahead it asks for
// lines: without it a Xeon reads 5 to 10 % less.
constexpr size_t kRuns = 4;
constexpr size_t kAheadFloats = 2048 / sizeof(float);
constexpr size_t kLineFloats = 64 / sizeof(float);

double RunMultiplyAdds(size_t rounds, float* out) {
  VF acc[kChains];
  for (size_t c = 0; c < kChains; ++c) acc[c] = hn::Set(kF, 1.0f + c);
  const VF factor = hn::Set(kF, 0.999f);
  for (size_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (size_t c = 0; c < kChains; ++c) {
      acc[c] = hn::MulAdd(acc[c], factor, factor);
    }
  }
  VF sum = acc[0];
  for (size_t c = 1; c < kChains; ++c) sum = hn::Add(sum, acc[c]);
  Store(sum, out);
  return 2.0 * kChains * kLanes * static_cast<double>(rounds);
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
// The instruction is not part of any target of Highway 1.0.3.
__attribute__((target(HWY_TARGET_STR_AVX3 ",avx512bf16"))) double RunBf16(
    size_t rounds, float* out) {
  if (!__builtin_cpu_supports("avx512bf16")) return 0;
  // 1.0 in every lane; sums grow to what fp32 holds and stay there.
  const auto one =
      reinterpret_cast<__m512bh>(_mm512_set1_epi16(int16_t{0x3f80}));
  __m512 acc[kChains];
  for (size_t c = 0; c < kChains; ++c) acc[c] = _mm512_setzero_ps();
  for (size_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (size_t c = 0; c < kChains; ++c) {
      acc[c] = _mm512_dpbf16_ps(acc[c], one, one);
    }
  }
  for (size_t c = 1; c < kChains; ++c) acc[0] = _mm512_add_ps(acc[0], acc[c]);
  _mm512_storeu_ps(out, acc[0]);
  return 2.0 * 2 * 16 * kChains * static_cast<double>(rounds);
}
#else
double RunBf16(size_t, float* out) {
  out[0] = 0;
  return 0;
}
#endif

void SumAll(const float* x, size_t n, float* out) {
  const size_t run = n / kRuns / kLanes * kLanes;
  VF sums[kRuns];
  for (size_t k = 0; k < kRuns; ++k) sums[k] = hn::Zero(kF);
  for (size_t i = 0; i < run; i += kLanes) {
#pragma GCC unroll 4
    for (size_t k = 0; k < kRuns; ++k) {
      const float* const p = x + k * run + i;
#if HWY_ARCH_X86
      if (i % kLineFloats == 0) {
        _mm_prefetch(reinterpret_cast<const char*>(p + kAheadFloats),
                     _MM_HINT_T1);
      }
#endif
      sums[k] = hn::Add(sums[k], Load(p));
    }
  }
  size_t i = kRuns * run;
  for (; i + kLanes <= n; i += kLanes) sums[0] = hn::Add(sums[0], Load(x + i));
  if (i < n) sums[0] = hn::Add(sums[0], LoadPartial(x + i, n - i));
  Store(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])), out);
}

void CopyAll(const float* from, size_t n, float* to) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(Load(from + i), to + i);
  if (i < n) StorePartial(LoadPartial(from + i, n - i), to + i, n - i);
}

void NegateAll(float* x, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(hn::Neg(Load(x + i)), x + i);
  if (i < n) StorePartial(hn::Neg(LoadPartial(x + i, n - i)), x + i, n - i);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {

HWY_EXPORT(RunMultiplyAdds);
HWY_EXPORT(RunBf16);
HWY_EXPORT(SumAll);
HWY_EXPORT(CopyAll);
HWY_EXPORT(NegateAll);

// Keeps a result alive.
void Use(float value) {
  volatile float sink = value;
  (void)sink;
}

}  // namespace

double MultiplyAdds(size_t rounds) {
  float out[64];
  const double operations = HWY_DYNAMIC_DISPATCH(RunMultiplyAdds)(rounds, out);
  Use(out[0]);
  return operations;
}

double MultiplyAddsBf16(size_t rounds) {
  if (UsesAmx()) return MultiplyAddsAmx(rounds);
  float out[64] = {};
  const double operations = HWY_DYNAMIC_DISPATCH(RunBf16)(rounds, out);
  Use(out[0]);
  return operations;
}

void ReadBytes(const uint8_t* data, size_t bytes) {
  float out[64];
  HWY_DYNAMIC_DISPATCH(SumAll)
  (reinterpret_cast<const float*>(data), bytes / sizeof(float), out);
  Use(out[0]);
}

void CopyBytes(const uint8_t* from, size_t bytes, uint8_t* to) {
  HWY_DYNAMIC_DISPATCH(CopyAll)
  (reinterpret_cast<const float*>(from), bytes / sizeof(float),
   reinterpret_cast<float*>(to));
}

void NegateFloats(float* x, size_t n) { HWY_DYNAMIC_DISPATCH(NegateAll)(x, n); }

}  // namespace ecphory
#endif
