// Operators of the CPU backend at the bundled model's shapes and a few wider.
//
// Names: operator/format/out x in/tokens/threads. Counters:
//   GB/s      weight bytes per second; %read is its share of the bandwidth with
//             which the same threads read as large a buffer
//   GFLOP/s   2 per multiply-add; %peak is its share of the FMA peak of as many
//             cores
// Both yardsticks are measured at the start of the run and printed. On a shared
// machine run with --benchmark_repetitions=10 and read the minimum of the times
// and the maximum of the rates. Weights
// rotate through 16 MB, so that a matrix is not in L2 when its turn comes, as
// in a model.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ops/cpu/peak.h"
#include "ops/ops.h"
#include "tensor/float_codec.h"

namespace ecphory {
namespace {

constexpr size_t kWorkingSet = 16 << 20;
constexpr size_t kHidden = 288;
constexpr size_t kStreams = 4;

struct Yardstick {
  double flops = 0;  // one core
  double bytes = 0;  // one core, kWorkingSet
};
Yardstick g_yardstick;

ThreadPool& Pool(size_t threads) {
  static std::map<size_t, std::unique_ptr<ThreadPool>> pools;
  auto& pool = pools[threads];
  if (pool == nullptr) pool = std::make_unique<ThreadPool>(threads);
  return *pool;
}

std::mt19937 g_random(1);

std::vector<float> RandomFloats(size_t n) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(n);
  for (float& value : values) value = uniform(g_random);
  return values;
}

// Stored bytes of random weights of ordinary magnitudes.
std::vector<uint8_t> RandomWeights(WeightFormat format, size_t bytes) {
  std::vector<uint8_t> data(bytes);
  const auto fill16 = [&](auto encode) {
    for (size_t i = 0; i + 2 <= bytes; i += 2) {
      const uint16_t code = encode(static_cast<float>(g_random() % 256) / 256);
      std::memcpy(&data[i], &code, 2);
    }
  };
  switch (format) {
    case WeightFormat::kF32: {
      const std::vector<float> values = RandomFloats(bytes / 4);
      std::memcpy(data.data(), values.data(), values.size() * 4);
      return data;
    }
    case WeightFormat::kF16: fill16(F32ToF16); return data;
    case WeightFormat::kBF16: fill16(F32ToBF16); return data;
    default: break;
  }
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(g_random() & 0xbf);
  const uint16_t q8_scale = F32ToF16(0.01f);
  if (format == WeightFormat::kQ8_0) {
    for (size_t i = 0; i < bytes; i += 34) std::memcpy(&data[i], &q8_scale, 2);
  } else if (format == WeightFormat::kMXFP4) {
    for (size_t i = 0; i < bytes; i += 17) data[i] = 124;
  }
  return data;
}

// Enough matrices of one shape to fill the working set, visited in turn.
class Weights {
 public:
  Weights(WeightFormat format, size_t rows, size_t cols)
      : shape_{.format = format, .rows = rows, .cols = cols} {
    const size_t matrix_bytes = rows * shape_.row_bytes();
    bytes_ = matrix_bytes;
    count_ = std::max<size_t>(1, kWorkingSet / matrix_bytes);
    data_ = RandomWeights(format, count_ * matrix_bytes);
    if (format == WeightFormat::kFp8Tile32 ||
        format == WeightFormat::kFp4Row32) {
      scales_.assign(rows * ((cols + 31) / 32), 124);
    }
  }
  Matrix Next() {
    Matrix matrix = shape_;
    matrix.data = data_.data() + next_ * bytes_;
    matrix.scales = scales_.data();
    next_ = (next_ + 1) % count_;
    return matrix;
  }
  size_t bytes() const { return bytes_; }

