// CUDA operators alone at released shapes, each against the rate at which the
// same device copies: bytes that must move (inputs once, outputs once) over the
// median time of graph replays, rotating over buffers that exceed the L2.
//
// cuda_bench [NAME,NAME...] runs the cases whose names contain a NAME.
#include "cuda_bench.h"

#include <cstdio>

#include "ops/cuda/stream.cuh"

namespace ecphory {
namespace {

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
  const double seconds = bench.Median({[&] {
    CopyKernel<<<132 * 16, 512, 0, bench.stream>>>(
        static_cast<const float4*>(from), static_cast<float4*>(to), bytes / 16);
  }});
  bench.copy = 2.0 * static_cast<double>(bytes) / seconds;
  std::printf("copy of 4 GiB: %.0f GB/s, read and written\n",
              bench.copy * 1e-9);
  Check(cudaFree(from));
  Check(cudaFree(to));
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
  BenchStreams(bench);
  BenchAttentions(bench);
  BenchProducts(bench);
  const Status status = (*stream)->Synchronize();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace ecphory

int main(int argc, char** argv) {
  return ecphory::Main(argc > 1 ? argv[1] : "");
}
