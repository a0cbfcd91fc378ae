// Matrix products and experts at released shapes.
#include <algorithm>
#include <set>

#include "cuda_bench.h"
#include "ops/ops.h"

namespace ecphory {
namespace {

void BenchMatvec(Bench& bench, const char* format_name, WeightFormat format,
                 size_t rows, size_t cols, size_t tokens,
                 MatmulInput input = MatmulInput::kF32) {
  const std::string name = std::string("matmul/") + format_name + "/" +
                           std::to_string(rows) + "x" + std::to_string(cols) +
                           "/" + std::to_string(tokens) +
                           (input == MatmulInput::kBF16 ? "/bf16" : "");
  if (!bench.Wanted(name)) return;
  const double bytes =
      MatrixBytes({.format = format, .rows = rows, .cols = cols});
  const size_t sets = static_cast<size_t>(400e6 / bytes) + 1;
  float* const x = Floats(tokens * cols);
  float* const y = Floats(tokens * rows);
  std::vector<Matrix> weights;
  std::vector<std::function<void()>> launches;
  for (size_t i = 0; i < sets; ++i) {
    weights.push_back(RandomMatrix(format, rows, cols));
    launches.push_back([&bench, x, y, tokens, input, w = weights.back()] {
      CudaOps().matmul(
          {.weight = w, .x = x, .y = y, .tokens = tokens, .input = input},
          bench.pool);
    });
  }
  const double flops = tokens < 64 ? 0 : 2.0 * rows * cols * tokens;
  bench.Report(name, bytes, launches, flops);
  Check(cudaFree(x));
  Check(cudaFree(y));
  for (const Matrix& w : weights) Free(w);
}

// Released experts, of which a token has 6 of 384: one layer's, every call with
// a choice of its own.
struct Layer {
  static constexpr size_t kDim = 5120, kInner = 2304, kExperts = 384, kTopk = 6;

  explicit Layer(WeightFormat format) {
    for (size_t e = 0; e < kExperts; ++e) {
      experts.push_back({RandomMatrix(format, kInner, kDim),
                         RandomMatrix(format, kInner, kDim),
                         RandomMatrix(format, kDim, kInner)});
    }
    device = static_cast<Expert*>(Device(kExperts * sizeof(Expert)));
    Check(cudaMemcpy(device, experts.data(), kExperts * sizeof(Expert),
                     cudaMemcpyHostToDevice));
  }
  ~Layer() {
    for (const Expert& e : experts) Free(e.w1), Free(e.w3), Free(e.w2);
    Check(cudaFree(device));
  }
  std::vector<Expert> experts;
  Expert* device;
};

// `n_experts`: the first ones of the layer.
void BenchExperts(Bench& bench, const char* format_name, const Layer& layer,
                  size_t tokens, bool bf16,
                  size_t n_experts = Layer::kExperts) {
  std::string name =
      std::string("experts/") + format_name + "/" + std::to_string(tokens);
  if (n_experts < Layer::kExperts) name += "/of" + std::to_string(n_experts);
  if (bf16) name += "/bf16";
  if (!bench.Wanted(name)) return;
  const size_t slots = tokens * Layer::kTopk;
  float* const x = Floats(tokens * Layer::kDim);
  float* const y = Floats(tokens * Layer::kDim);
  float* const weights = Floats(slots);
  const Expert& one = layer.experts[0];
  const double bytes_of_one =
      MatrixBytes(one.w1) + MatrixBytes(one.w3) + MatrixBytes(one.w2);
  const size_t sets = tokens < 8 ? 32 : tokens < 64 ? 4 : 1;
  std::vector<std::function<void()>> launches;
  std::vector<int32_t*> all_ids;
  size_t used = 0;
  uint32_t h = 1;
  for (size_t i = 0; i < sets; ++i) {
    std::vector<int32_t> ids;
    for (size_t t = 0; t < tokens; ++t) {
      std::set<int32_t> chosen;
      while (chosen.size() < Layer::kTopk) {
        h = h * 1664525u + 1013904223u;
        chosen.insert(static_cast<int32_t>((h >> 8) % n_experts));
      }
      ids.insert(ids.end(), chosen.begin(), chosen.end());
    }
    used += std::set<int32_t>(ids.begin(), ids.end()).size();
    int32_t* const d = static_cast<int32_t*>(Device(slots * sizeof(int32_t)));
    Check(cudaMemcpy(d, ids.data(), slots * sizeof(int32_t),
                     cudaMemcpyHostToDevice));
    all_ids.push_back(d);
    launches.push_back([=, &bench, &layer] {
      CudaOps().experts({.x = x,
                         .tokens = tokens,
                         .dim = Layer::kDim,
                         .experts = layer.experts.data(),
                         .device_experts = layer.device,
                         .n_experts = n_experts,
                         .inner = Layer::kInner,
                         .ids = d,
                         .weights = weights,
                         .topk = Layer::kTopk,
                         .swiglu_limit = 10,
                         .round_bf16 = bf16,
                         .input = bf16 ? MatmulInput::kBF16 : MatmulInput::kF32,
                         .y = y},
                        bench.pool);
    });
  }
  const double flops =
      tokens < 64 ? 0 : 6.0 * slots * Layer::kDim * Layer::kInner;
  bench.Report(
      name,
      bytes_of_one * static_cast<double>(used) / static_cast<double>(sets),
      launches, flops);
  for (int32_t* ids : all_ids) Check(cudaFree(ids));
  Check(cudaFree(x));
  Check(cudaFree(y));
  Check(cudaFree(weights));
}

void BenchLayers(Bench& bench) {
  const struct {
    const char* name;
    WeightFormat format;
  } formats[] = {{"FP4", WeightFormat::kFp4Row32},
                 {"Q8_0", WeightFormat::kQ8_0}};
  for (const auto& format : formats) {
    if (!bench.Wanted(std::string("experts/") + format.name) &&
        bench.filter.find("experts/") == std::string::npos) {
      continue;
    }
    const Layer layer(format.format);
    for (const size_t tokens : {1, 2, 8, 32, 4096}) {
      BenchExperts(bench, format.name, layer, tokens, tokens >= 64);
    }
    BenchExperts(bench, format.name, layer, 32, true);
    for (const bool bf16 : {false, true}) {
      BenchExperts(bench, format.name, layer, 32, bf16, 32);
      BenchExperts(bench, format.name, layer, 4096, bf16, 32);
    }
  }
}

}  // namespace

void BenchProducts(Bench& bench) {
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
    for (const size_t tokens : {2, 8, 32}) {
      BenchMatvec(bench, format.name, format.format, 2304, 5120, tokens);
      BenchMatvec(bench, format.name, format.format, 32768, 1280, tokens);
    }
    for (const auto input : {MatmulInput::kF32, MatmulInput::kBF16}) {
      BenchMatvec(bench, format.name, format.format, 8192, 4096, 4096, input);
    }
    for (const auto& shape : {shapes[2], shapes[4]}) {
      BenchMatvec(bench, format.name, format.format, shape[0], shape[1], 4096,
                  MatmulInput::kBF16);
    }
  }
  BenchLayers(bench);
}

}  // namespace ecphory
