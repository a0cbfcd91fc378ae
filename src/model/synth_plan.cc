#include "model/synth_plan.h"

#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "base/quote.h"
#include "format/layer_name.h"
#include "model/names.h"
#include "model/synth_scale.h"
#include "model/tensor_slots.h"
#include "tensor/table_codec.h"

namespace ecphory {

namespace {

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() &&
         text.substr(text.size() - end.size()) == end;
}

// --- GGUF -------------------------------------------------------------------

DType GgufTypeOf(const TensorSlot& slot, const SynthTypes& types) {
  switch (slot.role) {
    case TensorRole::kVector:
    case TensorRole::kRouter: return DType::kF32;
    case TensorRole::kEmbedding:
    case TensorRole::kSmall: return DType::kF16;
    case TensorRole::kDense: return DType::kQ8_0;
    case TensorRole::kExperts:
      return EndsWith(slot.name, ".w2") ? types.down : types.gate_up;
  }
  return DType::kF32;
}

// --- released directories ---------------------------------------------------

// Small tensors whose names have no ".weight" behind them.
bool IsBareName(const std::string& name) {
  for (const char* end : {"_fn", "_base", "_scale", "attn_sink", ".bias",
                          "bias_vl", "q_weight", "k_weight"}) {
    if (EndsWith(name, end)) return true;
  }
  return false;
}

DType ReleasedVectorType(const std::string& name) {
  const bool f32 = IsBareName(name) && !EndsWith(name, "q_weight") &&
                   !EndsWith(name, "k_weight");
  return f32 ? DType::kF32 : DType::kBF16;
}

// The type of a matrix; F8_E4M3 ones have scales beside them.
DType ReleasedMatrixType(const TensorSlot& slot) {
  switch (slot.role) {
    case TensorRole::kDense:
      return slot.name == "head" ? DType::kBF16 : DType::kF8E4M3;
    case TensorRole::kSmall:
      if (EndsWith(slot.name, "_fn")) return DType::kF32;
      return EndsWith(slot.name, "indexer.wq_b") ||
                     EndsWith(slot.name, "engram.wkv")
                 ? DType::kF8E4M3
                 : DType::kBF16;
    default: return DType::kBF16;
  }
}

class ReleasedPlan {
 public:
  std::vector<SynthTensor> Take() && { return std::move(tensors_); }

  void Add(const TensorSlot& slot, const SynthValues& values) {
    if (slot.role == TensorRole::kVector) {
      const std::string suffix = IsBareName(slot.name) ? "" : ".weight";
      return Put(slot.name + suffix, ReleasedVectorType(slot.name), slot.shape,
                 values);
    }
    if (slot.role == TensorRole::kExperts) return AddExperts(slot, values);
    const DType dtype = ReleasedMatrixType(slot);
    const std::string suffix = IsBareName(slot.name) ? "" : ".weight";
    Put(slot.name + suffix, dtype, slot.shape, values);
    if (dtype != DType::kF8E4M3) return;
    SynthValues scales = values;
    scales.kind = SynthValues::Kind::kTileScales;
    Put(slot.name + ".scale", DType::kF8E8M0,
        {(slot.shape[0] + 31) / 32, (slot.shape[1] + 31) / 32}, scales);
  }

  void AddTable(const std::string& name, uint64_t rows, uint64_t width,
                uint32_t number) {
    SynthValues values;
    values.table = number;
    values.kind = SynthValues::Kind::kTableCodes;
    Put(name + ".weight", DType::kF8E4M3, {rows, width}, values);
    values.kind = SynthValues::Kind::kTableScales;
    Put(name + ".scale", DType::kF8E8M0, {rows, width / 32}, values);
  }

 private:
  void Put(std::string name, DType dtype, std::vector<uint64_t> shape,
           const SynthValues& values) {
    tensors_.push_back({std::move(name), dtype, std::move(shape), values});
  }

