// Drawing a token: nothing is sorted but what min_gap has left.
#include "ops/sample.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/scratch.h"
#include "ops/sample_math.h"

namespace ecphory {

namespace {

// The logits as they are penalized: a copy only where any is.
const float* Penalized(const SampleRow& row, size_t vocab) {
  if (row.n_penalized == 0) return row.logits;
  struct Copy;
  float* const logits = ThreadScratch<Copy>(vocab);
  std::copy_n(row.logits, vocab, logits);
  for (size_t i = 0; i < row.n_penalized; ++i) {
    float& x = logits[row.penalized[i]];
    x = x > 0 ? x / row.repeat_penalty : x * row.repeat_penalty;
  }
  return logits;
}

// Whether any is NaN or +infinity: no branch in the loop.
bool AnyBad(const float* logits, size_t vocab) {
  uint32_t bad = 0;
  for (size_t i = 0; i < vocab; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(logits[i]);
    bad |= static_cast<uint32_t>((bits & 0x7f800000u) == 0x7f800000u &&
                                 bits != 0xff800000u);
  }
  return bad != 0;
}

Sampled FirstBad(const float* logits, size_t vocab) {
  const float* const bad = std::find_if(logits, logits + vocab, [](float x) {
    return std::isnan(x) || x == HUGE_VALF;
  });
  return {static_cast<int32_t>(bad - logits),
          std::isnan(*bad) ? SampleFault::kNaN : SampleFault::kInfinity};
}

class Draw {
 public:
  Draw(const SampleRow& row, const float* logits, size_t vocab, size_t best)
      : row_(row), bits_(SampleMassBits(vocab)), top_(logits[best]) {
    struct Kept;
    begin_ = end_ = ThreadScratch<Kept, SampleCandidate>(vocab);
    const bool cuts = row.top_k > 0 || row.top_p < 1;
    for (size_t i = 0; i < vocab; ++i) {
      const SampleCandidate c{logits[i], static_cast<int32_t>(i)};
      if (c.logit == -HUGE_VALF || (!cuts && !Near(c))) continue;
      *end_++ = c;
    }
    CutTopK();
    CutTopP();
  }

  int32_t Pick() const {
    struct Masses;
    uint64_t* const masses =
        ThreadScratch<Masses, uint64_t>(static_cast<size_t>(end_ - begin_));
    uint64_t total = 0;
    for (SampleCandidate* c = begin_; c < end_; ++c) {
      total += masses[c - begin_] = Mass(*c, row_.temperature);
    }
    uint64_t left = SampleTarget(row_.random, total);
    const SampleCandidate* c = begin_;
    while (left >= masses[c - begin_]) left -= masses[c++ - begin_];
    return c->id;
  }

 private:
  double Gap(const SampleCandidate& c) const {
    return static_cast<double>(c.logit) - static_cast<double>(top_);
  }
  bool Near(const SampleCandidate& c) const { return Gap(c) >= row_.min_gap; }
  uint64_t Mass(const SampleCandidate& c, double temperature) const {
    return SampleMass(Gap(c) / temperature, bits_);
  }

  // Leaves what is near in the order of ids where top_p cuts nothing.
  void CutTopK() {
    if (row_.top_k == 0) return;
    if (row_.top_k < static_cast<size_t>(end_ - begin_)) {
      SampleCandidate* const end = begin_ + row_.top_k;
      std::nth_element(begin_, end - 1, end_, SampleBetter);
      end_ = end;
    }
    if (row_.top_p >= 1) KeepNear(SampleLower);
  }

  void CutTopP() {
    if (row_.top_p >= 1) return;
    uint64_t total = 0;
    for (SampleCandidate* c = begin_; c < end_; ++c) total += Mass(*c, 1);
    const uint64_t wanted = SampleShare(row_.top_p, total);
    // What is near is a prefix of the best as well, and leaves little to sort.
    KeepNear(SampleBetter);
    uint64_t sum = 0;
    SampleCandidate* c = begin_;
    while (c < end_ && sum < wanted) sum += Mass(*c++, 1);
    end_ = c;
    std::sort(begin_, end_, SampleLower);
  }

  template <typename Order>
  void KeepNear(const Order& order) {
    end_ = std::remove_if(begin_, end_,
                          [&](const SampleCandidate& c) { return !Near(c); });
    std::sort(begin_, end_, order);
  }

  const SampleRow& row_;
  const int bits_;
  const float top_;
  SampleCandidate* begin_;
  SampleCandidate* end_;
};

Sampled SampleOne(const SampleRow& row, size_t vocab) {
  const float* const logits = Penalized(row, vocab);
  if (AnyBad(logits, vocab)) return FirstBad(logits, vocab);
  const size_t best =
      static_cast<size_t>(std::max_element(logits, logits + vocab) - logits);
  if (logits[best] == -HUGE_VALF) return {0, SampleFault::kNoToken};
  if (row.temperature == 0) return {static_cast<int32_t>(best)};
  return {Draw(row, logits, vocab, best).Pick()};
}

}  // namespace

void CpuSample(const SampleArgs& args, ThreadPool&) {
  for (size_t i = 0; i < args.n_rows; ++i) {
    const SampleRow& row = args.rows[i];
    args.sampled[i] = SampleOne(row, args.vocab);
    if (row.token != nullptr) *row.token = args.sampled[i].id;
  }
}

}  // namespace ecphory
