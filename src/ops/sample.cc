#include "ops/sample.h"

namespace ecphory {

Status CheckSampled(const Sampled& sampled, size_t vocab) {
  switch (sampled.fault) {
    case SampleFault::kNone: return {};
    case SampleFault::kNoToken:
      return Corrupt("none of %zu logits is finite, expected at least one",
                     vocab);
    case SampleFault::kNaN:
    case SampleFault::kInfinity: break;
  }
  return Corrupt(
      "logit of token %d is %s, expected a finite number: the model's weights "
      "are damaged, or its activations overflow",
      sampled.id, sampled.fault == SampleFault::kNaN ? "NaN" : "+infinity");
}

}  // namespace ecphory
