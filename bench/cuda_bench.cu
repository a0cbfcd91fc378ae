// CUDA operators alone at released shapes, each against the rate at which the
// same device copies: bytes that must move (inputs once, outputs once) over the
// median time of graph replays, rotating over buffers that exceed the L2.
//
// cuda_bench [NAME] runs the cases whose names contain NAME.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "ops/cuda/stream.cuh"
#include "ops/ops.h"

namespace ecphory {
namespace {

constexpr size_t kHidden = 5120, kStreams = 4;

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "cuda_bench: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

__global__ void FillFloats(float* x, size_t n, uint32_t seed, float scale) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n;
       i += size_t{gridDim.x} * blockDim.x) {
    uint32_t h = static_cast<uint32_t>(i) * 2654435761u + seed;
    h ^= h >> 15, h *= 2246822519u, h ^= h >> 13, h *= 3266489917u;
    h ^= h >> 16;
    x[i] = scale * (static_cast<float>(h >> 8) * 0x1p-23f - 1.0f);
  }
}

// Codes of ordinary magnitudes: no NaN in e4m3, scales near 1 in e8m0.
__global__ void FillBytes(uint8_t* x, size_t n, uint32_t seed, uint8_t low,
                          uint8_t mask) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n;
       i += size_t{gridDim.x} * blockDim.x) {
    uint32_t h = static_cast<uint32_t>(i) * 2654435761u + seed;
    h ^= h >> 15, h *= 2246822519u, h ^= h >> 13;
    x[i] = static_cast<uint8_t>(low + (h & mask));
  }
}

void* Device(size_t bytes) {
  void* p = nullptr;
  Check(cudaMalloc(&p, bytes));
  return p;
}

uint32_t g_seed = 1;
float* Floats(size_t n, float scale = 1) {
  float* const x = static_cast<float*>(Device(n * sizeof(float)));
  FillFloats<<<1024, 256>>>(x, n, g_seed++ * 7919u, scale);
  return x;
}

uint8_t* Codes(size_t n, uint8_t low, uint8_t mask) {
  uint8_t* const x = static_cast<uint8_t*>(Device(n));
  FillBytes<<<1024, 256>>>(x, n, g_seed++ * 104729u, low, mask);
  return x;
}

Matrix RandomMatrix(WeightFormat format, size_t rows, size_t cols) {
  Matrix m{.format = format, .rows = rows, .cols = cols};
  const size_t bytes = rows * m.row_bytes();
  switch (format) {
    case WeightFormat::kF32:
      m.data = reinterpret_cast<uint8_t*>(Floats(rows * cols));
      break;
    case WeightFormat::kFp8Tile32:
      m.data = Codes(bytes, 0, 0xbf);
      m.scales = Codes((rows + 31) / 32 * ((cols + 31) / 32), 124, 3);
      break;
    case WeightFormat::kFp4Row32:
      m.data = Codes(bytes, 0, 0xff);
      m.scales = Codes(rows * cols / 32, 124, 3);
      break;
    default:  // bytes of any value may be NaN scales, which cost nothing more
      m.data = Codes(bytes, 0, 0x3f);
  }
  return m;
}

// The median time of one call in seconds: `launches` queue one call on each
// buffer set, and a graph of all of them is replayed.
double Time(const std::vector<std::function<void()>>& launches,
            cudaStream_t stream) {
  for (const auto& launch : launches) launch();
  Check(cudaStreamSynchronize(stream));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (const auto& launch : launches) launch();
  Check(cudaStreamEndCapture(stream, &graph));
  Check(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin));
  Check(cudaEventCreate(&end));
  std::vector<double> times;
  for (int i = 0; i < 25; ++i) {
    Check(cudaEventRecord(begin, stream));
    Check(cudaGraphLaunch(exec, stream));
    Check(cudaEventRecord(end, stream));
    Check(cudaEventSynchronize(end));
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(ms * 1e-3 / static_cast<double>(launches.size()));
  }
  std::sort(times.begin(), times.end());
  Check(cudaGraphExecDestroy(exec));
  Check(cudaGraphDestroy(graph));
  return times[times.size() / 2];
}

struct Bench {
  cudaStream_t stream;
  double copy = 0;  // bytes a second, read and written
  std::string filter;
  ThreadPool pool{1};

  bool Wanted(const std::string& name) const {
    return name.find(filter) != name.npos;
  }
  void Report(const std::string& name, double bytes,
              const std::vector<std::function<void()>>& launches) {
    const double seconds = Time(launches, stream);
    std::printf("%-36s %10.2f us %9.0f GB/s %6.2f of copy\n", name.c_str(),
                seconds * 1e6, bytes / seconds * 1e-9, bytes / seconds / copy);
    std::fflush(stdout);
  }
};

__global__ void CopyKernel(const float4* from, float4* to, size_t n) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n;
       i += size_t{gridDim.x} * blockDim.x) {
    to[i] = from[i];
  }
}

void MeasureCopy(Bench& bench) {
  const size_t bytes = size_t{4} << 30;
  void* const from = Floats(bytes / 4);
  void* const to = Device(bytes);
  const double seconds = Time({[&] {
                                CopyKernel<<<132 * 16, 512, 0, bench.stream>>>(
                                    static_cast<const float4*>(from),
                                    static_cast<float4*>(to), bytes / 16);
                              }},
                              bench.stream);
  bench.copy = 2.0 * static_cast<double>(bytes) / seconds;
  std::printf("copy of 4 GiB: %.0f GB/s, read and written\n",
              bench.copy * 1e-9);
  Check(cudaFree(from));
  Check(cudaFree(to));
}

