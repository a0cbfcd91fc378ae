#include <random>
#include <vector>

#include "base/check.h"
#include "ecphory/generate.h"
#include "model/draw.h"

namespace ecphory {

struct Sampler::Impl {
  explicit Impl(const SamplerOptions& o) : options(o), random(o.seed) {}

  // A number a draw, none where nothing is drawn.
  uint64_t Next() { return options.temperature == 0 ? 0 : random(); }

  SamplerOptions options;
  std::mt19937_64 random;  // its sequence is fixed by the C++ standard
};

Sampler::Sampler(const SamplerOptions& options)
    : impl_(std::make_unique<Impl>(options)) {
  ECPHORY_CHECK(options.Validate().ok());
}
Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;

Result<int32_t> Sampler::Sample(std::span<const float> logits,
                                std::span<const int32_t> recent) {
  if (logits.empty()) return CheckSampled({0, SampleFault::kNoToken}, 0);
  const std::vector<int32_t> penalized =
      PenalizedIds(impl_->options, recent, logits.size());
  const Sampled sampled = DrawOnHost(
      CpuOps(), logits, DrawnRow(impl_->options, impl_->Next()), penalized);
  ECPHORY_RETURN_IF_ERROR(CheckSampled(sampled, logits.size()));
  return sampled.id;
}

Result<int32_t> Sampler::Sample(Session& session) {
  return session.Draw(impl_->options, impl_->Next());
}

Result<int32_t> Sampler::Step(Session& session, int32_t token, bool goes_on) {
  return session.Step(token, impl_->options, impl_->Next(), goes_on);
}

BatchDraw Sampler::Next(Session& session) {
  return {&session, impl_->options, impl_->Next()};
}

}  // namespace ecphory
