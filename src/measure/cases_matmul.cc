// Matrix times vector, and times a pass of a prompt, in every weight format.
#include <span>
#include <string>
#include <vector>

#include "measure/op_case.h"

namespace ecphory::measure {

namespace {

std::string ShapeName(const MatrixShape& shape) {
  std::string name =
      std::to_string(shape.rows) + "x" + std::to_string(shape.cols);
  if (shape.groups > 1) name += "_in_" + std::to_string(shape.groups);
  return name;
}

// As a forward pass does: all groups at once.
void RunGroups(CaseContext& context, const MatrixShape& shape,
               const Matrix& weight, size_t tokens, MatmulInput input,
               const float* x, float* y) {
  const size_t rows = shape.rows / shape.groups;
  std::vector<MatmulArgs> groups;
  groups.reserve(shape.groups);
  for (size_t g = 0; g < shape.groups; ++g) {
    groups.push_back({.weight = weight.RowBlock(g * rows, rows),
                      .x = x + g * shape.cols,
                      .y = y + g * rows,
                      .tokens = tokens,
                      .x_stride = shape.groups * shape.cols,
                      .y_stride = shape.rows,
                      .input = input});
  }
  if (groups.size() == 1) {
    return context.ops().matmul(groups[0], context.pool());
  }
  context.ops().matmuls(std::span<const MatmulArgs>(groups), context.pool());
}

Result<PreparedCase> Prepare(CaseContext& context, WeightFormat format,
                             const MatrixShape& shape, size_t tokens,
                             MatmulInput input) {
  ECPHORY_ASSIGN_OR_RETURN(const auto weights, context.Weights(format));
  ECPHORY_ASSIGN_OR_RETURN(const auto x,
                           context.Floats(tokens * shape.groups * shape.cols));
  ECPHORY_ASSIGN_OR_RETURN(const auto y, context.Floats(tokens * shape.rows));
  if (input == MatmulInput::kBF16) {
    context.ops().round_bf16(
        {.x = x->floats(), .count = tokens * shape.groups * shape.cols},
        context.pool());
  }
  PreparedCase prepared;
  prepared.subject.call = [=, &context] {
    RunGroups(context, shape, weights->Next(shape.rows, shape.cols), tokens,
              input, x->floats(), y->floats());
  };
  prepared.cost = CostOf(MatmulArgs{
      .weight = weights->Next(shape.rows, shape.cols), .tokens = tokens});
  return prepared;
}

void Add(const std::string& kind, WeightFormat format, const MatrixShape& shape,
         size_t tokens, const InputKind& input, std::vector<OpCase>* cases) {
  cases->push_back(
      {kind + input.suffix + "/" + FigureName(format) + "/" + ShapeName(shape),
       {.arithmetic = input.arithmetic},
       [=](CaseContext& context) {
         return Prepare(context, format, shape, tokens, input.input);
       }});
}

// Rows of some formats are made of whole blocks.
bool Fits(WeightFormat format, const MatrixShape& shape) {
  return shape.cols % BlockValues(format) == 0;
}

}  // namespace

void AddMatmulCases(const Sizes& sizes, std::vector<OpCase>* cases) {
  for (const WeightFormat format : WeightFormats()) {
    for (const InputKind& input : {kExactInput, kInt8Input}) {
      if (!HasInput(format, input.input)) continue;
      for (const MatrixShape& shape : sizes.token_shapes) {
        if (Fits(format, shape)) Add("matvec", format, shape, 1, input, cases);
      }
    }
    for (const InputKind& input : {kExactInput, kBf16Input, kInt8Input}) {
      if (!HasInput(format, input.input)) continue;
      for (const MatrixShape& shape : sizes.prompt_shapes) {
        if (!Fits(format, shape)) continue;
        Add("matmul512", format, shape, kPromptTokens, input, cases);
        // One shape tells enough of the inexact ones.
        if (input.input != MatmulInput::kF32) break;
      }
    }
  }
}

}  // namespace ecphory::measure