void BenchMatvec(Bench& bench, const char* format_name, WeightFormat format,
                 size_t rows, size_t cols, size_t tokens) {
  const std::string name = std::string("matmul/") + format_name + "/" +
                           std::to_string(rows) + "x" + std::to_string(cols) +
                           "/" + std::to_string(tokens);
  if (!bench.Wanted(name)) return;
  Matrix shape{.format = format, .rows = rows, .cols = cols};
  double bytes = static_cast<double>(rows * shape.row_bytes());
  if (format == WeightFormat::kFp8Tile32) bytes += rows / 32 * (cols / 32);
  if (format == WeightFormat::kFp4Row32) bytes += rows * (cols / 32);
  const size_t sets = static_cast<size_t>(400e6 / bytes) + 1;
  float* const x = Floats(tokens * cols);
  float* const y = Floats(tokens * rows);
  std::vector<Matrix> weights;
  std::vector<std::function<void()>> launches;
  for (size_t i = 0; i < sets; ++i) {
    weights.push_back(RandomMatrix(format, rows, cols));
    launches.push_back([&bench, x, y, tokens, w = weights.back()] {
      CudaOps().matmul({.weight = w, .x = x, .y = y, .tokens = tokens},
                       bench.pool);
    });
  }
  bench.Report(name, bytes, launches);
  Check(cudaFree(x));
  Check(cudaFree(y));
  for (const Matrix& w : weights) {
    Check(cudaFree(const_cast<uint8_t*>(w.data)));
    Check(cudaFree(const_cast<uint8_t*>(w.scales)));
  }
}

// Streams of one chunk and what a site needs.
struct Site {
  explicit Site(size_t n)
      : tokens(n),
        h(Floats(n * kStreams * kHidden)),
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
  float *h, *y, *x;
  Matrix fn;
  float *scale, *base, *norm, *pre, *next, *post, *comb;
};

void BenchSites(Bench& bench, size_t tokens) {
  const std::string suffix = "/" + std::to_string(tokens);
  if (!bench.Wanted("hc_split" + suffix) && !bench.Wanted("hc_expand" + suffix))
    return;
  const size_t sets = tokens < 64 ? 200 : 2;
  std::vector<Site> sites;
  for (size_t i = 0; i < sets; ++i) sites.emplace_back(tokens);
  const double row = static_cast<double>(tokens * kHidden * 4);
  const double fn = 24.0 * kStreams * kHidden * 4;
  const auto each = [&](auto run) {
    std::vector<std::function<void()>> launches;
    for (const Site& site : sites) {
      launches.push_back([&bench, &site, run] { run(site); });
    }
    return launches;
  };
  bench.Report("hc_split" + suffix, row * (kStreams + 1) + fn,
               each([&](const Site& s) { s.Split(bench.pool, false); }));
  bench.Report("hc_expand" + suffix, row * (2 * kStreams + 1),
               each([&](const Site& s) { s.Expand(bench.pool); }));
  bench.Report("hc_split with the owed expand" + suffix,
               row * (2 * kStreams + 2) + fn,
               each([&](const Site& s) { s.Split(bench.pool, true); }));
}

void BenchGate(Bench& bench, size_t tokens) {
  const std::string name = "engram_gate/" + std::to_string(tokens);
  if (!bench.Wanted(name)) return;
  const size_t sets = tokens < 64 ? 200 : 2;
  std::vector<std::function<void()>> launches;
  float* const qw = Floats(kStreams * kHidden);
  float* const kw = Floats(kStreams * kHidden);
  for (size_t i = 0; i < sets; ++i) {
    float* const kv = Floats(tokens * (kStreams + 1) * kHidden);
    float* const h = Floats(tokens * kStreams * kHidden);
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
               static_cast<double>(tokens * (3 * kStreams + 1) * kHidden * 4),
               launches);
}

int Main(const char* filter) {
  auto stream = cuda::Stream::Create(0);
  if (!stream.ok()) {
    std::fprintf(stderr, "cuda_bench: %s\n", stream.status().message().c_str());
    return 1;
  }
  const cuda::Stream::Scope scope(**stream);
  std::printf("%s\n", (*stream)->device().name.c_str());
  Bench bench{.stream = (*stream)->handles().stream, .filter = filter};
  MeasureCopy(bench);
  for (const size_t tokens : {1, 4096}) BenchSites(bench, tokens);
  for (const size_t tokens : {1, 4096}) BenchGate(bench, tokens);
  const struct {
    const char* name;
    WeightFormat format;
  } formats[] = {
      {"FP8", WeightFormat::kFp8Tile32},   {"FP4", WeightFormat::kFp4Row32},
      {"Q8_0", WeightFormat::kQ8_0},       {"MXFP4", WeightFormat::kMXFP4},
      {"Q4_K", WeightFormat::kQ4_K},       {"Q2_K", WeightFormat::kQ2_K},
      {"IQ2_XXS", WeightFormat::kIQ2_XXS}, {"BF16", WeightFormat::kBF16}};
  const size_t shapes[][2] = {
      {2304, 5120}, {5120, 2304}, {32768, 1280}, {8192, 4096}, {5120, 8192}};
  for (const auto& format : formats) {
    for (const auto& shape : shapes) {
      BenchMatvec(bench, format.name, format.format, shape[0], shape[1], 1);
    }
    BenchMatvec(bench, format.name, format.format, 32768, 1280, 8);
    BenchMatvec(bench, format.name, format.format, 8192, 4096, 512);
  }
  const Status status = (*stream)->Synchronize();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace ecphory

int main(int argc, char** argv) {
  return ecphory::Main(argc > 1 ? argv[1] : "");
}
