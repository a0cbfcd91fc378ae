#include "model/draw.h"

#include <algorithm>
#include <cmath>

namespace ecphory {

namespace {

// Enough for any vocabulary, and far from the limits of size arithmetic.
constexpr uint32_t kMaxRepeatWindow = 1u << 20;

Status BadOption(const char* name, double value, const char* expected) {
  return InvalidArgument("sampler option %s is %g, expected %s", name, value,
                         expected);
}

bool InRange(float x, float low, float high) { return x >= low && x <= high; }

}  // namespace

Status SamplerOptions::Validate() const {
  if (!InRange(temperature, 0, 100)) {
    return BadOption("temperature", temperature, "0 (greedy) to 100");
  }
  if (!(top_p > 0 && top_p <= 1)) {
    return BadOption("top_p", top_p, "more than 0, at most 1 (off)");
  }
  if (!InRange(min_p, 0, 1)) {
    return BadOption("min_p", min_p, "0 (off) to 1");
  }
  if (!InRange(repeat_penalty, 0.01f, 100)) {
    return BadOption("repeat_penalty", repeat_penalty,
                     "0.01 to 100 (1 is off)");
  }
  if (repeat_window > kMaxRepeatWindow) {
    return BadOption("repeat_window", repeat_window, "at most 1048576");
  }
  return {};
}

std::vector<int32_t> PenalizedIds(const SamplerOptions& options,
                                  std::span<const int32_t> recent,
                                  size_t vocab) {
  if (options.repeat_penalty == 1.0f) return {};
  const auto window =
      recent.last(std::min<size_t>(recent.size(), options.repeat_window));
  std::vector<int32_t> ids(window.begin(), window.end());
  std::erase_if(ids, [&](int32_t id) {
    return id < 0 || static_cast<size_t>(id) >= vocab;
  });
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

SampleRow DrawnRow(const SamplerOptions& options, uint64_t random) {
  return {.repeat_penalty = options.repeat_penalty,
          .temperature = options.temperature,
          .top_k = options.top_k,
          .top_p = options.top_p,
          .min_gap = std::log(static_cast<double>(options.min_p)),
          .random = random};
}

Sampled DrawOnHost(const Ops& ops, std::span<const float> logits, SampleRow row,
                   std::span<const int32_t> penalized) {
  static ThreadPool alone(1);
  Sampled sampled;
  row.logits = logits.data();
  row.penalized = penalized.data();
  row.n_penalized = penalized.size();
  ops.sample(
      {.rows = &row, .n_rows = 1, .vocab = logits.size(), .sampled = &sampled},
      alone);
  return sampled;
}

}  // namespace ecphory
