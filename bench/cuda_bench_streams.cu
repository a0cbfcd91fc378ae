// The mHC sites and the Engram gate.
#include <cmath>
#include <cstdio>

#include "cuda_bench.h"
#include "ops/ops.h"

namespace ecphory {
namespace {

constexpr size_t kHidden = 5120, kStreams = 4;

const char* Suffix(StreamFormat format) {
  return format == StreamFormat::kBF16 ? " bf16" : "";
}

// Streams of one chunk and what a site needs.
struct Site {
  Site(size_t n, StreamFormat format)
      : tokens(n),
        h(RandomStreams(n * kStreams * kHidden, format)),
        y(Floats(n * kHidden)),
        x(Floats(n * kHidden)),
        fn(RandomMatrix(WeightFormat::kF32, 24, kStreams * kHidden)),
        scale(Floats(3)),
        base(Floats(24)),
        norm(Floats(kHidden)),
        pre(Floats(n * kStreams)),
        next(Floats(n * kStreams)),
        post(Floats(n * kStreams)),
        comb(Floats(n * kStreams * kStreams, 0.2f)) {}
  void Split(ThreadPool& pool, bool owed) const {
    CudaOps().hc_split({.y = owed ? y : nullptr,
                        .last_post = post,
                        .last_comb = comb,
                        .h = h,
                        .fn = fn,
                        .scale = scale,
                        .base = base,
                        .tokens = tokens,
                        .streams = kStreams,
                        .dim = kHidden,
                        .norm_eps = 1e-20f,
                        .hc_eps = 1e-6f,
                        .sinkhorn_iters = 20,
                        .collapse_pre = pre,
                        .norm_weight = norm,
                        .pre = next,
                        .post = post,
                        .comb = comb,
                        .x = x},
                       pool);
  }
  void Expand(ThreadPool& pool) const {
    CudaOps().hc_expand({.y = y,
                         .post = post,
                         .comb = comb,
                         .tokens = tokens,
                         .streams = kStreams,
                         .dim = kHidden,
                         .h = h},
                        pool);
  }
  size_t tokens;
  Streams h;
  float *y, *x;
  Matrix fn;
  float *scale, *base, *norm, *pre, *next, *post, *comb;
};

void BenchSites(Bench& bench, size_t tokens, StreamFormat format) {
  const std::string suffix = "/" + std::to_string(tokens) + Suffix(format);
  if (!bench.Wanted("hc_split" + suffix) && !bench.Wanted("hc_expand" + suffix))
    return;
  const size_t sets = tokens < 64 ? 200 : 2;
  std::vector<Site> sites;
  for (size_t i = 0; i < sets; ++i) sites.emplace_back(tokens, format);
  // A vector, and the streams of all tokens.
  const double row = static_cast<double>(tokens * kHidden * 4);
  const double h =
      static_cast<double>(tokens * kStreams * kHidden * StreamBytes(format));
  const double fn = 24.0 * kStreams * kHidden * 4;
  const auto each = [&](auto run) {
    std::vector<std::function<void()>> launches;
    for (const Site& site : sites) {
      launches.push_back([&bench, &site, run] { run(site); });
    }
    return launches;
  };
  bench.Report("hc_split" + suffix, h + row + fn,
               each([&](const Site& s) { s.Split(bench.pool, false); }));
  bench.Report("hc_expand" + suffix, 2 * h + row,
               each([&](const Site& s) { s.Expand(bench.pool); }));
  bench.Report("hc_split with the owed expand" + suffix, 2 * (h + row) + fn,
               each([&](const Site& s) { s.Split(bench.pool, true); }));
  bench.Report("hc_split, then hc_expand" + suffix, 3 * h + 2 * row + fn,
               each([&](const Site& s) {
                 s.Split(bench.pool, false);
                 s.Expand(bench.pool);
               }));
}

template <typename T>
std::vector<T> OnHost(const T* device, size_t n) {
  std::vector<T> copy(n);
  Check(cudaMemcpy(copy.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost));
  return copy;
}

// The largest differences of a split from the definition, which computes in
// double precision: coefficients lie in (0, 2), x is about 1.
void ReportSplitError(Bench& bench, size_t tokens, StreamFormat format) {
  const std::string name =
      "hc_split error/" + std::to_string(tokens) + Suffix(format);
  if (!bench.Wanted(name)) return;
  Site site(tokens, format);
  site.scale = Floats(3, 0.05f);  // logits of about 1
  const size_t n = kStreams;
  const bool bf16 = site.h.is_bf16();
  std::vector<uint8_t> h =
      OnHost(static_cast<const uint8_t*>(site.h.data),
             tokens * n * kHidden * StreamBytes(site.h.format));
  std::vector<float> pre = OnHost(site.pre, tokens * n);
  std::vector<float> post = OnHost(site.post, tokens * n);
  std::vector<float> comb = OnHost(site.comb, tokens * n * n);
  std::vector<float> x(tokens * kHidden), next(tokens * n);
  const std::vector<float> y = OnHost(site.y, tokens * kHidden);
  const std::vector<float> fn =
      OnHost(reinterpret_cast<const float*>(site.fn.data), 24 * n * kHidden);
  const std::vector<float> scale = OnHost(site.scale, 3);
  const std::vector<float> base = OnHost(site.base, 24);
  const std::vector<float> norm = OnHost(site.norm, kHidden);
  // An expand might be rounded to either side, and all that follows with it.
  site.Split(bench.pool, !bf16);
  Check(cudaStreamSynchronize(bench.stream));
  Matrix host_fn = site.fn;
  host_fn.data = reinterpret_cast<const uint8_t*>(fn.data());
  RefOps().hc_split({.y = bf16 ? nullptr : y.data(),
                     .last_post = post.data(),
                     .last_comb = comb.data(),
                     .h = {h.data(), site.h.format},
                     .fn = host_fn,
                     .scale = scale.data(),
                     .base = base.data(),
                     .tokens = tokens,
                     .streams = n,
                     .dim = kHidden,
                     .norm_eps = 1e-20f,
                     .hc_eps = 1e-6f,
                     .sinkhorn_iters = 20,
                     .collapse_pre = pre.data(),
                     .norm_weight = norm.data(),
                     .pre = next.data(),
                     .post = post.data(),
                     .comb = comb.data(),
                     .x = x.data()},
                    bench.pool);
  const auto largest = [](const std::vector<float>& expected,
                          const float* device) {
    const std::vector<float> actual = OnHost(device, expected.size());
    double error = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference = std::fabs(double{actual[i]} - expected[i]);
      // NaN is no error that could be left out.
      if (!(difference <= error)) error = difference;
    }
    return error;
  };
  std::printf("%-36s pre %.1e, post %.1e, comb %.1e, x %.1e\n", name.c_str(),
              largest(next, site.next), largest(post, site.post),
              largest(comb, site.comb), largest(x, site.x));
}

void BenchGate(Bench& bench, size_t tokens, StreamFormat format) {
  const std::string name =
      "engram_gate/" + std::to_string(tokens) + Suffix(format);
  if (!bench.Wanted(name)) return;
  const size_t sets = tokens < 64 ? 200 : 2;
  std::vector<std::function<void()>> launches;
  float* const qw = Floats(kStreams * kHidden);
  float* const kw = Floats(kStreams * kHidden);
  for (size_t i = 0; i < sets; ++i) {
    float* const kv = Floats(tokens * (kStreams + 1) * kHidden);
    const Streams h = RandomStreams(tokens * kStreams * kHidden, format);
    launches.push_back([=, &bench] {
      CudaOps().engram_gate({.kv = kv,
                             .q_weight = qw,
                             .k_weight = kw,
                             .tokens = tokens,
                             .streams = kStreams,
                             .dim = kHidden,
                             .eps = 1e-20f,
                             .h = h},
                            bench.pool);
    });
  }
  bench.Report(name,
               static_cast<double>(tokens * kHidden *
                                   ((kStreams + 1) * sizeof(float) +
                                    2 * kStreams * StreamBytes(format))),
               launches);
}

}  // namespace

void BenchStreams(Bench& bench) {
  for (const auto format : {StreamFormat::kF32, StreamFormat::kBF16}) {
    for (const size_t tokens : {1, 32, 512, 4096}) {
      BenchSites(bench, tokens, format);
    }
    for (const size_t tokens : {1, 1024}) {
      ReportSplitError(bench, tokens, format);
    }
    for (const size_t tokens : {1, 4096}) BenchGate(bench, tokens, format);
  }
}

}  // namespace ecphory
