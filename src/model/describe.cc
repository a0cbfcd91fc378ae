// ModelInfo: what `ecphory info` prints, from headers alone.
#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include "base/heap.h"
#include "ecphory/model.h"
#include "engram/config.h"
#include "model/engram_source.h"
#include "model/memory_plan.h"
#include "model/planned_model.h"
#include "model/stored_tensor.h"
#include "model/tensor_slots.h"

namespace ecphory {

namespace {

using TensorSet = std::unordered_set<const TensorInfo*>;

// The tensors behind one slot.
Result<std::vector<const TensorInfo*>> TensorsOf(const ModelSource& source,
                                                 const TensorSlot& slot) {
  std::vector<const TensorInfo*> tensors;
  if (slot.role == TensorRole::kVector) {
    ECPHORY_ASSIGN_OR_RETURN(const TensorInfo* vector,
                             FindVector(source, slot));
    if (vector != nullptr) tensors.push_back(vector);
    return tensors;
  }
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<StoredMatrix> matrices,
                           FindMatrices(source, slot));
  for (const StoredMatrix& matrix : matrices) {
    tensors.push_back(matrix.data);
    if (matrix.scales != nullptr) tensors.push_back(matrix.scales);
  }
  return tensors;
}

Result<TensorSet> UsedTensors(const ModelSource& source,
                              const std::vector<TensorSlot>& slots) {
  TensorSet used;
  for (const TensorSlot& slot : slots) {
    ECPHORY_ASSIGN_OR_RETURN(const std::vector<const TensorInfo*> tensors,
                             TensorsOf(source, slot));
    used.insert(tensors.begin(), tensors.end());
  }
  for (const TensorInfo* table : EngramTableTensors(source)) used.insert(table);
  return used;
}

TensorFacts FactsOf(const ModelSource& source, const TensorInfo& tensor,
                    bool used) {
  return {.name = tensor.name,
          .dtype = DTypeName(tensor.dtype),
          .shape = tensor.shape,
          .file = source.index.files()[tensor.file].path,
          .offset = tensor.offset,
          .bytes = tensor.bytes,
          .used = used};
}

// Parts of the release that this engine has no use for, by their prefix.
std::string UnusedGroupOf(const std::string& name) {
  for (const char* prefix : {"mtp.", "vision.", "aligner.", "image_"}) {
    if (name.rfind(prefix, 0) == 0) return std::string(prefix) + "*";
  }
  return "other";
}

std::vector<ModelInfo::UnusedGroup> GroupUnused(
    const std::vector<TensorFacts>& tensors) {
  std::map<std::string, ModelInfo::UnusedGroup> groups;
  for (const TensorFacts& tensor : tensors) {
    if (tensor.used) continue;
    ModelInfo::UnusedGroup& group = groups[UnusedGroupOf(tensor.name)];
    group.tensors += 1;
    group.bytes += tensor.bytes;
  }
  std::vector<ModelInfo::UnusedGroup> list;
  for (auto& [name, group] : groups) {
    group.group = name;
    list.push_back(std::move(group));
  }
  return list;
}

// Of the input embedding a token uses one row, of the routed experts its few.
uint64_t ActiveValues(const ModelConfig& c, const TensorSlot& slot) {
  switch (slot.role) {
    case TensorRole::kEmbedding: return c.hidden_size;
    case TensorRole::kExperts:
      return slot.ValueCount() / c.n_experts * c.n_experts_per_token;
    default: return slot.ValueCount();
  }
}

void CountParameters(const std::vector<TensorSlot>& slots, ModelInfo* info) {
  const ModelConfig& c = info->config;
  for (const TensorSlot& slot : slots) {
    const bool engram = slot.name.find(".engram.") != std::string::npos;
    (engram ? info->parameters_engram : info->parameters_backbone) +=
        slot.ValueCount();
    info->parameters_active += ActiveValues(c, slot);
  }
  for (const uint64_t rows : c.engram.rows) {
    info->parameters_engram += rows * c.engram.head_dim;
  }
}

Result<EngramTableFacts> TableFacts(const ModelSource& source, size_t index) {
  ECPHORY_ASSIGN_OR_RETURN(const StoredTable table, FindTable(source, index));
  const auto& files = source.index.files();
  EngramTableFacts facts;
  facts.layer = source.config.engram.layer_ids[index];
  facts.tensor = table.data->name;
  facts.file = files[table.data->file].path;
  facts.offset = table.data->offset;
  facts.codec = engram::RowEncodingName(table.codec, table.width);
  facts.rows = table.rows;
  facts.row_bytes = TableRowBytes(table.codec, table.width) +
                    TableScaleBytes(table.codec, table.width);
  facts.bytes = table.data->bytes;
  if (table.scales != nullptr) {
    facts.bytes += table.scales->bytes;
    facts.scale_file = files[table.scales->file].path;
    facts.scale_offset = table.scales->offset;
  }
  return facts;
}

void DescribeTokenizer(const Tokenizer& tokenizer, ModelInfo* info) {
  const TokenizerData& data = tokenizer.data();
  info->has_tokenizer = true;
  info->tokenizer = "byte-level BPE, " +
                    std::to_string(tokenizer.vocab_size()) + " tokens, " +
                    std::to_string(data.merges.size()) + " merges, " +
                    std::to_string(data.added.size()) + " added tokens";
}

// Matrices stay in the mapped files or are copied from them, vectors are copied
// as fp32.
void PlanWeights(const std::vector<TensorSlot>& slots, bool copy,
                 ModelInfo* info) {
  uint64_t tables = 0;
  for (const EngramTableFacts& table : info->engram_tables) {
    tables += table.bytes;
  }
  for (const TensorFacts& tensor : info->tensors) {
    if (tensor.used) info->memory.mapped_weights += tensor.bytes;
  }
  info->memory.mapped_weights -= tables;
  if (copy) {
    std::swap(info->memory.mapped_weights, info->memory.copied_weights);
  }
  const ModelConfig& c = info->config;
  info->memory.resident_weights =
      uint64_t{c.n_layers} *
      (sizeof(LayerWeights) + c.n_experts * sizeof(Expert));
  for (const TensorSlot& slot : slots) {
    if (slot.role != TensorRole::kVector) continue;
    info->memory.resident_weights += slot.ValueCount() * sizeof(float);
  }
}

}  // namespace

