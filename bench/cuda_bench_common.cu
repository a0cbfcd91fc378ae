#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cuda_bench.h"

namespace ecphory {

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "cuda_bench: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

namespace {

__device__ float RandomValue(size_t i, uint32_t seed) {
  uint32_t h = static_cast<uint32_t>(i) * 2654435761u + seed;
  h ^= h >> 15, h *= 2246822519u, h ^= h >> 13, h *= 3266489917u;
  h ^= h >> 16;
  return static_cast<float>(h >> 8) * 0x1p-23f - 1.0f;
}

__global__ void FillFloats(float* x, size_t n, uint32_t seed, float scale) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n;
       i += size_t{gridDim.x} * blockDim.x) {
    x[i] = scale * RandomValue(i, seed);
  }
}

// The same as bf16.
__global__ void FillBf16(uint16_t* x, size_t n, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n;
       i += size_t{gridDim.x} * blockDim.x) {
    const float value = RandomValue(i, seed);
    x[i] = static_cast<uint16_t>(__float_as_uint(value) >> 16);
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

uint32_t g_seed = 1;

}  // namespace

void* Device(size_t bytes) {
  void* p = nullptr;
  Check(cudaMalloc(&p, bytes));
  return p;
}

float* Floats(size_t n, float scale) {
  float* const x = static_cast<float*>(Device(n * sizeof(float)));
  FillFloats<<<1024, 256>>>(x, n, g_seed++ * 7919u, scale);
  return x;
}

Streams RandomStreams(size_t n, StreamFormat format) {
  if (format == StreamFormat::kF32) return Floats(n);
  uint16_t* const x = static_cast<uint16_t*>(Device(n * sizeof(uint16_t)));
  FillBf16<<<1024, 256>>>(x, n, g_seed++ * 7919u);
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

double MatrixBytes(const Matrix& m) {
  const size_t codes = m.rows * m.row_bytes();
  size_t scales = 0;
  if (m.format == WeightFormat::kFp8Tile32) {
    scales = (m.rows + 31) / 32 * ((m.cols + 31) / 32);
  } else if (m.format == WeightFormat::kFp4Row32) {
    scales = m.rows * (m.cols / 32);
  }
  return static_cast<double>(codes + scales);
}

void Free(const Matrix& m) {
  Check(cudaFree(const_cast<uint8_t*>(m.data)));
  Check(cudaFree(const_cast<uint8_t*>(m.scales)));
}

double Bench::Median(const std::vector<std::function<void()>>& launches) const {
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

void Bench::Report(const std::string& name, double bytes,
                   const std::vector<std::function<void()>>& launches,
                   double flops) {
  const double seconds = Median(launches);
  std::printf("%-36s %10.2f us %9.0f GB/s %6.2f of copy", name.c_str(),
              seconds * 1e6, bytes / seconds * 1e-9, bytes / seconds / copy);
  if (flops > 0) std::printf(" %7.1f TFLOP/s", flops / seconds * 1e-12);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace ecphory
