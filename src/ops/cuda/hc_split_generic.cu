// mHC's split for any H. Two kernels: the first walks over the streams once,
// slice by slice of the channels (the owed expand, the dot products with fn,
// the collapse), and leaves sums of its slice; the second adds the slices up,
// normalises the sublayer's input and turns the products into coefficients.
#include "ops/cuda/hc_split.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/stream.cuh"
#include "ops/cuda/streams.cuh"
#include "ops/cuda/weight.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256;
// Outputs of fn that one pass over the streams takes: all 24 of H = 4.
constexpr int kOutputs = 24;
// Channels of a slice, and so how many blocks share one token.
constexpr size_t kSlice = kThreads;

// Sums of one slice of one token: outputs, then sum h^2.
struct Partials {
  float* sums;  // [tokens, slices, outputs + 1]
  size_t slices;
  size_t outputs;
  __device__ float* At(size_t t, size_t slice) const {
    return sums + (t * slices + slice) * (outputs + 1);
  }
};

// Products of one slice with outputs [first, first + kOutputs) of fn.
__device__ void SliceProducts(const Matrix& fn, size_t first, size_t dim,
                              size_t streams, size_t c, const float* h,
                              float* shared, float* out) {
  for (size_t o = 0; o < kOutputs; ++o) {
    if (first + o >= fn.rows) return;
    float sum = 0;
    if (c < dim) {
      for (size_t s = 0; s < streams; ++s) {
        sum = fmaf(WeightValue(fn, first + o, s * dim + c), h[s], sum);
      }
    }
    sum = BlockSum<kThreads>(sum, shared);
    if (threadIdx.x == 0) out[first + o] = sum;
  }
}

// The first kernel. Token blockIdx.y, slice blockIdx.x. `x` null: a mix alone.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    SliceKernel(HcSplitArgs a, const float* pre, Partials partials) {
  __shared__ float shared[kWarp];
  const size_t t = blockIdx.y, streams = a.streams, dim = a.dim;
  const size_t c = blockIdx.x * kSlice + threadIdx.x;
  T* const column = ValuesOf<T>(a.h) + t * streams * dim + c;
  float* const out = partials.At(t, blockIdx.x);
  float h[kMaxStreams] = {};
  float h2 = 0;
  if (c < dim) {
    for (size_t s = 0; s < streams; ++s) h[s] = GetStream(column + s * dim);
    if (a.y != nullptr) {
      ExpandChannel<T>(a.last_post + t * streams,
                       a.last_comb + t * streams * streams, a.y[t * dim + c],
                       streams, h);
      for (size_t s = 0; s < streams; ++s) SetStream(column + s * dim, h[s]);
    }
    for (size_t s = 0; s < streams; ++s) h2 = fmaf(h[s], h[s], h2);
    if (pre != nullptr) {
      a.x[t * dim + c] = Collapsed(pre + t * streams, column, streams, dim);
    }
  }
  for (size_t first = 0; first < a.fn.rows; first += kOutputs) {
    SliceProducts(a.fn, first, dim, streams, c, h, shared, out);
  }
  h2 = BlockSum<kThreads>(h2, shared);
  if (threadIdx.x == 0) out[partials.outputs] = h2;
}

// comb[j][k] -> doubly stochastic, by one thread.
__device__ void Sinkhorn(float* comb, size_t n, uint32_t iterations,
                         float eps) {
  const auto divide = [&](size_t first, size_t stride) {
    float sum = 0;
    for (size_t i = 0; i < n; ++i) sum += comb[first + i * stride];
    for (size_t i = 0; i < n; ++i) comb[first + i * stride] /= sum + eps;
  };
  for (size_t j = 0; j < n; ++j) {
    float* const row = comb + j * n;
    float top = row[0], sum = 0;
    for (size_t k = 1; k < n; ++k) top = fmaxf(top, row[k]);
    for (size_t k = 0; k < n; ++k) sum += row[k] = expf(row[k] - top);
    for (size_t k = 0; k < n; ++k) row[k] = row[k] / sum + eps;
  }
  for (size_t k = 0; k < n; ++k) divide(k, n);
  for (uint32_t i = 1; i < iterations; ++i) {
    for (size_t j = 0; j < n; ++j) divide(j * n, 1);
    for (size_t k = 0; k < n; ++k) divide(k, n);
  }
}

// m[o] of a token, normalised, in shared memory; the whole block takes part.
__device__ void AddSlices(const Partials& partials, size_t t, size_t values,
                          float eps, float* m) {
  for (size_t o = threadIdx.x; o < partials.outputs + 1; o += kThreads) {
    float sum = 0;
    for (size_t s = 0; s < partials.slices; ++s) sum += partials.At(t, s)[o];
    m[o] = sum;
  }
  __syncthreads();
  const float factor =
      1.0f / sqrtf(m[partials.outputs] / static_cast<float>(values) + eps);
  for (size_t o = threadIdx.x; o < partials.outputs; o += kThreads) {
    m[o] *= factor;
  }
  __syncthreads();
}

