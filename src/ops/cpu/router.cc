// Routing: a few exponentials per expert and token, so plain double code; the
// choice is exactly the definition's.
#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"
#include "ops/moe.h"

namespace ecphory {

namespace {

double Softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

double Sigmoid(double x) { return 0.5 * (1 + std::tanh(0.5 * x)); }

// scores[e] of one token, rounded to fp32.
void Score(const RouterArgs& args, const float* logits, float* scores) {
  const auto logit = [&](size_t e) {
    return static_cast<double>(logits[e]) / args.gate_temp;
  };
  const auto fill = [&](auto score) {
    for (size_t e = 0; e < args.experts; ++e) {
      scores[e] = static_cast<float>(score(logit(e)));
    }
  };
  switch (args.score) {
    case RouterScoreKind::kSqrtSoftplus:
      fill([](double x) { return std::sqrt(Softplus(x)); });
      break;
    case RouterScoreKind::kSigmoid: fill(Sigmoid); break;
    case RouterScoreKind::kSoftmax: {
      double top = logit(0);
      for (size_t e = 1; e < args.experts; ++e) top = std::max(top, logit(e));
      double sum = 0;
      for (size_t e = 0; e < args.experts; ++e) sum += std::exp(logit(e) - top);
      fill([&](double x) { return std::exp(x - top) / sum; });
      break;
    }
  }
}

// The untaken expert with the largest key, ties to the lower id. Always a valid
// id, even among NaNs.
size_t BestUntaken(const float* keys, const uint8_t* taken, size_t experts) {
  size_t best = experts;
  for (size_t e = 0; e < experts; ++e) {
    if (taken[e] != 0) continue;
    if (best == experts || keys[e] > keys[best]) best = e;
  }
  return best;
}

void RouteToken(const RouterArgs& args, size_t token) {
  struct Scores;
  struct Taken;
  const size_t experts = args.experts;
  float* const scores = ThreadScratch<Scores>(2 * experts);
  float* const keys = scores + experts;
  uint8_t* const taken = ThreadScratch<Taken, uint8_t>(experts);
  Score(args, args.logits + token * experts, scores);
  const bool image = args.image_mask != nullptr && args.image_mask[token] != 0;
  const float* const bias = image ? args.bias_image : args.bias;
  for (size_t e = 0; e < experts; ++e) keys[e] = scores[e] + bias[e];
  std::fill(taken, taken + experts, uint8_t{0});
  int32_t* const ids = args.ids + token * args.topk;
  double sum = 0;
  for (size_t j = 0; j < args.topk; ++j) {
    const size_t best = BestUntaken(keys, taken, experts);
    taken[best] = 1;
    ids[j] = static_cast<int32_t>(best);
    sum += scores[best];
  }
  const double divisor = args.normalize ? sum + 1e-20 : 1;
  float* const weights = args.weights + token * args.topk;
  for (size_t j = 0; j < args.topk; ++j) {
    weights[j] = static_cast<float>(scores[ids[j]] / divisor * args.scale);
  }
}

}  // namespace

void CpuRouter(const RouterArgs& args, ThreadPool& pool) {
  // Two transcendental functions in double per expert, then a scan per choice.
  const size_t token_work = args.experts * (256 + 4 * args.topk);
  pool.ParallelFor(args.tokens, GrainFor(token_work),
                   [&](size_t begin, size_t end, size_t) {
                     for (size_t t = begin; t < end; ++t) RouteToken(args, t);
                   });
}

}  // namespace ecphory
