#include <algorithm>
#include <cmath>
#include <random>
#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "ecphory/generate.h"

namespace ecphory {

namespace {

// Enough for any vocabulary, and far from the limits of size arithmetic.
constexpr uint32_t kMaxRepeatWindow = 1u << 20;

Status BadOption(const char* name, double value, const char* expected) {
  return InvalidArgument("sampler option %s is %g, expected %s", name, value,
                         expected);
}

bool InRange(float x, float low, float high) { return x >= low && x <= high; }

struct Candidate {
  float logit;
  int32_t id;
};

// Best first; equal logits in id order.
bool Better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

Status CheckLogits(std::span<const float> logits) {
  bool any_finite = false;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float x = logits[i];
    if (std::isnan(x) || x == HUGE_VALF) {
      return Corrupt(
          "logit of token %zu is %s, expected a finite number: the model's "
          "weights are damaged, or its activations overflow",
          i, std::isnan(x) ? "NaN" : "+infinity");
    }
    any_finite = any_finite || x != -HUGE_VALF;
  }
  if (any_finite) return {};
  return Corrupt("none of %zu logits is finite, expected at least one",
                 logits.size());
}

// A logit's mass relative to `top`, the largest.
double Mass(float logit, float top) {
  return std::exp(static_cast<double>(logit) - static_cast<double>(top));
}

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

struct Sampler::Impl {
  explicit Impl(const SamplerOptions& o) : options(o), random(o.seed) {}

  void Load(std::span<const float> logits, std::span<const int32_t> recent);
  void Penalize(std::span<const int32_t> recent);
  int32_t Greedy() const;
  void Filter();
  void CutTopK();
  void CutTopPAndMinP();
  int32_t Draw();
  // Uniform in [0, 1): std::uniform_real_distribution differs between
  // libraries.
  double Uniform() { return static_cast<double>(random() >> 11) * 0x1.0p-53; }

  SamplerOptions options;
  std::mt19937_64 random;  // its sequence is fixed by the C++ standard
  std::vector<float> logits;
  std::vector<Candidate> candidates;
  std::vector<double> masses;
};

void Sampler::Impl::Load(std::span<const float> from,
                         std::span<const int32_t> recent) {
  logits.assign(from.begin(), from.end());
  if (options.repeat_penalty != 1.0f) Penalize(recent);
}

// Divides positive logits and multiplies negative ones, once per id.
void Sampler::Impl::Penalize(std::span<const int32_t> recent) {
  const size_t window = std::min<size_t>(recent.size(), options.repeat_window);
  std::unordered_set<int32_t> seen;
  for (int32_t id : recent.last(window)) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
    if (!seen.insert(id).second) continue;
    float& x = logits[static_cast<size_t>(id)];
    x = x > 0 ? x / options.repeat_penalty : x * options.repeat_penalty;
  }
}

int32_t Sampler::Impl::Greedy() const {
  const auto best = std::max_element(logits.begin(), logits.end());
  return static_cast<int32_t>(best - logits.begin());
}

// Leaves the possible tokens in `candidates`, best first.
void Sampler::Impl::Filter() {
  candidates.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == -HUGE_VALF) continue;
    candidates.push_back({logits[i], static_cast<int32_t>(i)});
  }
  CutTopK();
  CutTopPAndMinP();
}

void Sampler::Impl::CutTopK() {
  if (options.top_k == 0 || options.top_k >= candidates.size()) return;
  const auto end = candidates.begin() + options.top_k;
  std::nth_element(candidates.begin(), end - 1, candidates.end(), Better);
  candidates.erase(end, candidates.end());
}

void Sampler::Impl::CutTopPAndMinP() {
  const float top =
      std::min_element(candidates.begin(), candidates.end(), Better)->logit;
  double total = 0;
  for (const Candidate& c : candidates) total += Mass(c.logit, top);
  // min_p first although it applies last: both keep a prefix of the best, and
  // it leaves little to sort.
  std::erase_if(candidates, [&](const Candidate& c) {
    return Mass(c.logit, top) < static_cast<double>(options.min_p);
  });
  std::sort(candidates.begin(), candidates.end(), Better);
  if (options.top_p >= 1.0f) return;
  const double wanted = static_cast<double>(options.top_p) * total;
  double sum = 0;
  size_t kept = 0;
  while (kept < candidates.size() && sum < wanted) {
    sum += Mass(candidates[kept++].logit, top);
  }
  candidates.resize(kept);
}

int32_t Sampler::Impl::Draw() {
  const float top = candidates.front().logit;
  masses.clear();
  double total = 0;
  for (const Candidate& c : candidates) {
    const double scaled = (static_cast<double>(c.logit) - top) /
                          static_cast<double>(options.temperature);
    masses.push_back(std::exp(scaled));
    total += masses.back();
  }
  double left = Uniform() * total;
  for (size_t i = 0; i < masses.size(); ++i) {
    left -= masses[i];
    if (left < 0) return candidates[i].id;
  }
  return candidates.front().id;  // rounding left a sliver of mass over
}

Sampler::Sampler(const SamplerOptions& options)
    : impl_(std::make_unique<Impl>(options)) {
  ECPHORY_CHECK(options.Validate().ok());
}
Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;

Result<int32_t> Sampler::Sample(std::span<const float> logits,
                                std::span<const int32_t> recent) {
  ECPHORY_RETURN_IF_ERROR(CheckLogits(logits));
  impl_->Load(logits, recent);
  if (impl_->options.temperature == 0) return impl_->Greedy();
  impl_->Filter();
  return impl_->Draw();
}

}  // namespace ecphory
