// mHC: expand and collapse, and which way a split is computed.
#include "ops/hyper_connection.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/hc_split.cuh"
#include "ops/cuda/hc_split_four.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/streams.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256;

// A thread a channel.
template <typename T>
__global__ void __launch_bounds__(kThreads) ExpandKernel(HcExpandArgs a) {
  LetNextStart();
  WaitForEarlier();
  const size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x;
  if (i >= a.tokens * a.dim) return;
  const size_t t = i / a.dim, c = i % a.dim, streams = a.streams;
  T* const column = ValuesOf<T>(a.h) + t * streams * a.dim + c;
  float h[kMaxStreams];
  for (size_t s = 0; s < streams; ++s) h[s] = GetStream(column + s * a.dim);
  ExpandChannel<T>(a.post + t * streams, a.comb + t * streams * streams, a.y[i],
                   streams, h);
  for (size_t s = 0; s < streams; ++s) SetStream(column + s * a.dim, h[s]);
}

// H = 4: a thread 16 bytes of each stream, which D is a multiple of; a token
// as many blocks as that takes.
constexpr unsigned kFourThreads = 128;
template <typename T>
constexpr unsigned kFourChannels = 16 / sizeof(T);

template <typename T>
__global__ void __launch_bounds__(kFourThreads)
    ExpandFourKernel(HcExpandArgs a) {
  using namespace four;
  constexpr unsigned kChannels = kFourChannels<T>, kQuads = kChannels / 4;
  const unsigned parts = CeilDiv(a.dim, kChannels * kFourThreads);
  const size_t t = blockIdx.x / parts;
  const size_t c =
      kChannels * (blockIdx.x % parts * kFourThreads + threadIdx.x);
  LetNextStart();
  WaitForEarlier();
  if (c >= a.dim) return;
  T* const column = ValuesOf<T>(a.h) + t * kStreams * a.dim + c;
  struct alignas(16) Piece {
    T values[kChannels];
  } pieces[kStreams];
#pragma unroll
  for (int s = 0; s < kStreams; ++s) {
    *reinterpret_cast<uint4*>(&pieces[s]) =
        *reinterpret_cast<const uint4*>(column + s * a.dim);
  }
  float4 y[kQuads];
#pragma unroll
  for (unsigned i = 0; i < kQuads; ++i)
    y[i] = Load(a.y + t * a.dim + c + 4 * i);
  Coefficients coefficients;
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    coefficients.comb[j] = Load(a.comb + (t * kStreams + j) * kStreams);
  }
  coefficients.post = Load(a.post + t * kStreams);
#pragma unroll
  for (unsigned i = 0; i < kQuads; ++i) {
    float4 h[kStreams];
#pragma unroll
    for (int s = 0; s < kStreams; ++s) h[s] = Load(pieces[s].values + 4 * i);
    Expand<T>(coefficients, y[i], h);
#pragma unroll
    for (int s = 0; s < kStreams; ++s) Store(pieces[s].values + 4 * i, h[s]);
  }
#pragma unroll
  for (int s = 0; s < kStreams; ++s) {
    *reinterpret_cast<uint4*>(column + s * a.dim) =
        *reinterpret_cast<const uint4*>(&pieces[s]);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) CollapseKernel(HcCollapseArgs a) {
  LetNextStart();
  WaitForEarlier();
  const size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x;
  if (i >= a.tokens * a.dim) return;
  const size_t t = i / a.dim, c = i % a.dim;
  a.x[i] =
      Collapsed(a.pre + t * a.streams,
                ValuesOf<T>(a.h) + t * a.streams * a.dim + c, a.streams, a.dim);
}

bool TakesFour(const HcExpandArgs& a) {
  return a.streams == four::kStreams &&
         a.dim * StreamBytes(a.h.format) % 16 == 0 && Aligned(a.y) &&
         Aligned(a.post) && Aligned(a.comb) && Aligned(a.h.data);
}

bool TakesFour(const HcSplitArgs& a) {
  const WeightFormat fn = a.fn.format;
  return a.streams == four::kStreams && a.dim % four::kSlab == 0 &&
         a.dim <= four::kMaxFewDim &&
         (fn == WeightFormat::kF32 || fn == WeightFormat::kF16 ||
          fn == WeightFormat::kBF16) &&
         Aligned(a.y) && Aligned(a.last_post) && Aligned(a.last_comb) &&
         Aligned(a.h.data) && Aligned(a.fn.data) && Aligned(a.collapse_pre) &&
         Aligned(a.norm_weight) && Aligned(a.x);
}

void SplitFew(const HcSplitArgs& a) {
  if (!a.h.is_bf16()) return HcSplitFew(a);
  TakesClusterBf16(a) ? HcSplitClusterBf16(a) : HcSplitFewBf16(a);
}
void SplitMany(const HcSplitArgs& a, ThreadPool& pool) {
  if (!a.h.is_bf16()) return HcSplitMany(a);
  HcSplitArgs rest = a;
  if (a.y != nullptr) {
    HcExpand({.y = a.y,
              .post = a.last_post,
              .comb = a.last_comb,
              .tokens = a.tokens,
              .streams = a.streams,
              .dim = a.dim,
              .h = a.h},
             pool);
    rest.y = nullptr;
  }
  HcSplitManyBf16(rest);
}

}  // namespace

void HcSplit(const HcSplitArgs& args, ThreadPool& pool) {
  if (args.tokens == 0) return;
  if (!TakesFour(args)) return HcSplitGeneric(args);
  const bool many = args.h.is_bf16() ? TakesManyBf16(args) : TakesMany(args);
  many ? SplitMany(args, pool) : SplitFew(args);
}

void HcHead(const HcHeadArgs& args, ThreadPool&) {
  if (args.tokens > 0) HcHeadGeneric(args);
}

void HcCollapse(const HcCollapseArgs& args, ThreadPool&) {
  const size_t items = args.tokens * args.dim;
  if (items == 0) return;
  WithStreamType(args.h.format, [&](auto value) {
    LaunchOverlapped(CollapseKernel<decltype(value)>,
                     dim3(Blocks(items, kThreads)), kThreads, 0, "hc_collapse",
                     args);
  });
}

void HcExpand(const HcExpandArgs& args, ThreadPool&) {
  const size_t items = args.tokens * args.dim;
  if (items == 0) return;
  if (TakesFour(args)) {
    WithStreamType(args.h.format, [&](auto value) {
      using T = decltype(value);
      const size_t blocks =
          args.tokens * Blocks(args.dim, kFourChannels<T> * kFourThreads);
      LaunchOverlapped(ExpandFourKernel<T>, dim3(static_cast<unsigned>(blocks)),
                       kFourThreads, 0, "hc_expand", args);
    });
    return;
  }
  WithStreamType(args.h.format, [&](auto value) {
    LaunchOverlapped(ExpandKernel<decltype(value)>,
                     dim3(Blocks(items, kThreads)), kThreads, 0, "hc_expand",
                     args);
  });
}

}  // namespace ecphory::cuda
