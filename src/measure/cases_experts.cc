// Experts of a token, and of a pass of a prompt.
#include <algorithm>
#include <string>

#include "measure/op_case.h"

namespace ecphory::measure {

namespace {

struct Pass {
  size_t tokens;
  size_t experts;  // that exist; a token takes 6
};

// A prompt's 512 tokens give each of 384 experts 8, and so do 64 tokens 48: the
// same work for a kernel at an eighth of the time.
constexpr Pass kToken = {1, 48};
constexpr Pass kShortPrompt = {64, 48};
constexpr Pass kPrompt = {512, 384};

struct Buffers {
  std::vector<Expert> experts;
  std::vector<int32_t> ids;      // [tokens, topk]
  std::vector<float> weights;    // likewise
  std::shared_ptr<Buffer> x, y;  // [tokens, dim]
  size_t turn = 0;
};

// Tokens take experts in turn, so that all of them get as many.
void Choose(const Pass& pass, Buffers* buffers) {
  for (int32_t& id : buffers->ids) {
    id = static_cast<int32_t>(buffers->turn++ % pass.experts);
  }
}

ExpertsArgs Args(const Pass& pass, const Buffers& buffers) {
  return {.x = buffers.x->floats(),
          .tokens = pass.tokens,
          .dim = kHidden,
          .experts = buffers.experts.data(),
          .n_experts = pass.experts,
          .ids = buffers.ids.data(),
          .weights = buffers.weights.data(),
          .topk = kTopkExperts,
          .swiglu_limit = 10,
          .y = buffers.y->floats()};
}

Result<PreparedCase> Prepare(CaseContext& context, WeightFormat format,
                             const Pass& pass) {
  auto buffers = std::make_shared<Buffers>();
  ECPHORY_ASSIGN_OR_RETURN(const auto weights, context.Weights(format));
  ECPHORY_ASSIGN_OR_RETURN(buffers->x, context.Floats(pass.tokens * kHidden));
  ECPHORY_ASSIGN_OR_RETURN(buffers->y, context.Floats(pass.tokens * kHidden));
  for (size_t i = 0; i < pass.experts; ++i) {
    buffers->experts.push_back({weights->Next(kInner, kHidden),
                                weights->Next(kInner, kHidden),
                                weights->Next(kHidden, kInner)});
  }
  buffers->ids.resize(pass.tokens * kTopkExperts);
  buffers->weights.assign(buffers->ids.size(), 1.0f / kTopkExperts);
  Choose(pass, buffers.get());
  PreparedCase prepared;
  prepared.cost = CostOf(Args(pass, *buffers));
  // `weights` is captured to be kept.
  prepared.subject.call = [=, &context] {
    (void)weights;
    Choose(pass, buffers.get());
    context.ops().experts(Args(pass, *buffers), context.pool());
  };
  return prepared;
}

void Add(WeightFormat format, const Pass& pass, std::vector<OpCase>* cases) {
  cases->push_back(
      {"experts" + std::to_string(pass.tokens) + "/" + FigureName(format),
       Traffic::kRead,
       [=](CaseContext& context) { return Prepare(context, format, pass); }});
}

// Those that experts are stored in.
bool IsExpertFormat(WeightFormat format) {
  return format != WeightFormat::kF32 && format != WeightFormat::kF16 &&
         format != WeightFormat::kBF16;
}

}  // namespace

void AddExpertCases(std::vector<OpCase>* cases) {
  for (const WeightFormat format : WeightFormats()) {
    if (!IsExpertFormat(format)) continue;
    Add(format, kToken, cases);
    Add(format, kShortPrompt, cases);
    // The released experts, once in full: a second or more a call.
    if (format == WeightFormat::kFp4Row32) Add(format, kPrompt, cases);
  }
}

}  // namespace ecphory::measure
