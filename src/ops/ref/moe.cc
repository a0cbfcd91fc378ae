#include "ops/moe.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/ref/math.h"
#include "ops/ref/ref_ops.h"
#include "tensor/float_codec.h"

namespace ecphory::ref {

namespace {

// log(1 + exp(x)) without overflow.
double Softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

void SoftmaxInPlace(std::vector<double>& x) {
  const double max = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& value : x) {
    value = std::exp(value - max);
    sum += value;
  }
  for (double& value : x) value /= sum;
}

// The scores of one token's logits, as fp32 values.
std::vector<float> Scores(const RouterArgs& args, const float* logits) {
  std::vector<double> s(args.experts);
  for (size_t e = 0; e < args.experts; ++e) {
    s[e] = static_cast<double>(logits[e]) / args.gate_temp;
  }
  switch (args.score) {
    case RouterScoreKind::kSqrtSoftplus:
      for (double& value : s) value = std::sqrt(Softplus(value));
      break;
    case RouterScoreKind::kSigmoid:
      for (double& value : s) value = Sigmoid(value);
      break;
    case RouterScoreKind::kSoftmax: SoftmaxInPlace(s); break;
  }
  return std::vector<float>(s.begin(), s.end());
}

// The untaken expert with the largest key, ties to the lower id. Always a
// valid id, even among NaNs.
size_t BestUntaken(const std::vector<float>& keys,
                   const std::vector<bool>& taken) {
  size_t best = keys.size();
  for (size_t e = 0; e < keys.size(); ++e) {
    if (taken[e]) continue;
    if (best == keys.size() || keys[e] > keys[best]) best = e;
  }
  return best;
}

double MaybeRound(double x, bool round_bf16) {
  return round_bf16 ? RoundToBF16(static_cast<float>(x)) : x;
}

double Silu(double x) { return x * Sigmoid(x); }

double DotRow(const Matrix& matrix, size_t row, const double* x) {
  std::vector<float> weights(matrix.cols);
  DequantizeRow(matrix, row, weights.data());
  return Dot(weights.data(), x, matrix.cols);
}

// What a product takes x [n] for.
std::vector<double> Input(const float* x, size_t n, bool int8) {
  return int8 ? RoundedToInt8(x, n) : std::vector<double>(x, x + n);
}

// sum[D] += the expert's output for one token.
void AddExpert(const ExpertsArgs& args, const Expert& expert, const float* in,
               double weight, double* sum) {
  const double limit = args.swiglu_limit;
  const ExpertsInt8 int8(args);
  const std::vector<double> x = Input(in, args.dim, int8.x);
  std::vector<float> hidden(expert.w1.rows);
  for (size_t i = 0; i < hidden.size(); ++i) {
    double gate = MaybeRound(DotRow(expert.w1, i, x.data()), args.round_bf16);
    double up = MaybeRound(DotRow(expert.w3, i, x.data()), args.round_bf16);
    if (limit > 0) {
      gate = std::min(gate, limit);
      up = std::clamp(up, -limit, limit);
    }
    hidden[i] = static_cast<float>(
        MaybeRound(Silu(gate) * up * weight, args.round_bf16));
  }
  const std::vector<double> h =
      Input(hidden.data(), hidden.size(), int8.hidden);
  for (size_t i = 0; i < args.dim; ++i) {
    sum[i] += MaybeRound(DotRow(expert.w2, i, h.data()), args.round_bf16);
  }
}

}  // namespace

void Router(const RouterArgs& args, ThreadPool&) {
  for (size_t t = 0; t < args.tokens; ++t) {
    const bool image = args.image_mask != nullptr && args.image_mask[t] != 0;
    const float* bias = image ? args.bias_image : args.bias;
    const std::vector<float> s = Scores(args, args.logits + t * args.experts);
    std::vector<float> keys(args.experts);
    for (size_t e = 0; e < args.experts; ++e) keys[e] = s[e] + bias[e];
    std::vector<bool> taken(args.experts, false);
    int32_t* ids = args.ids + t * args.topk;
    double sum = 0;
    for (size_t j = 0; j < args.topk; ++j) {
      const size_t best = BestUntaken(keys, taken);
      taken[best] = true;
      ids[j] = static_cast<int32_t>(best);
      sum += s[best];
    }
    const double divisor = args.normalize ? sum + 1e-20 : 1;
    for (size_t j = 0; j < args.topk; ++j) {
      args.weights[t * args.topk + j] = static_cast<float>(
          s[static_cast<size_t>(ids[j])] / divisor * args.scale);
    }
  }
}

void Experts(const ExpertsArgs& args, ThreadPool&) {
  std::vector<double> sum(args.dim);
  for (size_t t = 0; t < args.tokens; ++t) {
    const float* x = args.x + t * args.dim;
    float* y = args.y + t * args.dim;
    std::fill(sum.begin(), sum.end(), 0.0);
    for (size_t j = 0; j < args.topk; ++j) {
      const size_t slot = t * args.topk + j;
      AddExpert(args, args.experts[args.ids[slot]], x, args.weights[slot],
                sum.data());
    }
    for (size_t i = 0; i < args.dim; ++i) {
      y[i] = static_cast<float>(args.accumulate ? y[i] + sum[i] : sum[i]);
    }
  }
}

}  // namespace ecphory::ref
