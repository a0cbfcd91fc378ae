#include "ops/cuda/scratch_plan.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/matmul_side.cuh"
#include "ops/cuda/stream.cuh"
#include "tensor/mxfp4_rows.h"

namespace ecphory::cuda {

namespace {

// An address like those of the device's memory, which nobody follows.
template <typename T>
T* Nowhere() {
  return reinterpret_cast<T*>(uintptr_t{1} << 40);
}

Matrix MatrixOf(WeightFormat stored, size_t rows, size_t cols) {
  return {.format = DeviceFormat(stored),
          .rows = rows,
          .cols = cols,
          .data = Nowhere<uint8_t>(),
          .scales = Nowhere<uint8_t>()};
}

// Sizes of passes at which operators may change their ways: all of few tokens,
// powers of two, and the largest.
std::vector<size_t> PassSizes(size_t most) {
  std::vector<size_t> sizes;
  for (size_t n = 1; n < most; n += n <= 2 * kMaxFewTokens ? 1 : n) {
    sizes.push_back(n);
  }
  sizes.push_back(most);
  return sizes;
}

class Rehearsal {
 public:
  explicit Rehearsal(const ScratchShape& shape) : shape_(shape) {}

  void Run() {
    for (const size_t tokens : PassSizes(std::max<size_t>(shape_.tokens, 1))) {
      for (const ScratchProduct& product : shape_.products) {
        Product(product, std::min(tokens, product.tokens));
      }
      for (const ScratchExperts& experts : shape_.experts) {
        RunExperts(experts, tokens);
      }
      Split(tokens);
      Attend(tokens);
      if (shape_.topk > 0 && shape_.groups > 0) {
        Index(std::min(tokens, std::max<size_t>(shape_.index_tokens, 1)));
      }
    }
    if (shape_.vocab > 0) Draw();
  }

 private:
  void Product(const ScratchProduct& product, size_t tokens) {
    std::vector<MatmulArgs> calls;
    for (size_t i = 0; i < kMostSideProducts; ++i) {
      calls.push_back(
          {.weight = MatrixOf(product.format, product.rows, product.cols),
           .x = Nowhere<float>() + i * product.cols,
           .y = Nowhere<float>(),
           .tokens = tokens,
           .input = product.input});
    }
    Matmul(calls[0], alone_);
    // Where a launch takes several, these want the most.
    if (tokens >= kFewestSideTokens && tokens <= kMostSideTokens) {
      Matmuls(std::span<const MatmulArgs>(calls), alone_);
    }
  }

  void RunExperts(const ScratchExperts& experts, size_t tokens) {
    const Matrix up = MatrixOf(experts.up, experts.inner, shape_.dim);
    const Matrix down = MatrixOf(experts.down, shape_.dim, experts.inner);
    const std::vector<Expert> views(experts.experts,
                                    Expert{.w1 = up, .w3 = up, .w2 = down});
    Experts({.x = Nowhere<float>(),
             .tokens = tokens,
             .dim = shape_.dim,
             .experts = views.data(),
             .device_experts = Nowhere<Expert>(),
             .n_experts = views.size(),
             .inner = experts.inner,
             .ids = Nowhere<int32_t>(),
             .weights = Nowhere<float>(),
             .topk = experts.topk,
             .round_bf16 = shape_.input == MatmulInput::kBF16,
             .input = shape_.input,
             .y = Nowhere<float>()},
            alone_);
  }

  void Split(size_t tokens) {
    const size_t H = shape_.streams;
    const StreamFormat format = shape_.input == MatmulInput::kBF16
                                    ? StreamFormat::kBF16
                                    : StreamFormat::kF32;
    HcSplitArgs args{
        .h = Streams(Nowhere<float>(), format),
        .fn = MatrixOf(shape_.streams_format, (2 + H) * H, H * shape_.dim),
        .scale = Nowhere<float>(),
        .base = Nowhere<float>(),
        .tokens = tokens,
        .streams = H,
        .dim = shape_.dim,
        .sinkhorn_iters = 1,
        .norm_weight = Nowhere<float>(),
        .pre = Nowhere<float>(),
        .post = Nowhere<float>(),
        .comb = Nowhere<float>(),
        .x = Nowhere<float>()};
    for (const bool owes : {false, true}) {
      if (owes) {
        args.y = Nowhere<float>();
        args.last_post = args.post;
        args.last_comb = args.comb;
      }
      args.collapse_pre = nullptr;
      HcSplit(args, alone_);
      args.collapse_pre = args.pre;
      HcSplit(args, alone_);
    }
  }