__device__ void Coefficients(const HcSplitArgs& a, size_t t, float* m,
                             float* comb) {
  const size_t n = a.streams;
  for (size_t s = threadIdx.x; s < n; s += kThreads) {
    const float pre = fmaf(m[s], a.scale[0], a.base[s]);
    const float post = fmaf(m[n + s], a.scale[1], a.base[n + s]);
    a.pre[t * n + s] = Sigmoid(a.sigmoid, pre) + a.hc_eps;
    a.post[t * n + s] = 2 * Sigmoid(a.sigmoid, post);
  }
  for (size_t i = threadIdx.x; i < n * n; i += kThreads) {
    comb[i] = fmaf(m[2 * n + i], a.scale[2], a.base[2 * n + i]);
  }
  __syncthreads();
  if (threadIdx.x == 0) Sinkhorn(comb, n, a.sinkhorn_iters, a.hc_eps);
  __syncthreads();
  for (size_t i = threadIdx.x; i < n * n; i += kThreads) {
    a.comb[t * n * n + i] = comb[i];
  }
}

// The second kernel: a block a token. `ready`: x holds the collapsed vector,
// and its sum of squares is among the partials; otherwise it is made here, from
// this site's own pre.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    FinishKernel(HcSplitArgs a, bool ready, Partials partials) {
  __shared__ float shared[kWarp];
  __shared__ float m[(2 + kMaxStreams) * kMaxStreams + 1];
  __shared__ float comb[kMaxStreams * kMaxStreams];
  const size_t t = blockIdx.x, dim = a.dim, n = a.streams;
  AddSlices(partials, t, n * dim, a.norm_eps, m);
  Coefficients(a, t, m, comb);
  __syncthreads();
  // As rms_norm sums and scales, for the sake of the same bits.
  float* const x = a.x + t * dim;
  float sum = 0;
  for (size_t c = threadIdx.x; c < dim; c += kThreads) {
    if (!ready) {
      x[c] =
          Collapsed(a.pre + t * n, ValuesOf<T>(a.h) + t * n * dim + c, n, dim);
    }
    sum += x[c] * x[c];
  }
  sum = BlockSum<kThreads>(sum, shared);
  const float factor = 1.0f / sqrtf(sum / static_cast<float>(dim) + a.norm_eps);
  for (size_t c = threadIdx.x; c < dim; c += kThreads) {
    x[c] = RoundedFor<T>(a.norm_weight[c] * x[c] * factor);
  }
}

__global__ void __launch_bounds__(kThreads)
    HeadKernel(HcHeadArgs a, Partials partials) {
  __shared__ float m[kMaxStreams + 1];
  const size_t t = blockIdx.x;
  AddSlices(partials, t, a.streams * a.dim, a.norm_eps, m);
  for (size_t s = threadIdx.x; s < a.streams; s += kThreads) {
    const float z = fmaf(m[s], a.scale[0], a.base[s]);
    a.pre[t * a.streams + s] = Sigmoid(a.sigmoid, z) + a.hc_eps;
  }
}

// Runs the first kernel.
Partials RunSlices(const HcSplitArgs& args, const float* pre) {
  struct Sums;
  Partials partials{.sums = nullptr,
                    .slices = CeilDiv(args.dim, kSlice),
                    .outputs = args.fn.rows};
  partials.sums =
      Scratch<Sums>(args.tokens * partials.slices * (partials.outputs + 1));
  if (partials.sums == nullptr) return partials;
  const dim3 grid(static_cast<unsigned>(partials.slices),
                  static_cast<unsigned>(args.tokens));
  WithStreamType(args.h.format, [&](auto value) {
    SliceKernel<decltype(value)>
        <<<grid, kThreads, 0, Current().stream>>>(args, pre, partials);
    NoteLaunch("hc_split: slices");
  });
  return partials;
}

}  // namespace

void HcSplitGeneric(const HcSplitArgs& args) {
  const bool ready = args.collapse_pre != nullptr;
  const Partials partials = RunSlices(args, args.collapse_pre);
  if (partials.sums == nullptr) return;
  WithStreamType(args.h.format, [&](auto value) {
    FinishKernel<decltype(value)>
        <<<static_cast<unsigned>(args.tokens), kThreads, 0, Current().stream>>>(
            args, ready, partials);
    NoteLaunch("hc_split: coefficients");
  });
}

void HcHeadGeneric(const HcHeadArgs& args) {
  const HcSplitArgs mix{.h = {const_cast<void*>(args.h.data), args.h.format},
                        .fn = args.fn,
                        .tokens = args.tokens,
                        .streams = args.streams,
                        .dim = args.dim};
  const Partials partials = RunSlices(mix, nullptr);
  if (partials.sums == nullptr) return;
  HeadKernel<<<static_cast<unsigned>(args.tokens), kThreads, 0,
               Current().stream>>>(args, partials);
  NoteLaunch("hc_head");
}

}  // namespace ecphory::cuda
