#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/ref/math.h"
#include "ops/ref/ref_ops.h"

namespace ecphory::ref {

namespace {

// The vectors that token t attends, [n, dim]: its window, then its selection.
std::vector<float> GatherRows(const AttentionArgs& args, size_t t) {
  const uint64_t position = args.first_position + t;
  const uint64_t begin =
      std::max(args.window_begin,
               position + 1 > args.window ? position + 1 - args.window : 0);
  const size_t window_bytes = RowBytes(args.window_format, args.dim);
  const size_t latent_bytes = RowBytes(args.latent_format, args.dim);
  std::vector<float> rows;
  const auto append = [&](RowFormat format, const uint8_t* row) {
    rows.resize(rows.size() + args.dim);
    DecodeRow(format, row, args.dim, rows.data() + rows.size() - args.dim);
  };
  for (uint64_t p = begin; p <= position; ++p) {
    append(args.window_format,
           args.window_rows + p % args.window_capacity * window_bytes);
  }
  if (args.selected == nullptr) return rows;
  const int32_t* selected = args.selected + t * args.topk;
  for (size_t i = 0; i < args.topk && selected[i] >= 0; ++i) {
    append(args.latent_format,
           args.latent_rows + static_cast<size_t>(selected[i]) * latent_bytes);
  }
  return rows;
}

// softmax(scale * q . rows, sink) * rows; the sink has a weight but no vector.
void AttendHead(const AttentionArgs& args, const float* q, double sink,
                const std::vector<float>& rows, float* out) {
  const size_t n = rows.size() / args.dim;
  std::vector<double> weights(n);
  double max = sink;
  for (size_t i = 0; i < n; ++i) {
    weights[i] = args.scale * Dot(q, rows.data() + i * args.dim, args.dim);
    max = std::max(max, weights[i]);
  }
  double weight_sum = std::exp(sink - max);
  for (double& weight : weights) {
    weight = std::exp(weight - max);
    weight_sum += weight;
  }
  for (size_t c = 0; c < args.dim; ++c) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += weights[i] * rows[i * args.dim + c];
    out[c] = static_cast<float>(sum / weight_sum);
  }
}

}  // namespace

void Attention(const AttentionArgs& args, ThreadPool&) {
  for (size_t t = 0; t < args.tokens; ++t) {
    const std::vector<float> rows = GatherRows(args, t);
    for (size_t head = 0; head < args.heads; ++head) {
      const size_t offset = (t * args.heads + head) * args.dim;
      AttendHead(args, args.q + offset, args.sink[head], rows,
                 args.out + offset);
      if (args.round_bf16) RoundValues(args.out + offset, args.dim);
    }
  }
}

}  // namespace ecphory::ref
