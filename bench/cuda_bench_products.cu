// Matrix products at released shapes.
#include "cuda_bench.h"
#include "ops/ops.h"

namespace ecphory {
namespace {

void BenchMatvec(Bench& bench, const char* format_name, WeightFormat format,
                 size_t rows, size_t cols, size_t tokens) {
  const std::string name = std::string("matmul/") + format_name + "/" +
                           std::to_string(rows) + "x" + std::to_string(cols) +
                           "/" + std::to_string(tokens);
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
    launches.push_back([&bench, x, y, tokens, w = weights.back()] {
      CudaOps().matmul({.weight = w, .x = x, .y = y, .tokens = tokens},
                       bench.pool);
    });
  }
  bench.Report(name, bytes, launches);
  Check(cudaFree(x));
  Check(cudaFree(y));
  for (const Matrix& w : weights) Free(w);
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
    BenchMatvec(bench, format.name, format.format, 32768, 1280, 8);
    BenchMatvec(bench, format.name, format.format, 8192, 4096, 512);
  }
}

}  // namespace ecphory