  void Attend(size_t tokens) {
    for (const size_t topk : {size_t{0}, shape_.topk}) {
      Attention(
          AttentionArgs{.q = Nowhere<float>(),
                        .tokens = tokens,
                        .heads = shape_.heads,
                        .dim = shape_.head_dim,
                        .first_position = shape_.window,
                        .window_format = shape_.window_format,
                        .latent_format = shape_.latent_format,
                        .window_rows = Nowhere<uint8_t>(),
                        .window_capacity = shape_.window + shape_.tokens,
                        .window = shape_.window,
                        .latent_rows = Nowhere<uint8_t>(),
                        .selected = topk > 0 ? Nowhere<int32_t>() : nullptr,
                        .topk = topk,
                        .sink = Nowhere<float>(),
                        .out = Nowhere<float>()},
          alone_);
    }
  }

  void Index(size_t tokens) {
    const bool masked = shape_.block_size > 0;
    uint8_t* const mask = masked ? Nowhere<uint8_t>() : nullptr;
    IndexScores(IndexScoresArgs{.q = Nowhere<float>(),
                                .weights = Nowhere<float>(),
                                .tokens = tokens,
                                .heads = shape_.index_heads,
                                .dim = shape_.index_dim,
                                .ratio = 1,
                                .key_format = shape_.key_format,
                                .key_rows = Nowhere<uint8_t>(),
                                .groups = shape_.groups,
                                .mask = mask,
                                .block_size = shape_.block_size,
                                .scores = Nowhere<float>()},
                alone_);
    if (masked) {
      CandidateBlocks(CandidateBlocksArgs{.scores = Nowhere<float>(),
                                          .tokens = tokens,
                                          .groups = shape_.groups,
                                          .block_size = shape_.block_size,
                                          .top_blocks = 2,
                                          .mask = mask},
                      alone_);
    }
    SelectTopk(SelectTopkArgs{.scores = Nowhere<float>(),
                              .mask = mask,
                              .tokens = tokens,
                              .groups = shape_.groups,
                              .block_size = shape_.block_size,
                              .topk = shape_.topk,
                              .selected = Nowhere<int32_t>()},
               alone_);
  }

  // With all that it can be asked for.
  void Draw() {
    const SampleRow row{.logits = Nowhere<float>(),
                        .penalized = Nowhere<int32_t>(),
                        .n_penalized = 1,
                        .temperature = 1,
                        .top_k = 1,
                        .top_p = 0.5f};
    const std::vector<SampleRow> rows(shape_.drawn, row);
    Sample({.rows = rows.data(),
            .n_rows = rows.size(),
            .vocab = shape_.vocab,
            .sampled = Nowhere<Sampled>()},
           alone_);
  }

  const ScratchShape& shape_;
  ThreadPool alone_{1};
};

}  // namespace

Result<std::map<const void*, size_t>> RehearseScratch(const ScratchShape& shape,
                                                      Stream& stream) {
  std::map<const void*, size_t> bytes;
  const Stream::Scope scope(stream);
  Stream::Handles& handles = stream.handles();
  // Launches are kept in a graph, which is thrown away.
  cudaError_t error =
      cudaStreamBeginCapture(handles.stream, cudaStreamCaptureModeRelaxed);
  if (error == cudaSuccess) {
    handles.rehearsed = &bytes;
    Rehearsal(shape).Run();
    handles.rehearsed = nullptr;
    cudaGraph_t graph = nullptr;
    error = cudaStreamEndCapture(handles.stream, &graph);
    if (graph != nullptr) Note(cudaGraphDestroy(graph), "rehearsal");
  }
  Note(error, "rehearsal");
  ECPHORY_RETURN_IF_ERROR(stream.Synchronize());
  return bytes;
}

}  // namespace ecphory::cuda
