// Matrix times vector, and times a pass of a prompt, in every weight format.
#include <string>

#include "measure/op_case.h"

namespace ecphory::measure {

namespace {

struct Shape {
  size_t rows;
  size_t cols;
  // Blocks of rows with an input each, as the heads' groups have.
  size_t groups = 1;
};

constexpr Shape kVectorShapes[] = {
    {1280, 5120},     // wq_a
    {32768, 1280},    // wq_b
    {8192, 4096, 8},  // wo_a
    {5120, 8192},     // wo_b
    {2304, 5120},     // w1 and w3 of an expert
    {5120, 2304},     // w2
    {5120, 1280},     // the narrowest in common use
};
// Enough for tall and wide; each call is 12 to 43 GFLOP.
constexpr Shape kPromptShapes[] = {{2304, 5120}, {5120, 8192}};

std::string ShapeName(const Shape& shape) {
  std::string name =
      std::to_string(shape.rows) + "x" + std::to_string(shape.cols);
  if (shape.groups > 1) name += "_in_" + std::to_string(shape.groups);
  return name;
}

void RunGroups(CaseContext& context, const Shape& shape, const Matrix& weight,
               size_t tokens, const float* x, float* y) {
  const size_t rows = shape.rows / shape.groups;
  for (size_t g = 0; g < shape.groups; ++g) {
    context.ops().matmul({.weight = weight.RowBlock(g * rows, rows),
                          .x = x + g * shape.cols,
                          .y = y + g * rows,
                          .tokens = tokens,
                          .x_stride = shape.groups * shape.cols,
                          .y_stride = shape.rows},
                         context.pool());
  }
}

Result<PreparedCase> Prepare(CaseContext& context, WeightFormat format,
                             const Shape& shape, size_t tokens) {
  ECPHORY_ASSIGN_OR_RETURN(const auto weights, context.Weights(format));
  ECPHORY_ASSIGN_OR_RETURN(const auto x,
                           context.Floats(tokens * shape.groups * shape.cols));
  ECPHORY_ASSIGN_OR_RETURN(const auto y, context.Floats(tokens * shape.rows));
  PreparedCase prepared;
  prepared.subject.call = [=, &context] {
    RunGroups(context, shape, weights->Next(shape.rows, shape.cols), tokens,
              x->floats(), y->floats());
  };
  prepared.cost = CostOf(MatmulArgs{
      .weight = weights->Next(shape.rows, shape.cols), .tokens = tokens});
  return prepared;
}

void Add(const std::string& kind, WeightFormat format, const Shape& shape,
         size_t tokens, std::vector<OpCase>* cases) {
  cases->push_back({kind + "/" + FigureName(format) + "/" + ShapeName(shape),
                    Traffic::kRead, [=](CaseContext& context) {
                      return Prepare(context, format, shape, tokens);
                    }});
}

}  // namespace

void AddMatmulCases(std::vector<OpCase>* cases) {
  for (const WeightFormat format : WeightFormats()) {
    for (const Shape& shape : kVectorShapes) {
      Add("matvec", format, shape, 1, cases);
    }
    for (const Shape& shape : kPromptShapes) {
      Add("matmul512", format, shape, kPromptTokens, cases);
    }
  }
}

}  // namespace ecphory::measure
