// Matrix times vector, and times a pass of a prompt, in every weight format.
#include <string>

#include "measure/op_case.h"

namespace ecphory::measure {

namespace {

// What the product may take its input for, and the name of that.
struct Input {
  const char* suffix;
  MatmulInput input;
};
constexpr Input kExact = {"", MatmulInput::kF32};
constexpr Input kInt8 = {"_int8", MatmulInput::kInt8};

// Formats whose product with an input rounded to int8 is another one. Rounding
// is for codes of few bits: F32, F16 and BF16 take their input as it is.
bool HasInt8(WeightFormat format) {
  return format != WeightFormat::kF32 && format != WeightFormat::kF16 &&
         format != WeightFormat::kBF16;
}

std::string ShapeName(const MatrixShape& shape) {
  std::string name =
      std::to_string(shape.rows) + "x" + std::to_string(shape.cols);
  if (shape.groups > 1) name += "_in_" + std::to_string(shape.groups);
  return name;
}

void RunGroups(CaseContext& context, const MatrixShape& shape,
               const Matrix& weight, size_t tokens, MatmulInput input,
               const float* x, float* y) {
  const size_t rows = shape.rows / shape.groups;
  for (size_t g = 0; g < shape.groups; ++g) {
    context.ops().matmul({.weight = weight.RowBlock(g * rows, rows),
                          .x = x + g * shape.cols,
                          .y = y + g * rows,
                          .tokens = tokens,
                          .x_stride = shape.groups * shape.cols,
                          .y_stride = shape.rows,
                          .input = input},
                         context.pool());
  }
}

Result<PreparedCase> Prepare(CaseContext& context, WeightFormat format,
                             const MatrixShape& shape, size_t tokens,
                             MatmulInput input) {
  ECPHORY_ASSIGN_OR_RETURN(const auto weights, context.Weights(format));
  ECPHORY_ASSIGN_OR_RETURN(const auto x,
                           context.Floats(tokens * shape.groups * shape.cols));
  ECPHORY_ASSIGN_OR_RETURN(const auto y, context.Floats(tokens * shape.rows));
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
         size_t tokens, const Input& input, std::vector<OpCase>* cases) {
  cases->push_back(
      {kind + input.suffix + "/" + FigureName(format) + "/" + ShapeName(shape),
       Traffic::kRead, [=](CaseContext& context) {
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
    for (const Input& input : {kExact, kInt8}) {
      if (input.input == MatmulInput::kInt8 && !HasInt8(format)) continue;
      for (const MatrixShape& shape : sizes.token_shapes) {
        if (Fits(format, shape)) Add("matvec", format, shape, 1, input, cases);
      }
    }
    for (const MatrixShape& shape : sizes.prompt_shapes) {
      if (!Fits(format, shape)) continue;
      Add("matmul512", format, shape, kPromptTokens, kExact, cases);
    }
  }
}

}  // namespace ecphory::measure
