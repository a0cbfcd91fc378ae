// Released-layout directory -> GGUF, streaming: nothing larger than one buffer
// is held in memory.
#include "ecphory/convert.h"

#include <filesystem>
#include <utility>

#include "format/gguf.h"
#include "io/path.h"
#include "model/convert_metadata.h"
#include "model/convert_rows.h"
#include "model/engram_source.h"
#include "model/names.h"
#include "model/source.h"
#include "model/stored_tensor.h"
#include "model/tensor_slots.h"

namespace ecphory {

namespace {

// Tables begin on a page of every common system, so that a loader can leave
// them outside its mapping.
constexpr uint64_t kAlignment = 16384;

// A tensor of the output: what it becomes and where it comes from.
struct PlannedTensor {
  TensorSlot slot;
  DType dtype = DType::kF32;
  std::vector<StoredMatrix> matrices;
};

class Planner {
 public:
  Planner(const SourceFiles& files, const ConvertOptions& options)
      : files_(files), options_(options) {}

  Result<PlannedTensor> Plan(TensorSlot slot) const {
    PlannedTensor planned;
    if (slot.role == TensorRole::kVector) {
      ECPHORY_ASSIGN_OR_RETURN(planned.matrices, VectorAsMatrix(slot));
    } else {
      ECPHORY_ASSIGN_OR_RETURN(planned.matrices,
                               FindMatrices(files_.source(), slot));
      ECPHORY_ASSIGN_OR_RETURN(planned.dtype,
                               ChooseType(slot.role, planned.matrices));
    }
    planned.slot = std::move(slot);
    return planned;
  }

 private:
  // A vector is a matrix of one row; none when it is optional and absent.
  Result<std::vector<StoredMatrix>> VectorAsMatrix(
      const TensorSlot& slot) const {
    ECPHORY_ASSIGN_OR_RETURN(const TensorInfo* tensor,
                             FindVector(files_.source(), slot));
    if (tensor == nullptr) return std::vector<StoredMatrix>();
    StoredMatrix row;
    row.format = tensor->dtype == DType::kF32    ? WeightFormat::kF32
                 : tensor->dtype == DType::kBF16 ? WeightFormat::kBF16
                                                 : WeightFormat::kF16;
    row.rows = 1;
    row.cols = slot.ValueCount();
    row.data = tensor;
    return std::vector<StoredMatrix>{row};
  }

  Result<DType> ChooseType(TensorRole role,
                           const std::vector<StoredMatrix>& matrices) const {
    const StoredMatrix& first = matrices[0];
    switch (role) {
      case TensorRole::kVector:
      case TensorRole::kRouter: return DType::kF32;
      case TensorRole::kDense: return Q8OrBF16(first);
      case TensorRole::kExperts: return ExpertType(matrices);
      case TensorRole::kEmbedding: return F16OrWider(first, true);
      case TensorRole::kSmall: return F16OrWider(first, false);
    }
    return Internal("unknown tensor role");
  }

  // Q8_0 has blocks of 32; other rows keep what FP8 and BF16 hold exactly.
  static DType Q8OrBF16(const StoredMatrix& matrix) {
    return matrix.cols % 32 == 0 ? DType::kQ8_0 : DType::kBF16;
  }

  Result<DType> ExpertType(const std::vector<StoredMatrix>& experts) const {
    if (options_.experts == ConvertOptions::Experts::kQ8_0) {
      return Q8OrBF16(experts[0]);
    }
    for (const StoredMatrix& expert : experts) {
      if (expert.format == WeightFormat::kFp4Row32) continue;
      return Unsupported(
          "%s: found %s, expected packed FP4 experts for MXFP4; convert with "
          "experts as Q8_0",
          TensorLabel(files_.source(), *expert.data).c_str(),
          DTypeName(expert.data->dtype));
    }
    return DType::kMXFP4;
  }

  // F16 where it holds every value (exactly, if `exact`), else F32 for F32
  // sources and BF16, which is exact, for all others.
  Result<DType> F16OrWider(const StoredMatrix& matrix, bool exact) const {
    ECPHORY_ASSIGN_OR_RETURN(const F16Fit fit, CheckF16(files_, matrix));
    if (exact ? fit.exact : fit.finite) return DType::kF16;
    return matrix.format == WeightFormat::kF32 ? DType::kF32 : DType::kBF16;
  }