 private:
  Matrix shape_;
  size_t bytes_ = 0;
  size_t count_ = 0;
  size_t next_ = 0;
  std::vector<uint8_t> data_;
  std::vector<uint8_t> scales_;
};

// `macs` and `weight_bytes` of one call.
void Report(benchmark::State& state, size_t threads, double macs,
            double weight_bytes) {
  using benchmark::Counter;
  const double n = static_cast<double>(threads);
  const auto rate = [&](double amount) {
    return Counter(amount, Counter::kIsIterationInvariantRate);
  };
  state.counters["GFLOP/s"] = rate(2 * macs / 1e9);
  state.counters["%peak"] = rate(100 * 2 * macs / (n * g_yardstick.flops));
  if (weight_bytes > 0) {
    state.counters["GB/s"] = rate(weight_bytes / 1e9);
    state.counters["%read"] =
        rate(100 * weight_bytes / (n * g_yardstick.bytes));
  }
}

double Min(const std::vector<double>& v) {
  return *std::min_element(v.begin(), v.end());
}
double Max(const std::vector<double>& v) {
  return *std::max_element(v.begin(), v.end());
}

using Body = std::function<void(benchmark::State&, size_t threads)>;

void Register(const std::string& name, const Body& body) {
  for (const size_t threads : {1, 2}) {
    const std::string full = name + "/threads:" + std::to_string(threads);
    benchmark::internal::Benchmark* const added = benchmark::RegisterBenchmark(
        full.c_str(),
        [body, threads](benchmark::State& state) { body(state, threads); });
    added->Unit(benchmark::kMicrosecond)
        ->ComputeStatistics("min", Min)
        ->ComputeStatistics("max", Max);
    // One thread: its processor time, which a busy machine distorts less.
    if (threads > 1) added->UseRealTime();
  }
}

std::string ShortName(WeightFormat format) {
  std::string name = WeightFormatName(format);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

void Matmul(benchmark::State& state, size_t threads, WeightFormat format,
            size_t out, size_t in, size_t tokens) {
  Weights weights(format, out, in);
  const std::vector<float> x = RandomFloats(tokens * in);
  std::vector<float> y(tokens * out);
  ThreadPool& pool = Pool(threads);
  for (auto _ : state) {
    CpuOps().matmul({.weight = weights.Next(),
                     .x = x.data(),
                     .y = y.data(),
                     .tokens = tokens},
                    pool);
  }
  Report(state, threads, static_cast<double>(tokens * out * in),
         static_cast<double>(weights.bytes()));
}

void Experts(benchmark::State& state, size_t threads, WeightFormat format,
             size_t tokens) {
  constexpr size_t kExperts = 16;
  constexpr size_t kTopk = 4;
  constexpr size_t kInner = 96;
  Weights w1(format, kInner, kHidden);
  Weights w3(format, kInner, kHidden);
  Weights w2(format, kHidden, kInner);
  std::vector<Expert> experts(kExperts);
  std::vector<int32_t> ids(tokens * kTopk);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>((i + i / kTopk * 5) % kExperts);
  }
  const std::vector<float> slot_weights(tokens * kTopk, 0.25f);
  const std::vector<float> x = RandomFloats(tokens * kHidden);
  std::vector<float> y(tokens * kHidden);
  for (auto _ : state) {
    for (Expert& expert : experts) expert = {w1.Next(), w3.Next(), w2.Next()};
    CpuOps().experts({.x = x.data(),
                      .tokens = tokens,
                      .dim = kHidden,
                      .experts = experts.data(),
                      .n_experts = kExperts,
                      .ids = ids.data(),
                      .weights = slot_weights.data(),
                      .topk = kTopk,
                      .swiglu_limit = 10,
                      .y = y.data()},
                     Pool(threads));
  }
  const size_t used = std::min(tokens * kTopk, kExperts);
  Report(state, threads,
         static_cast<double>(tokens * kTopk * 3 * kInner * kHidden),
         static_cast<double>(used * 3 * w1.bytes()));
}

void HcSplit(benchmark::State& state, size_t threads, size_t tokens) {
  constexpr size_t kWidth = (2 + kStreams) * kStreams;
  Weights fn(WeightFormat::kF32, kWidth, kStreams * kHidden);
  std::vector<float> h = RandomFloats(tokens * kStreams * kHidden);
  std::vector<float> x(tokens * kHidden);
  const std::vector<float> norm = RandomFloats(kHidden);
  const std::vector<float> scale = RandomFloats(3);
  const std::vector<float> base = RandomFloats(kWidth);
  std::vector<float> pre(tokens * kStreams), post(tokens * kStreams);
  std::vector<float> comb(tokens * kStreams * kStreams);
  for (auto _ : state) {
    CpuOps().hc_split({.h = h.data(),
                       .fn = fn.Next(),
                       .scale = scale.data(),
                       .base = base.data(),
                       .tokens = tokens,
                       .streams = kStreams,
                       .dim = kHidden,
                       .norm_eps = 1e-6f,
                       .hc_eps = 1e-6f,
                       .sinkhorn_iters = 20,
                       .norm_weight = norm.data(),
                       .pre = pre.data(),
                       .post = post.data(),
                       .comb = comb.data(),
                       .x = x.data()},
                      Pool(threads));
  }
  Report(state, threads,
         static_cast<double>(tokens * kWidth * kStreams * kHidden),
         static_cast<double>(fn.bytes()));
}

void HcExpand(benchmark::State& state, size_t threads, size_t tokens) {
  std::vector<float> h = RandomFloats(tokens * kStreams * kHidden);
  const std::vector<float> y = RandomFloats(tokens * kHidden);
  const std::vector<float> post(tokens * kStreams, 0.1f);
  const std::vector<float> comb(tokens * kStreams * kStreams, 0.25f);
  for (auto _ : state) {
    CpuOps().hc_expand({.y = y.data(),
                        .post = post.data(),
                        .comb = comb.data(),
                        .tokens = tokens,
                        .streams = kStreams,
                        .dim = kHidden,
                        .h = h.data()},
                       Pool(threads));
  }
  Report(state, threads,
         static_cast<double>(tokens * kStreams * (kStreams + 1) * kHidden), 0);
}

struct AttentionShape {
  size_t tokens, heads, dim, window, topk;
};

void Attention(benchmark::State& state, size_t threads,
               const AttentionShape& shape) {
  constexpr uint64_t kPosition = 1000;
  constexpr size_t kGroups = 512;
  const auto [tokens, heads, dim, window, topk] = shape;
  const size_t capacity = window + tokens;
  const auto rows = [](RowFormat format, size_t n, size_t width) {
    std::vector<uint8_t> packed(n * RowBytes(format, width));
    for (size_t i = 0; i < n; ++i) {
      EncodeRow(format, RandomFloats(width).data(), width,
                packed.data() + i * RowBytes(format, width));
    }
    return packed;
  };
  const auto window_rows = rows(RowFormat::kFp8Block32, capacity, dim);
  const auto latent_rows = rows(RowFormat::kFp4Block16, kGroups, dim);
  std::vector<int32_t> selected(tokens * topk);
  for (size_t i = 0; i < selected.size(); ++i) {
    selected[i] = static_cast<int32_t>(i % topk * (kGroups / topk));
  }
  const std::vector<float> q = RandomFloats(tokens * heads * dim);
  const std::vector<float> sink = RandomFloats(heads);
  std::vector<float> out(q.size());
  for (auto _ : state) {
    CpuOps().attention({.q = q.data(),
                        .tokens = tokens,
                        .heads = heads,
                        .dim = dim,
                        .first_position = kPosition,
                        .window_format = RowFormat::kFp8Block32,
                        .window_rows = window_rows.data(),
                        .window_capacity = capacity,
                        .window = window,
                        .latent_format = RowFormat::kFp4Block16,
                        .latent_rows = latent_rows.data(),
                        .selected = selected.data(),
                        .topk = topk,
                        .sink = sink.data(),
                        .scale = 0.125f,
                        .out = out.data()},
                       Pool(threads));
  }
  Report(state, threads,
         static_cast<double>(2 * tokens * heads * dim * (window + topk)), 0);
}

void IndexScores(benchmark::State& state, size_t threads, size_t tokens,
                 size_t groups) {
  constexpr size_t kHeads = 4;
  constexpr size_t kDim = 32;
  const std::vector<float> q = RandomFloats(tokens * kHeads * kDim);
  const std::vector<float> weights = RandomFloats(tokens * kHeads);
  const size_t row_bytes = RowBytes(RowFormat::kFp4Block32, kDim);
  std::vector<uint8_t> keys(groups * row_bytes, 0x35);
  for (size_t g = 0; g < groups; ++g) keys[g * row_bytes + kDim / 2] = 124;
  std::vector<float> scores(tokens * groups);
  for (auto _ : state) {
    CpuOps().index_scores({.q = q.data(),
                           .weights = weights.data(),
                           .tokens = tokens,
                           .heads = kHeads,
                           .dim = kDim,
                           .first_position = groups,
                           .ratio = 1,
                           .key_format = RowFormat::kFp4Block32,
                           .key_rows = keys.data(),
                           .groups = groups,
                           .key_scale = 0.1f,
                           .head_scale = 0.5f,
                           .scores = scores.data()},
                          Pool(threads));
  }
  Report(state, threads, static_cast<double>(tokens * groups * kHeads * kDim),
         0);
}

void SelectTopk(benchmark::State& state, size_t threads, size_t tokens,
                size_t groups, size_t topk) {
  const std::vector<float> scores = RandomFloats(tokens * groups);
  std::vector<int32_t> selected(tokens * topk);
  for (auto _ : state) {
    CpuOps().select_topk({.scores = scores.data(),
                          .tokens = tokens,
                          .groups = groups,
                          .topk = topk,
                          .selected = selected.data()},
                         Pool(threads));
  }
}

void RmsNorm(benchmark::State& state, size_t threads, size_t rows) {
  const std::vector<float> x = RandomFloats(rows * kHidden);
  const std::vector<float> weight = RandomFloats(kHidden);
  std::vector<float> y(x.size());
  for (auto _ : state) {
    CpuOps().rms_norm({.x = x.data(),
                       .weight = weight.data(),
                       .y = y.data(),
                       .rows = rows,
                       .dim = kHidden,
                       .eps = 1e-6f},
                      Pool(threads));
  }
}

void Rope(benchmark::State& state, size_t threads, size_t tokens) {
  constexpr size_t kHeads = 6;
  constexpr size_t kDim = 64;
  constexpr size_t kRopeDim = 16;
  std::vector<float> x = RandomFloats(tokens * kHeads * kDim);
  const std::vector<int64_t> positions(tokens, 777);
  const std::vector<float> inv_freq = RandomFloats(kRopeDim / 2);
  for (auto _ : state) {
    CpuOps().rope({.x = x.data(),
                   .positions = positions.data(),
                   .inv_freq = inv_freq.data(),
                   .tokens = tokens,
                   .heads = kHeads,
                   .dim = kDim,
                   .rope_dim = kRopeDim},
                  Pool(threads));
  }
}

void RoundRows(benchmark::State& state, size_t threads, RowFormat format,
               size_t rows, size_t dim) {
  const std::vector<float> source = RandomFloats(rows * dim);
  std::vector<float> x = source;
  for (auto _ : state) {
    x = source;
    CpuOps().round_rows(
        {.x = x.data(), .rows = rows, .dim = dim, .format = format},
        Pool(threads));
  }
}

void Router(benchmark::State& state, size_t threads, size_t tokens,
            size_t experts) {
  constexpr size_t kTopk = 4;
  const std::vector<float> logits = RandomFloats(tokens * experts);
  const std::vector<float> bias = RandomFloats(experts);
  std::vector<int32_t> ids(tokens * kTopk);
  std::vector<float> weights(tokens * kTopk);
  for (auto _ : state) {
    CpuOps().router({.logits = logits.data(),
                     .bias = bias.data(),
                     .bias_image = bias.data(),
                     .tokens = tokens,
                     .experts = experts,
                     .topk = kTopk,
                     .ids = ids.data(),
                     .weights = weights.data()},
                    Pool(threads));
  }
}

void EngramGate(benchmark::State& state, size_t threads, size_t tokens) {
  const std::vector<float> kv = RandomFloats(tokens * (kStreams + 1) * kHidden);
  const std::vector<float> weights = RandomFloats(kStreams * kHidden);
  std::vector<float> h = RandomFloats(tokens * kStreams * kHidden);
  for (auto _ : state) {
    CpuOps().engram_gate({.kv = kv.data(),
                          .q_weight = weights.data(),
                          .k_weight = weights.data(),
                          .tokens = tokens,
                          .streams = kStreams,
                          .dim = kHidden,
                          .eps = 1e-6f,
                          .h = h.data()},
                         Pool(threads));
  }
}

// An empty body on every thread: what a split costs while workers are awake.
void ForkJoin(benchmark::State& state, size_t threads) {
  ThreadPool& pool = Pool(threads);
  for (auto _ : state) {
    pool.ParallelFor(threads, 1, [](size_t, size_t, size_t) {});
  }
}

void RegisterMatmuls() {
  constexpr WeightFormat kFormats[] = {
      WeightFormat::kF32,     WeightFormat::kF16,   WeightFormat::kBF16,
      WeightFormat::kQ8_0,    WeightFormat::kMXFP4, WeightFormat::kFp8Tile32,
      WeightFormat::kFp4Row32};
  struct Shape {
    size_t out, in;
  };
  // A projection, the head, an expert's w2, and one layer of a wider model.
  constexpr Shape kShapes[] = {
      {288, 288}, {8192, 288}, {288, 96}, {2048, 2048}};
  for (const WeightFormat format : kFormats) {
    for (const Shape shape : kShapes) {
      for (const size_t tokens : {1, 4, 64, 512}) {
        Register("matmul/" + ShortName(format) + "/" +
                     std::to_string(shape.out) + "x" +
                     std::to_string(shape.in) +
                     "/tokens:" + std::to_string(tokens),
                 [=](benchmark::State& state, size_t threads) {
                   Matmul(state, threads, format, shape.out, shape.in, tokens);
                 });
      }
    }
  }
}

void RegisterOthers() {
  using State = benchmark::State;
  Register("fork_join", ForkJoin);
  for (const size_t tokens : {1, 64, 512}) {
    const std::string suffix = "/tokens:" + std::to_string(tokens);
    for (const WeightFormat format :
         {WeightFormat::kMXFP4, WeightFormat::kFp4Row32, WeightFormat::kQ8_0}) {
      Register("experts/" + ShortName(format) + suffix,
               [=](State& state, size_t threads) {
                 Experts(state, threads, format, tokens);
               });
    }
    Register("hc_split" + suffix, [=](State& state, size_t threads) {
      HcSplit(state, threads, tokens);
    });
    Register("hc_expand" + suffix, [=](State& state, size_t threads) {
      HcExpand(state, threads, tokens);
    });
    Register("attention/6x64/128+64" + suffix,
             [=](State& state, size_t threads) {
               Attention(state, threads, {tokens, 6, 64, 128, 64});
             });
    Register("index_scores/2048" + suffix, [=](State& state, size_t threads) {
      IndexScores(state, threads, tokens, 2048);
    });
    Register("select_topk/2048" + suffix, [=](State& state, size_t threads) {
      SelectTopk(state, threads, tokens, 2048, 64);
    });
    Register("rms_norm" + suffix, [=](State& state, size_t threads) {
      RmsNorm(state, threads, tokens);
    });
    Register("rope" + suffix, [=](State& state, size_t threads) {
      Rope(state, threads, tokens);
    });
    Register("round_rows/fp8_64" + suffix, [=](State& state, size_t threads) {
      RoundRows(state, threads, RowFormat::kFp8Block32, tokens, 64);
    });
    Register("round_rows/fp4_4x32" + suffix, [=](State& state, size_t threads) {
      RoundRows(state, threads, RowFormat::kFp4Block32, 4 * tokens, 32);
    });
    Register("router/16" + suffix, [=](State& state, size_t threads) {
      Router(state, threads, tokens, 16);
    });
    Register("engram_gate" + suffix, [=](State& state, size_t threads) {
      EngramGate(state, threads, tokens);
    });
  }
}

int Main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  g_yardstick = {MeasureFmaPeak(), MeasureReadBandwidth(kWorkingSet)};
  std::printf(
      "target %s, one core: FMA peak %.1f GFLOP/s, read %.1f GB/s from "
      "%zu MB, %.1f GB/s from 256 MB\n",
      CpuTargetName(), g_yardstick.flops / 1e9, g_yardstick.bytes / 1e9,
      kWorkingSet >> 20, MeasureReadBandwidth(256 << 20) / 1e9);
  RegisterMatmuls();
  RegisterOthers();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace ecphory

int main(int argc, char** argv) { return ecphory::Main(argc, argv); }
