// A thread eight values: 16 bytes in one read, which matters where they come
// over the bus from the host.
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/stream.cuh"
#include "ops/rows.h"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr size_t kRun = 8;

__global__ void Kernel(WidenBf16Args args, bool aligned) {
  const size_t first = (blockIdx.x * size_t{kThreads} + threadIdx.x) * kRun;
  if (first >= args.count) return;
  if (!aligned || first + kRun > args.count) {
    for (size_t i = first; i < min(first + kRun, args.count); ++i) {
      args.x[i] = __uint_as_float(uint32_t{args.bits[i]} << 16);
    }
    return;
  }
  const uint4 bits = *reinterpret_cast<const uint4*>(args.bits + first);
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
  float4* const x = reinterpret_cast<float4*>(args.x + first);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    x[i] = {__uint_as_float(words[2 * i] << 16),
            __uint_as_float(words[2 * i] & 0xffff0000u),
            __uint_as_float(words[2 * i + 1] << 16),
            __uint_as_float(words[2 * i + 1] & 0xffff0000u)};
  }
}

}  // namespace

void WidenBf16(const WidenBf16Args& args, ThreadPool&) {
  if (args.count == 0) return;
  const uintptr_t places = reinterpret_cast<uintptr_t>(args.bits) |
                           reinterpret_cast<uintptr_t>(args.x);
  Kernel<<<Blocks(args.count, kThreads * kRun), kThreads, 0,
           Current().stream>>>(args, places % 16 == 0);
  NoteLaunch("widen_bf16");
}

}  // namespace ecphory::cuda