  const SourceFiles& files_;
  const ConvertOptions& options_;
};

Result<std::vector<PlannedTensor>> PlanTensors(const SourceFiles& files,
                                               const ConvertOptions& options) {
  Weights unfilled;
  const Planner planner(files, options);
  std::vector<PlannedTensor> plan;
  for (TensorSlot& slot : MakeTensorSlots(files.source().config, &unfilled)) {
    ECPHORY_ASSIGN_OR_RETURN(PlannedTensor planned,
                             planner.Plan(std::move(slot)));
    if (!planned.matrices.empty()) plan.push_back(std::move(planned));
  }
  return plan;
}

// Types by kind, as info prints them: "MXFP4 experts; Q8_0 ...".
std::string DescribeTypes(const std::vector<PlannedTensor>& plan) {
  const char* embedding = "";
  const char* experts = "";
  for (const PlannedTensor& tensor : plan) {
    if (tensor.slot.role == TensorRole::kEmbedding) {
      embedding = DTypeName(tensor.dtype);
    }
    if (tensor.slot.role == TensorRole::kExperts) {
      experts = DTypeName(tensor.dtype);
    }
  }
  return std::string(experts) + " experts; Q8_0 attention/shared/head; " +
         embedding + " token_embd";
}

Status AddWeights(const SourceFiles& files,
                  const std::vector<PlannedTensor>& plan, GgufWriter* writer) {
  for (const PlannedTensor& tensor : plan) {
    const auto produce = [&files, &tensor](const GgufWriter::Sink& sink) {
      for (const StoredMatrix& matrix : tensor.matrices) {
        ECPHORY_RETURN_IF_ERROR(
            EncodeMatrix(files, matrix, tensor.dtype, sink));
      }
      return Status();
    };
    ECPHORY_RETURN_IF_ERROR(writer->AddTensor(GgufTensorName(tensor.slot.name),
                                              tensor.dtype, tensor.slot.shape,
                                              produce));
  }
  return {};
}

Status AddTables(const SourceFiles& files, GgufWriter* writer) {
  const ModelSource& source = files.source();
  for (size_t i = 0; i < source.config.engram.layer_ids.size(); ++i) {
    ECPHORY_ASSIGN_OR_RETURN(const StoredTable table, FindTable(source, i));
    if (table.codec != TableCodec::kReleasedPair) {
      return Unsupported(
          "%s: found a table of %s rows, expected F8_E4M3 codes "
          "with F8_E8M0 scales",
          TensorLabel(source, *table.data).c_str(),
          TableCodecName(table.codec));
    }
    const uint64_t row_bytes = TableRowBytes(TableCodec::kRow264, table.width);
    const std::string name =
        LayerTensor(source.config.engram.layer_ids[i], "engram.embed");
    ECPHORY_RETURN_IF_ERROR(writer->AddTensor(
        GgufTensorName(name), DType::kI8, {table.rows, row_bytes},
        [&files, table](const GgufWriter::Sink& sink) {
          return InterleaveTable(files, table, sink);
        }));
  }
  return {};
}

// Refuses to replace a file of the model that is read. A .gguf file there is an
// earlier result.
Status CheckOutput(const std::string& directory, const std::string& output) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::directory_iterator entry(directory, ignored), end;
  for (; entry != end; entry.increment(ignored)) {
    std::error_code no_such_file;
    const bool same = fs::equivalent(entry->path(), output, no_such_file);
    if (no_such_file || !same || HasExtension(entry->path(), ".gguf")) continue;
    return InvalidArgument(
        "%s: is a file of the model to convert; give another output path",
        output.c_str());
  }
  return {};
}

}  // namespace

Status Convert(const std::string& directory, const std::string& output,
               const ConvertOptions& options) {
  ECPHORY_ASSIGN_OR_RETURN(const ModelSource source,
                           OpenModelSource(directory));
  if (source.format != "safetensors") {
    return InvalidArgument(
        "%s: found a %s file, expected a released-layout "
        "directory",
        directory.c_str(), source.format.c_str());
  }
  ECPHORY_RETURN_IF_ERROR(CheckOutput(directory, output));
  ECPHORY_ASSIGN_OR_RETURN(const SourceFiles files, SourceFiles::Open(source));
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<PlannedTensor> plan,
                           PlanTensors(files, options));
  GgufWriter writer(kAlignment);
  ECPHORY_RETURN_IF_ERROR(AddMetadata(source, DescribeTypes(plan), &writer));
  ECPHORY_RETURN_IF_ERROR(AddWeights(files, plan, &writer));
  ECPHORY_RETURN_IF_ERROR(AddTables(files, &writer));
  return writer.WriteTo(output, options.progress);
}

}  // namespace ecphory
