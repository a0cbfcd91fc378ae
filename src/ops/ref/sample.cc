#include "ops/sample.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/ref/ref_ops.h"
#include "ops/sample_math.h"

namespace ecphory::ref {

namespace {

class Draw {
 public:
  Draw(const SampleRow& row, size_t vocab)
      : row_(row),
        bits_(SampleMassBits(vocab)),
        logits_(row.logits, row.logits + vocab) {}

  Sampled Run() {
    Penalize();
    for (size_t i = 0; i < logits_.size(); ++i) {
      const float x = logits_[i];
      const int32_t id = static_cast<int32_t>(i);
      if (std::isnan(x)) return {id, SampleFault::kNaN};
      if (x == HUGE_VALF) return {id, SampleFault::kInfinity};
      if (x != -HUGE_VALF) kept_.push_back({x, id});
    }
    if (kept_.empty()) return {0, SampleFault::kNoToken};
    std::sort(kept_.begin(), kept_.end(), SampleBetter);
    top_ = kept_[0].logit;
    if (row_.temperature == 0) return {kept_[0].id};
    if (row_.top_k > 0 && row_.top_k < kept_.size()) kept_.resize(row_.top_k);
    if (row_.top_p < 1) CutTopP();
    std::erase_if(kept_, [&](const SampleCandidate& c) {
      return !(Gap(c) >= row_.min_gap);
    });
    std::sort(kept_.begin(), kept_.end(), SampleLower);
    return {Pick()};
  }

 private:
  double Gap(const SampleCandidate& c) const {
    return static_cast<double>(c.logit) - static_cast<double>(top_);
  }
  uint64_t Mass(const SampleCandidate& c, double temperature) const {
    return SampleMass(Gap(c) / temperature, bits_);
  }
  uint64_t Total(double temperature) const {
    uint64_t total = 0;
    for (const SampleCandidate& c : kept_) total += Mass(c, temperature);
    return total;
  }

  void Penalize() {
    for (size_t i = 0; i < row_.n_penalized; ++i) {
      float& x = logits_[static_cast<size_t>(row_.penalized[i])];
      x = x > 0 ? x / row_.repeat_penalty : x * row_.repeat_penalty;
    }
  }

  void CutTopP() {
    const uint64_t wanted = SampleShare(row_.top_p, Total(1));
    uint64_t sum = 0;
    size_t kept = 0;
    while (sum < wanted) sum += Mass(kept_[kept++], 1);
    kept_.resize(kept);
  }

  int32_t Pick() const {
    const double temperature = row_.temperature;
    uint64_t left = SampleTarget(row_.random, Total(temperature));
    for (const SampleCandidate& c : kept_) {
      const uint64_t mass = Mass(c, temperature);
      if (left < mass) return c.id;
      left -= mass;
    }
    return 0;  // not reached: the target is less than the total
  }

  const SampleRow& row_;
  const int bits_;
  std::vector<float> logits_;
  std::vector<SampleCandidate> kept_;
  float top_ = 0;
};

}  // namespace

void Sample(const SampleArgs& args, ThreadPool&) {
  for (size_t i = 0; i < args.n_rows; ++i) {
    const SampleRow& row = args.rows[i];
    args.sampled[i] = Draw(row, args.vocab).Run();
    if (row.token != nullptr) *row.token = args.sampled[i].id;
  }
}

}  // namespace ecphory::ref