  void AddExperts(const TensorSlot& slot, const SynthValues& values) {
    const uint64_t rows = slot.shape[1], cols = slot.shape[2];
    SynthValues scales = values;
    scales.kind = SynthValues::Kind::kFp4Scales;
    for (size_t e = 0; e < slot.shape[0]; ++e) {
      const std::string name = slot.ExpertName(e);
      Put(name + ".weight", DType::kI8, {rows, cols / 2}, values);
      Put(name + ".scale", DType::kF8E8M0, {rows, cols / 32}, scales);
    }
  }

  std::vector<SynthTensor> tensors_;
};

}  // namespace

Result<SynthTypes> ParseSynthTypes(const std::string& name) {
  if (name == "released") {
    return SynthTypes{DType::kMXFP4, DType::kMXFP4,
                      "MXFP4 experts; Q8_0 attention/shared/head"};
  }
  if (name == "q8_0") {
    return SynthTypes{DType::kQ8_0, DType::kQ8_0,
                      "Q8_0 experts/attention/shared/head"};
  }
  if (name == "q4_k") {
    return SynthTypes{DType::kQ4_K, DType::kQ4_K,
                      "Q4_K gate/up/down; Q8_0 attention/shared/head"};
  }
  if (name == "q2") {
    return SynthTypes{DType::kIQ2_XXS, DType::kQ2_K,
                      "IQ2_XXS gate/up; Q2_K down; Q8_0 attention/shared/head"};
  }
  return InvalidArgument("--dtypes %s: expected released, q8_0, q4_k or q2",
                         Quoted(name).c_str());
}

Result<ModelSource> MakeSynthSource(const SynthShape& shape,
                                    const std::string& path) {
  ModelSource source;
  source.path = path;
  source.format = "safetensors";
  ECPHORY_ASSIGN_OR_RETURN(source.config,
                           ParseConfigJson(shape.config, "synthetic config"));
  const uint32_t vocab = source.config.vocab_size;
  ECPHORY_ASSIGN_OR_RETURN(source.tokenizer,
                           Tokenizer::FromData(SynthTokenizer(vocab), path));
  if (source.config.engram.enabled()) {
    source.token_map =
        SynthTokenMap(vocab, source.config.engram.compressed_vocab_size);
  }
  return source;
}

std::vector<SynthTensor> PlanSynthGguf(const ModelConfig& config,
                                       const SynthTypes& types) {
  Weights unfilled;
  std::vector<SynthTensor> tensors;
  for (const TensorSlot& slot : MakeTensorSlots(config, &unfilled)) {
    tensors.push_back({GgufTensorName(slot.name), GgufTypeOf(slot, types),
                       slot.shape, SynthScale(slot, config)});
  }
  const EngramConfig& e = config.engram;
  const uint64_t row_bytes = TableRowBytes(TableCodec::kRow264, e.head_dim);
  for (uint32_t i = 0; i < e.layer_ids.size(); ++i) {
    SynthValues values;
    values.kind = SynthValues::Kind::kTableRows;
    values.table = i;
    const std::string name = LayerTensor(e.layer_ids[i], "engram.embed");
    tensors.push_back(
        {GgufTensorName(name), DType::kI8, {e.rows[i], row_bytes}, values});
  }
  return tensors;
}

std::vector<SynthTensor> PlanSynthReleased(const ModelConfig& config) {
  Weights unfilled;
  ReleasedPlan plan;
  for (const TensorSlot& slot : MakeTensorSlots(config, &unfilled)) {
    plan.Add(slot, SynthScale(slot, config));
  }
  const EngramConfig& e = config.engram;
  for (uint32_t i = 0; i < e.layer_ids.size(); ++i) {
    plan.AddTable(LayerTensor(e.layer_ids[i], "engram.embed"), e.rows[i],
                  e.head_dim, i);
  }
  return std::move(plan).Take();
}

}  // namespace ecphory
