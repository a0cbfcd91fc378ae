#include "ops/hyper_connection.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/ref/math.h"
#include "ops/ref/ref_ops.h"
#include "ops/ref/streams.h"

namespace ecphory::ref {

namespace {

// m[t] = fn * (h[t] * rsqrt(mean(h[t]^2) + eps)), h[t] of length fn.cols.
std::vector<double> Project(const Matrix& fn, ConstStreams streams,
                            size_t tokens, double eps) {
  const std::vector<float> values = StreamValues(streams, 0, tokens * fn.cols);
  const float* const h = values.data();
  std::vector<double> m(tokens * fn.rows);
  std::vector<double> scale(tokens);
  for (size_t t = 0; t < tokens; ++t) {
    scale[t] = InverseRms(h + t * fn.cols, fn.cols, eps);
  }
  std::vector<float> row(fn.cols);
  for (size_t o = 0; o < fn.rows; ++o) {
    DequantizeRow(fn, o, row.data());
    for (size_t t = 0; t < tokens; ++t) {
      m[t * fn.rows + o] = Dot(row.data(), h + t * fn.cols, fn.cols) * scale[t];
    }
  }
  return m;
}

// Each row of comb[source][destination] becomes softmax(row) + eps.
void SoftmaxRows(double* comb, size_t streams, double eps) {
  for (size_t j = 0; j < streams; ++j) {
    double* row = comb + j * streams;
    const double max = *std::max_element(row, row + streams);
    double sum = 0;
    for (size_t k = 0; k < streams; ++k) {
      row[k] = std::exp(row[k] - max);
      sum += row[k];
    }
    for (size_t k = 0; k < streams; ++k) row[k] = row[k] / sum + eps;
  }
}

void DivideRows(double* comb, size_t streams, double eps) {
  for (size_t j = 0; j < streams; ++j) {
    double sum = 0;
    for (size_t k = 0; k < streams; ++k) sum += comb[j * streams + k];
    for (size_t k = 0; k < streams; ++k) comb[j * streams + k] /= sum + eps;
  }
}

void DivideColumns(double* comb, size_t streams, double eps) {
  for (size_t k = 0; k < streams; ++k) {
    double sum = 0;
    for (size_t j = 0; j < streams; ++j) sum += comb[j * streams + k];
    for (size_t j = 0; j < streams; ++j) comb[j * streams + k] /= sum + eps;
  }
}

// Turns logits into a nearly doubly stochastic matrix. The softmax counts as
// the first row step; the last step is always a column step.
void Sinkhorn(double* comb, size_t streams, uint32_t iterations, double eps) {
  SoftmaxRows(comb, streams, eps);
  DivideColumns(comb, streams, eps);
  for (uint32_t i = 1; i < iterations; ++i) {
    DivideRows(comb, streams, eps);
    DivideColumns(comb, streams, eps);
  }
}

// pre, post and comb of every token.
void Mix(const HcSplitArgs& args) {
  const size_t streams = args.streams;
  const size_t outputs = (2 + streams) * streams;
  const std::vector<double> projected =
      Project(args.fn, args.h, args.tokens, args.norm_eps);
  std::vector<double> comb(streams * streams);
  for (size_t t = 0; t < args.tokens; ++t) {
    const double* m = projected.data() + t * outputs;
    for (size_t s = 0; s < streams; ++s) {
      const double pre = m[s] * args.scale[0] + args.base[s];
      const double post =
          m[streams + s] * args.scale[1] + args.base[streams + s];
      args.pre[t * streams + s] =
          static_cast<float>(Sigmoid(args.sigmoid, pre) + args.hc_eps);
      args.post[t * streams + s] =
          static_cast<float>(2 * Sigmoid(args.sigmoid, post));
    }
    for (size_t i = 0; i < comb.size(); ++i) {
      const size_t o = 2 * streams + i;
      comb[i] = m[o] * args.scale[2] + args.base[o];
    }
    Sinkhorn(comb.data(), streams, args.sinkhorn_iters, args.hc_eps);
    for (size_t i = 0; i < comb.size(); ++i) {
      args.comb[t * comb.size() + i] = static_cast<float>(comb[i]);
    }
  }
}

}  // namespace

void HcSplit(const HcSplitArgs& args, ThreadPool& pool) {
  if (args.y != nullptr) {
    HcExpand({.y = args.y,
              .post = args.last_post,
              .comb = args.last_comb,
              .tokens = args.tokens,
              .streams = args.streams,
              .dim = args.dim,
              .h = args.h},
             pool);
  }
  // A given `collapse_pre` may be overwritten by this site's own.
  const auto collapse = [&](const float* pre) {
    HcCollapse({.h = args.h,
                .pre = pre,
                .tokens = args.tokens,
                .streams = args.streams,
                .dim = args.dim,
                .x = args.x},
               pool);
  };
  if (args.collapse_pre != nullptr) collapse(args.collapse_pre);
  Mix(args);
  if (args.collapse_pre == nullptr) collapse(args.pre);
  RmsNorm({.x = args.x,
           .weight = args.norm_weight,
           .y = args.x,
           .rows = args.tokens,
           .dim = args.dim,
           .eps = args.norm_eps},
          pool);
  if (args.h.is_bf16()) {
    RoundBf16({.x = args.x, .count = args.tokens * args.dim}, pool);
  }
}

void HcHead(const HcHeadArgs& args, ThreadPool&) {
  const std::vector<double> m =
      Project(args.fn, args.h, args.tokens, args.norm_eps);
  for (size_t i = 0; i < args.tokens * args.streams; ++i) {
    const double pre = m[i] * args.scale[0] + args.base[i % args.streams];
    args.pre[i] = static_cast<float>(Sigmoid(args.sigmoid, pre) + args.hc_eps);
  }
}

void HcCollapse(const HcCollapseArgs& args, ThreadPool&) {
  for (size_t t = 0; t < args.tokens; ++t) {
    const float* pre = args.pre + t * args.streams;
    const size_t first = t * args.streams * args.dim;
    for (size_t i = 0; i < args.dim; ++i) {
      double sum = 0;
      for (size_t s = 0; s < args.streams; ++s) {
        sum += static_cast<double>(pre[s]) *
               GetStream(args.h, first + s * args.dim + i);
      }
      args.x[t * args.dim + i] = Rounded(sum, args.h.format);
    }
  }
}

void HcExpand(const HcExpandArgs& args, ThreadPool&) {
  const size_t streams = args.streams;
  std::vector<double> old(streams);
  for (size_t t = 0; t < args.tokens; ++t) {
    const float* post = args.post + t * streams;
    const float* comb = args.comb + t * streams * streams;
    const size_t first = t * streams * args.dim;
    for (size_t i = 0; i < args.dim; ++i) {
      const double y = Rounded(args.y[t * args.dim + i], args.h.format);
      for (size_t j = 0; j < streams; ++j) {
        old[j] = GetStream(args.h, first + j * args.dim + i);
      }
      for (size_t k = 0; k < streams; ++k) {
        double sum = post[k] * y;
        for (size_t j = 0; j < streams; ++j) {
          sum += comb[j * streams + k] * old[j];
        }
        SetStream(args.h, first + k * args.dim + i, sum);
      }
    }
  }
}

}  // namespace ecphory::ref
