#include "measure/op_case.h"

#include <utility>

namespace ecphory::measure {

bool HasInput(WeightFormat format, MatmulInput input) {
  switch (input) {
    case MatmulInput::kF32: return true;
    case MatmulInput::kInt8: return TakesInt8(format);
    case MatmulInput::kBF16:
    case MatmulInput::kBF16InOrder:
      return format == WeightFormat::kBF16 || format == WeightFormat::kMXFP4 ||
             format == WeightFormat::kFp8Tile32 ||
             format == WeightFormat::kFp4Row32;
  }
  return false;
}

Result<std::shared_ptr<WeightPool>> CaseContext::Weights(WeightFormat format) {
  if (weights_ == nullptr || weights_->format() != format) {
    weights_.reset();  // before the next: both would not have to fit
    ECPHORY_ASSIGN_OR_RETURN(WeightPool made,
                             WeightPool::Create(format, options_.working_set,
                                                options_.pages, pool_));
    weights_ = std::make_shared<WeightPool>(std::move(made));
  }
  return weights_;
}

Result<std::shared_ptr<Buffer>> CaseContext::Floats(size_t count) {
  ECPHORY_ASSIGN_OR_RETURN(
      Buffer buffer, Buffer::Create(count * sizeof(float), options_.pages));
  buffer.FillFloats(pool_);
  return std::make_shared<Buffer>(std::move(buffer));
}

std::vector<OpCase> OpCases(const Sizes& sizes) {
  std::vector<OpCase> cases;
  AddReadCases(sizes, &cases);
  AddMatmulCases(sizes, &cases);
  AddExpertCases(sizes, &cases);
  AddStreamCases(sizes, &cases);
  AddAttentionCases(sizes, &cases);
  AddSmallCases(sizes, &cases);
  return cases;
}

}  // namespace ecphory::measure