Result<ModelInfo> DescribeModel(const ModelSource& source,
                                const SessionOptions& session,
                                const ModelOptions& options,
                                uint32_t sequences) {
  ModelInfo info;
  info.path = source.path;
  info.format = source.format;
  info.dialect = source.dialect;
  info.config = source.config;
  Weights unfilled;
  const std::vector<TensorSlot> slots =
      MakeTensorSlots(source.config, &unfilled);
  ECPHORY_ASSIGN_OR_RETURN(const TensorSet used, UsedTensors(source, slots));
  for (const TensorInfo& tensor : source.index.tensors()) {
    info.tensors.push_back(FactsOf(source, tensor, used.count(&tensor) != 0));
  }
  info.unused = GroupUnused(info.tensors);
  CountParameters(slots, &info);
  for (size_t i = 0; i < source.config.engram.layer_ids.size(); ++i) {
    ECPHORY_ASSIGN_OR_RETURN(EngramTableFacts facts, TableFacts(source, i));
    info.engram_tables.push_back(std::move(facts));
  }
  if (source.tokenizer) DescribeTokenizer(*source.tokenizer, &info);
  info.compressed_vocab = source.config.engram.compressed_vocab_size;
  ECPHORY_ASSIGN_OR_RETURN(const PlannedModel planned,
                           PlanModel(source, options));
  info.memory = PlanMemory(source.config, session, planned, sequences);
  PlanWeights(slots, options.weights == "copy", &info);
  if (source.config.engram.enabled() &&
      planned.engram_place == EngramPlace::kDisk) {
    info.memory.engram_reading = uint64_t{options.engram_queue_depth} * 4096;
    info.memory.engram_cache =
        options.engram_cache_bytes.value_or(engram::kDefaultCacheBytes);
  }
  return info;
}

Result<ModelInfo> InspectModel(const std::string& path, uint32_t context,
                               uint32_t chunk, const ModelOptions& options,
                               uint32_t sequences) {
  const uint64_t heap_before = HeapInUse();
  ECPHORY_ASSIGN_OR_RETURN(const ModelSource source, OpenModelSource(path));
  if (context > source.config.max_positions) {
    return InvalidArgument("context of %u tokens: the model's maximum is %u",
                           context, source.config.max_positions);
  }
  SessionOptions session;
  session.context = context;
  if (chunk != 0) session.chunk = chunk;
  ECPHORY_ASSIGN_OR_RETURN(ModelInfo info,
                           DescribeModel(source, session, options, sequences));
  const uint64_t heap_after = HeapInUse();
  info.memory.names = heap_after - std::min(heap_before, heap_after);
  return info;
}

}  // namespace ecphory
