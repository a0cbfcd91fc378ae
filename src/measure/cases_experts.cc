// Experts of a token, and of a pass of a prompt.
#include <algorithm>
#include <string>

#include "measure/op_case.h"

namespace ecphory::measure {

namespace {

struct Buffers {
  std::vector<Expert> experts;
  std::vector<int32_t> ids;      // [tokens, topk]
  std::vector<float> weights;    // likewise
  std::shared_ptr<Buffer> x, y;  // [tokens, dim]
  size_t turn = 0;
};

// Tokens take experts in turn, so that all of them get as many.
void Choose(const ExpertPass& pass, Buffers* buffers) {
  for (int32_t& id : buffers->ids) {
    id = static_cast<int32_t>(buffers->turn++ % pass.experts);
  }
}

ExpertsArgs Args(const Sizes& sizes, const ExpertPass& pass, MatmulInput input,
                 const Buffers& buffers) {
  return {.x = buffers.x->floats(),
          .tokens = pass.tokens,
          .dim = sizes.hidden,
          .experts = buffers.experts.data(),
          .n_experts = pass.experts,
          .inner = buffers.experts[0].w1.rows,
          .ids = buffers.ids.data(),
          .weights = buffers.weights.data(),
          .topk = sizes.topk_experts,
          .swiglu_limit = 10,
          .round_bf16 = input == MatmulInput::kBF16,
          .input = input,
          .y = buffers.y->floats()};
}

Result<PreparedCase> Prepare(CaseContext& context, WeightFormat format,
                             const ExpertPass& pass, MatmulInput input) {
  const Sizes& sizes = context.sizes();
  const size_t D = sizes.hidden, inner = sizes.inner;
  auto buffers = std::make_shared<Buffers>();
  ECPHORY_ASSIGN_OR_RETURN(const auto weights, context.Weights(format));
  ECPHORY_ASSIGN_OR_RETURN(buffers->x, context.Floats(pass.tokens * D));
  ECPHORY_ASSIGN_OR_RETURN(buffers->y, context.Floats(pass.tokens * D));
  if (input == MatmulInput::kBF16) {
    context.ops().round_bf16(
        {.x = buffers->x->floats(), .count = pass.tokens * D}, context.pool());
  }
  for (size_t i = 0; i < pass.experts; ++i) {
    buffers->experts.push_back({weights->Next(inner, D),
                                weights->Next(inner, D),
                                weights->Next(D, inner)});
  }
  buffers->ids.resize(pass.tokens * sizes.topk_experts);
  buffers->weights.assign(buffers->ids.size(), 0.25f);
  Choose(pass, buffers.get());
  PreparedCase prepared;
  prepared.cost = CostOf(Args(sizes, pass, input, *buffers));
  // `weights` is captured to be kept.
  prepared.subject.call = [=, &context, &sizes] {
    (void)weights;
    Choose(pass, buffers.get());
    context.ops().experts(Args(sizes, pass, input, *buffers), context.pool());
  };
  return prepared;
}

void Add(WeightFormat format, const ExpertPass& pass, const InputKind& input,
         std::vector<OpCase>* cases) {
  cases->push_back({"experts" + std::to_string(pass.tokens) + input.suffix +
                        "/" + FigureName(format),
                    {.arithmetic = input.arithmetic},
                    [=](CaseContext& context) {
                      return Prepare(context, format, pass, input.input);
                    }});
}

// Those that experts are stored in, and whose rows fit.
bool IsExpertFormat(const Sizes& sizes, WeightFormat format) {
  return format != WeightFormat::kF32 && format != WeightFormat::kF16 &&
         format != WeightFormat::kBF16 &&
         sizes.hidden % BlockValues(format) == 0 &&
         sizes.inner % BlockValues(format) == 0;
}

}  // namespace

void AddExpertCases(const Sizes& sizes, std::vector<OpCase>* cases) {
  for (const WeightFormat format : WeightFormats()) {
    if (!IsExpertFormat(sizes, format)) continue;
    for (const ExpertPass& pass : sizes.expert_passes) {
      Add(format, pass, kExactInput, cases);
      if (HasInput(format, kInt8Input.input)) {
        Add(format, pass, kInt8Input, cases);
      }
      if (pass.tokens > 1 && HasInput(format, kBf16Input.input)) {
        Add(format, pass, kBf16Input, cases);
      }
    }
    if (format != WeightFormat::kFp4Row32) continue;
    for (const ExpertPass& pass : sizes.long_passes) {
      Add(format, pass, kExactInput, cases);
    }
  }
}

}  // namespace ecphory::measure
