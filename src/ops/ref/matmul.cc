#include "ops/matmul.h"

#include <vector>

#include "ops/ref/math.h"
#include "ops/ref/ref_ops.h"

namespace ecphory::ref {

namespace {

void Multiply(const MatmulArgs& args) {
  const size_t in = args.weight.cols;
  const size_t out = args.weight.rows;
  const size_t x_stride = args.x_stride != 0 ? args.x_stride : in;
  const size_t y_stride = args.y_stride != 0 ? args.y_stride : out;
  std::vector<float> row(in);
  if (args.input == MatmulInput::kInt8 && TakesInt8(args.weight.format)) {
    for (size_t t = 0; t < args.tokens; ++t) {
      const std::vector<double> x = RoundedToInt8(args.x + t * x_stride, in);
      for (size_t o = 0; o < out; ++o) {
        DequantizeRow(args.weight, o, row.data());
        args.y[t * y_stride + o] =
            static_cast<float>(Dot(row.data(), x.data(), in));
      }
    }
    return;
  }
  for (size_t o = 0; o < out; ++o) {
    DequantizeRow(args.weight, o, row.data());
    for (size_t t = 0; t < args.tokens; ++t) {
      const double sum = Dot(row.data(), args.x + t * x_stride, in);
      args.y[t * y_stride + o] = static_cast<float>(sum);
    }
  }
}

}  // namespace

void Matmul(const MatmulArgs& args, ThreadPool&) {
  Multiply(args);
  if (!args.round_bf16) return;
  const size_t out = args.weight.rows;
  const size_t y_stride = args.y_stride != 0 ? args.y_stride : out;
  for (size_t t = 0; t < args.tokens; ++t) {
    RoundValues(args.y + t * y_stride, out);
  }
}

}  // namespace ecphory::ref
