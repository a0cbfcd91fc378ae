#include "measure/op_cost.h"

#include <algorithm>
#include <set>
#include <span>

#include "base/ceil_div.h"

namespace ecphory::measure {

namespace {

constexpr double kF32 = sizeof(float);

double D(size_t n) { return static_cast<double>(n); }

OpCost Cost(double stored, double activations, double flops) {
  return {.bytes = stored + activations, .flops = flops, .stored = stored};
}

// Pairs (token, visible entry) of index scores.
double VisiblePairs(const IndexScoresArgs& args) {
  double pairs = 0;
  for (size_t t = 0; t < args.tokens; ++t) {
    const uint64_t visible = (args.first_position + t + 1) / args.ratio;
    pairs += static_cast<double>(std::min<uint64_t>(visible, args.groups));
  }
  return pairs;
}

// Window positions that token t attends.
double WindowOf(const AttentionArgs& args, size_t t) {
  const uint64_t present = args.first_position + t + 1 - args.window_begin;
  return static_cast<double>(std::min<uint64_t>(args.window, present));
}

}  // namespace

double MatrixBytes(const Matrix& matrix) {
  double scales = 0;
  if (matrix.format == WeightFormat::kFp8Tile32) {
    const size_t bands =
        CeilDiv(matrix.first_row + matrix.rows, 32) - matrix.first_row / 32;
    scales = D(bands * CeilDiv(matrix.cols, 32));
  } else if (matrix.format == WeightFormat::kFp4Row32) {
    scales = D(matrix.rows * (matrix.cols / 32));
  }
  return D(matrix.rows * matrix.row_bytes()) + scales;
}

double ExpertBytes(const Expert& expert) {
  return MatrixBytes(expert.w1) + MatrixBytes(expert.w3) +
         MatrixBytes(expert.w2);
}

OpCost CostOf(const MatmulArgs& args) {
  const size_t rows = args.weight.rows, cols = args.weight.cols;
  return Cost(MatrixBytes(args.weight), kF32 * D(args.tokens * (rows + cols)),
              2 * D(args.tokens * rows * cols));
}

OpCost CostOf(const ExpertsArgs& args) {
  const std::span ids(args.ids, args.tokens * args.topk);
  const std::set<int32_t> used(ids.begin(), ids.end());
  double stored = 0;
  for (const int32_t id : used) {
    stored += ExpertBytes(args.experts[static_cast<size_t>(id)]);
  }
  const size_t inner = args.experts[0].w1.rows;
  OpCost cost = Cost(stored, 2 * kF32 * D(args.tokens * args.dim),
                     2 * D(ids.size() * 3 * inner * args.dim));
  // A shared one is alone in its call.
  if (args.n_experts > 1) cost.experts = D(used.size());
  return cost;
}

OpCost CostOf(const HcSplitArgs& args) {
  const size_t h = args.streams;
  // The streams are read and x is written; with y, it is read and the streams
  // are written as well.
  const size_t passes = args.y != nullptr ? 2 : 1;
  const double values = D(args.tokens * args.dim * passes);
  const size_t expand = args.y != nullptr ? h * (h + 1) : 0;
  // The mix and the sum of squares over all streams, collapse and norm.
  const size_t products = h * (args.fn.rows + 1) + h + 2 + expand;
  return Cost(MatrixBytes(args.fn),
              values * (D(h * StreamBytes(args.h.format)) + kF32),
              2 * D(args.tokens * args.dim * products));
}

OpCost CostOf(const HcHeadArgs& args) {
  const size_t width = args.streams * args.dim;
  return Cost(MatrixBytes(args.fn),
              D(args.tokens * width * StreamBytes(args.h.format)),
              2 * D(args.tokens * width * (args.fn.rows + 1)));
}

OpCost CostOf(const HcCollapseArgs& args) {
  const double channels = D(args.tokens * args.dim), h = D(args.streams);
  return Cost(0, channels * (h * D(StreamBytes(args.h.format)) + kF32),
              2 * channels * h);
}

OpCost CostOf(const HcExpandArgs& args) {
  const double channels = D(args.tokens * args.dim), h = D(args.streams);
  return Cost(0, channels * (2 * h * D(StreamBytes(args.h.format)) + kF32),
              2 * channels * h * (h + 1));
}

OpCost CostOf(const AttentionArgs& args) {
  const size_t width = args.heads * args.dim;
  double pairs = 0;
  std::set<int32_t> latents;
  for (size_t t = 0; t < args.tokens; ++t) {
    pairs += WindowOf(args, t);
    if (args.selected == nullptr) continue;
    for (size_t i = 0; i < args.topk; ++i) {
      const int32_t entry = args.selected[t * args.topk + i];
      if (entry < 0) break;
      latents.insert(entry);
      pairs += 1;
    }
  }
  const double window =
      WindowOf(args, 0) + D(std::max<size_t>(args.tokens, 1) - 1);
  const double rows =
      window * D(RowBytes(args.window_format, args.dim)) +
      D(latents.size()) * D(RowBytes(args.latent_format, args.dim));
  // A score and a value of each head: two multiply-adds a channel.
  return Cost(rows, 2 * kF32 * D(args.tokens * width), 4 * pairs * D(width));
}

OpCost CostOf(const IndexScoresArgs& args) {
  const size_t width = args.heads * args.dim;
  return Cost(D(args.groups) * D(RowBytes(args.key_format, args.dim)),
              kF32 * D(args.tokens * (width + args.groups)),
              2 * VisiblePairs(args) * D(width + args.heads));
}

OpCost CostOf(const CandidateBlocksArgs& args) {
  return Cost(0,
              kF32 * D(args.tokens * args.groups) +
                  D(args.tokens * CeilDiv(args.groups, args.block_size)),
              0);
}

OpCost CostOf(const SelectTopkArgs& args) {
  const size_t mask = args.mask == nullptr
                          ? 0
                          : args.tokens * CeilDiv(args.groups, args.block_size);
  return Cost(0, kF32 * D(args.tokens * (args.groups + args.topk)) + D(mask),
              0);
}

OpCost CostOf(const EngramGateArgs& args) {
  const size_t width = args.streams * args.dim;
  // The two weights; keys, value, streams read and written.
  return Cost(kF32 * 2 * D(width),
              D(args.tokens) * (kF32 * D(width + args.dim) +
                                D(2 * width * StreamBytes(args.h.format))),
              2 * D(args.tokens) * 4 * D(width));
}

}  // namespace ecphory::measure
