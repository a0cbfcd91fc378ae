// Writing synthetic models: tensors are made in pieces, by all threads, on
// their way into the file.
#include "ecphory/synth.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/processors.h"
#include "base/thread_pool.h"
#include "ecphory/output_path.h"
#include "format/gguf.h"
#include "io/path.h"
#include "model/convert_metadata.h"
#include "model/synth_plan.h"
#include "model/synth_released.h"
#include "model/synth_stream.h"

namespace ecphory {

namespace {

// Tables begin on a page of every common system; conversion does the same.
constexpr uint64_t kAlignment = 16384;

SynthCut CutOf(const SynthModelOptions& options) {
  return {options.layers, options.experts, options.engram_rows};
}

struct Planned {
  SynthModelFacts facts;
  SynthTypes types;
  SynthShape shape;    // deepseek41
  ModelSource source;  // likewise
  SynthV4 v4;          // deepseek4
  std::vector<SynthTensor> tensors;
};

Status PlanV4(const SynthModelOptions& options, Planned* planned) {
  if (!HasExtension(options.output, ".gguf")) {
    return Unsupported(
        "preset v4-flash is written as GGUF only, expected an output that ends "
        "in .gguf");
  }
  ECPHORY_ASSIGN_OR_RETURN(planned->v4, MakeSynthV4(CutOf(options)));
  planned->tensors = PlanSynthV4(planned->v4, planned->types);
  planned->facts.architecture = "deepseek4";
  planned->facts.layers = planned->v4.layers;
  return {};
}

Status PlanV41(const SynthModelOptions& options, Planned* planned) {
  ECPHORY_ASSIGN_OR_RETURN(planned->shape,
                           MakeSynthShape(options.preset, CutOf(options)));
  ECPHORY_ASSIGN_OR_RETURN(planned->source,
                           MakeSynthSource(planned->shape, options.output));
  const ModelConfig& config = planned->source.config;
  const bool gguf = HasExtension(options.output, ".gguf");
  if (!gguf && options.dtypes != "released") {
    return InvalidArgument(
        "--dtypes %s: a directory holds the released types; expected an output "
        "that ends in .gguf",
        options.dtypes.c_str());
  }
  planned->tensors =
      gguf ? PlanSynthGguf(config, planned->types) : PlanSynthReleased(config);
  planned->facts.architecture = config.architecture;
  planned->facts.layers = planned->shape.layers;
  return {};
}

// Rows must be whole blocks, whatever the type.
Status CountBytes(const SynthModelOptions& options, Planned* planned) {
  const bool gguf = HasExtension(options.output, ".gguf");
  for (const SynthTensor& tensor : planned->tensors) {
    const uint32_t block = GetDTypeInfo(tensor.dtype).block_values;
    if (tensor.cols() % block != 0) {
      return InvalidArgument(
          "--dtypes %s: tensor '%s' has rows of %llu values, expected a "
          "multiple of %u",
          options.dtypes.c_str(), tensor.name.c_str(),
          static_cast<unsigned long long>(tensor.cols()), block);
    }
    uint64_t bytes = tensor.bytes();
    if (gguf) bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    planned->facts.tensor_bytes += bytes;
    if (tensor.values.IsTable()) planned->facts.engram_bytes += bytes;
  }
  planned->facts.tensors = planned->tensors.size();
  planned->facts.format = gguf ? "gguf" : "safetensors";
  return {};
}

Result<Planned> Plan(const SynthModelOptions& options) {
  Planned planned;
  ECPHORY_ASSIGN_OR_RETURN(planned.types, ParseSynthTypes(options.dtypes));
  ECPHORY_RETURN_IF_ERROR(options.preset == "v4-flash"
                              ? PlanV4(options, &planned)
                              : PlanV41(options, &planned));
  ECPHORY_RETURN_IF_ERROR(CountBytes(options, &planned));
  return planned;
}

Status CheckOutput(const SynthModelOptions& options) {
  if (options.output.empty()) {
    return InvalidArgument("no output, expected a .gguf file or a directory");
  }
  if (!HasExtension(options.output, ".gguf"))
    return {};  // AtomicDirectory does
  ECPHORY_RETURN_IF_ERROR(CheckOutputPath(options.output, {}));
  if (options.overwrite || !PathExists(options.output)) return {};
  return InvalidArgument("%s: exists; give another output or --overwrite",
                         options.output.c_str());
}

Status WriteGguf(const SynthModelOptions& options, const Planned& planned,
                 SynthStream* stream) {
  GgufWriter writer(kAlignment);
  if (planned.facts.architecture == "deepseek4") {
    ECPHORY_RETURN_IF_ERROR(AddSynthV4Keys(planned.v4, planned.types, &writer));
  } else {
    ECPHORY_RETURN_IF_ERROR(AddMetadata(planned.source, planned.shape.name,
                                        planned.shape.config,
                                        planned.types.description, &writer));
    writer.AddString("deepseek41.calibration", "none (random weights)");
  }
  for (const SynthTensor& tensor : planned.tensors) {
    ECPHORY_RETURN_IF_ERROR(writer.AddTensor(
        tensor.name, tensor.dtype, tensor.shape, stream->ProducerOf(tensor)));
  }
  return writer.WriteTo(options.output, options.progress);
}

}  // namespace

Result<SynthModelFacts> PlanSynthModel(const SynthModelOptions& options) {
  ECPHORY_ASSIGN_OR_RETURN(Planned planned, Plan(options));
  return std::move(planned.facts);
}

Result<SynthModelFacts> SynthModel(const SynthModelOptions& options) {
  ECPHORY_RETURN_IF_ERROR(CheckOutput(options));
  ECPHORY_ASSIGN_OR_RETURN(const Planned planned, Plan(options));
  ECPHORY_ASSIGN_OR_RETURN(
      const std::unique_ptr<ThreadPool> pool,
      ThreadPool::Create(options.threads != 0 ? options.threads
                                              : AvailableProcessors()));
  SynthStream stream(options.seed, pool.get());
  if (HasExtension(options.output, ".gguf")) {
    ECPHORY_RETURN_IF_ERROR(WriteGguf(options, planned, &stream));
  } else {
    ECPHORY_RETURN_IF_ERROR(WriteSynthDirectory(
        planned.source, planned.shape.config, planned.tensors, options.output,
        options.progress, &stream));
  }
  return planned.facts;
}

}  // namespace ecphory
