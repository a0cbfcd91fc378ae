// Both families of collapse timing, against loops written out here.
#include "model/hyper_connections.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>

#include "tensor/float_codec.h"

namespace ecphory {
namespace {

constexpr size_t kTokens = 3, kDim = 40;

struct Site {
  std::vector<float> fn, base;
  HyperConnectionWeights weights;
};

std::vector<float> Random(size_t count, std::mt19937& rng, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> x(count);
  for (float& v : x) v = normal(rng);
  return x;
}

Matrix View(const std::vector<float>& data, size_t rows, size_t cols) {
  return {.format = WeightFormat::kF32,
          .rows = rows,
          .cols = cols,
          .data = reinterpret_cast<const uint8_t*>(data.data())};
}

class HyperConnectionsTest
    : public ::testing::TestWithParam<std::tuple<size_t, HyperConnectionMode>> {
 protected:
  size_t H() const { return std::get<0>(GetParam()); }
  HyperConnectionMode mode() const { return std::get<1>(GetParam()); }

  Site MakeSite() {
    Site site;
    const size_t rows = (2 + H()) * H();
    site.fn = Random(rows * H() * kDim, rng_, 0.2f);
    site.base = Random(rows, rng_, 1.0f);
    return site;
  }
  void Bind(Site& site) {
    const size_t rows = (2 + H()) * H();
    site.weights.fn = View(site.fn, rows, H() * kDim);
    site.weights.base = DeviceArray<float>::Of(HostDevice(), site.base).value();
    const std::vector<float> scale = {0.7f, 1.1f, 0.9f};
    site.weights.scale = DeviceArray<float>::Of(HostDevice(), scale).value();
  }

  std::mt19937 rng_{7};
};

// Streams of the host.
void SetStreams(HyperConnections& streams, const std::vector<float>& values) {
  const Streams h = streams.streams();
  if (h.is_bf16()) {
    std::transform(values.begin(), values.end(), static_cast<uint16_t*>(h.data),
                   F32ToBF16);
  } else {
    std::copy(values.begin(), values.end(), static_cast<float*>(h.data));
  }
}

std::vector<float> GetStreams(HyperConnections& streams, size_t count) {
  const Streams h = streams.streams();
  std::vector<float> values(count);
  if (h.is_bf16()) {
    std::transform(static_cast<uint16_t*>(h.data),
                   static_cast<uint16_t*>(h.data) + count, values.begin(),
                   BF16ToF32);
  } else {
    std::copy_n(static_cast<float*>(h.data), count, values.begin());
  }
  return values;
}

// A sublayer.
void Triple(const float* x, float* y) {
  for (size_t i = 0; i < kTokens * kDim; ++i) y[i] = 3 * x[i];
}

double Sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

// One token of one site, as the specification spells it.
struct Naive {
  size_t H;
  std::vector<double> pre, post;
  std::vector<std::vector<double>> comb;

