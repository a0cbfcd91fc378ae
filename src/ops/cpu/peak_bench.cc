#include "ops/cpu/peak_bench.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/peak_bench.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// 12 chains cover the latency of two FMA units of 4-5 cycles.
constexpr size_t kChains = 12;

// Runs kChains * rounds vector FMAs; returns fp32 operations done.
double MultiplyAdds(size_t rounds, float* out) {
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

void SumAll(const float* x, size_t n, float* out) {
  VF sums[4] = {hn::Zero(kF), hn::Zero(kF), hn::Zero(kF), hn::Zero(kF)};
  for (size_t i = 0; i + 4 * kLanes <= n; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (size_t k = 0; k < 4; ++k) {
      sums[k] = hn::Add(sums[k], Load(x + i + k * kLanes));
    }
  }
  Store(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])), out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {

HWY_EXPORT(MultiplyAdds);
HWY_EXPORT(SumAll);

// The best of several runs: other processes only ever slow one down.
constexpr int kRuns = 20;

template <typename Function>
double Seconds(const Function& function) {
  const auto begin = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

volatile float g_sink;  // keeps results alive

}  // namespace

double MeasureFmaPeak() {
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    float out[64];
    double operations = 0;
    const double seconds = Seconds(
        [&] { operations = HWY_DYNAMIC_DISPATCH(MultiplyAdds)(200'000, out); });
    g_sink = out[0];
    best = std::max(best, operations / seconds);
  }
  return best;
}

double MeasureReadBandwidth(size_t bytes) {
  const std::vector<float> buffer(bytes / sizeof(float), 1.0f);
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    float out[64];
    const double seconds = Seconds([&] {
      HWY_DYNAMIC_DISPATCH(SumAll)(buffer.data(), buffer.size(), out);
    });
    g_sink = out[0];
    best = std::max(best, static_cast<double>(bytes) / seconds);
  }
  return best;
}

}  // namespace ecphory
#endif