  void Mix(const Site& site, const std::vector<double>& h, float eps,
           float hc_eps, int iters) {
    const size_t n = H * kDim;
    double mean = 0;
    for (double v : h) mean += v * v / static_cast<double>(n);
    std::vector<double> m((2 + H) * H);
    for (size_t r = 0; r < m.size(); ++r) {
      for (size_t i = 0; i < n; ++i) m[r] += site.fn[r * n + i] * h[i];
      m[r] /= std::sqrt(mean + eps);
    }
    const float* const scale = site.weights.scale.data();
    const float* const base = site.weights.base.data();
    pre.assign(H, 0);
    post.assign(H, 0);
    comb.assign(H, std::vector<double>(H));
    for (size_t s = 0; s < H; ++s) {
      pre[s] = Sigmoid(m[s] * scale[0] + base[s]) + hc_eps;
      post[s] = 2 * Sigmoid(m[H + s] * scale[1] + base[H + s]);
      double sum = 0;
      for (size_t k = 0; k < H; ++k) {
        const size_t at = 2 * H + s * H + k;
        comb[s][k] = std::exp(m[at] * scale[2] + base[at]);
        sum += comb[s][k];
      }
      for (size_t k = 0; k < H; ++k) comb[s][k] = comb[s][k] / sum + hc_eps;
    }
    Columns(hc_eps);
    for (int i = 1; i < iters; ++i) {
      Rows(hc_eps);
      Columns(hc_eps);
    }
  }
  void Rows(double eps) {
    for (auto& row : comb) {
      double sum = eps;
      for (double v : row) sum += v;
      for (double& v : row) v /= sum;
    }
  }
  void Columns(double eps) {
    for (size_t k = 0; k < H; ++k) {
      double sum = eps;
      for (size_t j = 0; j < H; ++j) sum += comb[j][k];
      for (size_t j = 0; j < H; ++j) comb[j][k] /= sum;
    }
  }
};

std::vector<double> NormedCollapse(const std::vector<double>& h,
                                   const std::vector<double>& pre,
                                   const std::vector<float>& norm, float eps) {
  std::vector<double> x(kDim);
  double mean = 0;
  for (size_t i = 0; i < kDim; ++i) {
    for (size_t s = 0; s < pre.size(); ++s) x[i] += pre[s] * h[s * kDim + i];
    mean += x[i] * x[i] / kDim;
  }
  for (size_t i = 0; i < kDim; ++i) x[i] *= norm[i] / std::sqrt(mean + eps);
  return x;
}

TEST_P(HyperConnectionsTest, TwoSitesAndFinalMatchTheSpecification) {
  const float eps = 1e-6f, hc_eps = 1e-6f;
  const int iters = 5;
  Site a = MakeSite(), b = MakeSite();
  Bind(a);
  Bind(b);
  const std::vector<float> head_fn = Random(H() * H() * kDim, rng_, 0.2f);
  const std::vector<float> head_base = Random(H(), rng_, 1.0f);
  const float head_scale = 0.8f;
  const std::vector<float> norm = Random(kDim, rng_, 1.0f);
  const std::vector<float> start = Random(kTokens * H() * kDim, rng_, 1.0f);

  ThreadPool pool(2);
  for (const size_t first : {size_t{0}, kTokens - 1}) {
    HyperConnections streams({.streams = H(),
                              .dim = kDim,
                              .norm_eps = eps,
                              .hc_eps = hc_eps,
                              .sinkhorn_iters = iters,
                              .mode = mode()},
                             CpuOps(), pool);
    ASSERT_TRUE(streams.Allocate(kTokens, HostDevice()).ok());
    streams.Begin(kTokens);
    SetStreams(streams, start);
    streams.Site(a.weights, norm.data(), Triple);
    streams.Site(b.weights, norm.data(), Triple);
    const float* collapsed = streams.Final(
        {View(head_fn, H(), H() * kDim), &head_scale, head_base.data()}, first);

    for (size_t t = first; t < kTokens; ++t) {
      std::vector<double> h(
          start.begin() + static_cast<ptrdiff_t>(t * H() * kDim),
          start.begin() + static_cast<ptrdiff_t>((t + 1) * H() * kDim));
      std::vector<double> last_pre(H());
      last_pre[0] = 1;
      for (Site* site : {&a, &b}) {
        Naive mix{.H = H(), .pre = {}, .post = {}, .comb = {}};
        mix.Mix(*site, h, eps, hc_eps, iters);
        const auto& pre =
            mode() == HyperConnectionMode::kSinglePass ? last_pre : mix.pre;
        std::vector<double> next(h.size());
        const std::vector<double> x = NormedCollapse(h, pre, norm, eps);
        for (size_t i = 0; i < kDim; ++i) {
          for (size_t k = 0; k < H(); ++k) {
            double sum = mix.post[k] * 3 * x[i];
            for (size_t j = 0; j < H(); ++j) {
              sum += mix.comb[j][k] * h[j * kDim + i];
            }
            next[k * kDim + i] = sum;
          }
        }
        h = next;
        last_pre = mix.pre;
      }
      if (mode() == HyperConnectionMode::kPerSite) {
        double mean = 0;
        for (double v : h) mean += v * v / static_cast<double>(h.size());
        for (size_t s = 0; s < H(); ++s) {
          double m = 0;
          for (size_t i = 0; i < h.size(); ++i)
            m += head_fn[s * h.size() + i] * h[i];
          m /= std::sqrt(mean + eps);
          last_pre[s] = Sigmoid(m * head_scale + head_base[s]) + hc_eps;
        }
      }
      for (size_t i = 0; i < kDim; ++i) {
        double x = 0;
        for (size_t s = 0; s < H(); ++s) x += last_pre[s] * h[s * kDim + i];
        EXPECT_NEAR(collapsed[t * kDim + i], x, 2e-5 * (1 + std::abs(x)));
      }
    }
  }
}

// Looking at the streams between sites changes no bit of what follows.
TEST_P(HyperConnectionsTest, TheExpandMayBeAskedForAtAnyTime) {
  Site sites[3] = {MakeSite(), MakeSite(), MakeSite()};
  for (Site& site : sites) Bind(site);
  const std::vector<float> norm = Random(kDim, rng_, 1.0f);
  const std::vector<float> start = Random(kTokens * H() * kDim, rng_, 1.0f);
  ThreadPool pool(2);
  for (const Ops* ops : {&CpuOps(), &RefOps()}) {
    for (const auto format : {StreamFormat::kF32, StreamFormat::kBF16}) {
      HyperConnections streams({.streams = H(),
                                .dim = kDim,
                                .norm_eps = 1e-6f,
                                .hc_eps = 1e-6f,
                                .sinkhorn_iters = 5,
                                .mode = mode(),
                                .format = format},
                               *ops, pool);
      ASSERT_TRUE(streams.Allocate(kTokens, HostDevice()).ok());
      const auto run = [&](unsigned looks) {  // bit i: after site i
        streams.Begin(kTokens);
        SetStreams(streams, start);
        for (unsigned i = 0; i < 3; ++i) {
          streams.Site(sites[i].weights, norm.data(), Triple);
          if (looks >> i & 1) streams.streams();
        }
        return GetStreams(streams, start.size());
      };
      const std::vector<float> unseen = run(0);
      EXPECT_NE(unseen, start);
      for (unsigned looks = 1; looks < 8; ++looks) {
        EXPECT_EQ(unseen, run(looks)) << looks;
      }
    }
  }
}

// A chunk that failed after a site leaves nothing to the next one.
TEST_P(HyperConnectionsTest, BeginDropsAPendingExpand) {
  Site site = MakeSite();
  Bind(site);
  const std::vector<float> norm(kDim, 1.0f);
  const std::vector<float> start = Random(kTokens * H() * kDim, rng_, 1.0f);
  ThreadPool pool(1);
  HyperConnections streams({.streams = H(),
                            .dim = kDim,
                            .norm_eps = 1e-6f,
                            .hc_eps = 1e-6f,
                            .sinkhorn_iters = 2,
                            .mode = mode()},
                           CpuOps(), pool);
  ASSERT_TRUE(streams.Allocate(kTokens, HostDevice()).ok());
  streams.Begin(kTokens);
  SetStreams(streams, start);
  streams.Site(site.weights, norm.data(), Triple);
  streams.Begin(kTokens);
  SetStreams(streams, start);
  EXPECT_EQ(start, GetStreams(streams, start.size()));
}

INSTANTIATE_TEST_SUITE_P(
    Streams, HyperConnectionsTest,
    ::testing::Combine(::testing::Values(2, 3, 4, 7, 16),
                       ::testing::Values(HyperConnectionMode::kSinglePass,
                                         HyperConnectionMode::kPerSite)));

}  // namespace
}  // namespace ecphory
