#include "model/planned_model.h"

#include <algorithm>

#include "model/compute_threads.h"
#include "model/engram_source.h"
#include "model/stored_tensor.h"
#include "model/tensor_slots.h"

namespace ecphory {

namespace {

bool Holds(const std::string& name, const char* part) {
  return name.find(part) != std::string::npos;
}

void AddOnce(const ScratchProduct& product, std::vector<ScratchProduct>* list) {
  const auto same = [&](const ScratchProduct& p) {
    return p.format == product.format && p.rows == product.rows &&
           p.cols == product.cols;
  };
  if (std::none_of(list->begin(), list->end(), same)) list->push_back(product);
}

void AddOnce(const ScratchExperts& experts, std::vector<ScratchExperts>* list) {
  const auto same = [&](const ScratchExperts& e) {
    return e.up == experts.up && e.down == experts.down &&
           e.experts == experts.experts && e.topk == experts.topk &&
           e.inner == experts.inner;
  };
  if (std::none_of(list->begin(), list->end(), same)) list->push_back(experts);
}

class Planner {
 public:
  Planner(const ModelConfig& config, PlannedModel* model)
      : config_(config), model_(model) {}

  void Add(const TensorSlot& slot, const StoredMatrix& matrix) {
    if (slot.role == TensorRole::kExperts) {
      return AddExpert(slot.name, matrix,
                       {.experts = config_.n_experts,
                        .topk = config_.n_experts_per_token,
                        .inner = config_.expert_dim});
    }
    if (Holds(slot.name, ".shared_experts.")) {
      return AddExpert(
          slot.name, matrix,
          {.experts = 1,
           .topk = 1,
           .inner = size_t{config_.n_shared_experts} * config_.expert_dim});
    }
    if (slot.role == TensorRole::kEmbedding) return;
    // Streams are mixed by an operator of their own.
    if (Holds(slot.name, "hc_")) {
      model_->streams = matrix.format;
      return;
    }
    const ScratchProduct product{.format = matrix.format,
                                 .rows = static_cast<size_t>(matrix.rows),
                                 .cols = static_cast<size_t>(matrix.cols)};
    if (slot.name == "head") return AddOnce(product, &model_->head);
    AddOnce(product,
            Holds(slot.name, ".engram.") ? &model_->engram : &model_->products);
  }

 private:
  // Projections come in the order w1, w3, w2 of shared and routed in turn.
  void AddExpert(const std::string& name, const StoredMatrix& matrix,
                 ScratchExperts experts) {
    WeightFormat& up = experts.experts == 1 ? shared_up_ : routed_up_;
    if (name.ends_with("w1")) up = matrix.format;
    if (!name.ends_with("w2")) return;
    experts.up = up;
    experts.down = matrix.format;
    AddOnce(experts, &model_->experts);
  }

  const ModelConfig& config_;
  PlannedModel* model_;
  WeightFormat shared_up_ = WeightFormat::kF32;
  WeightFormat routed_up_ = WeightFormat::kF32;
};

}  // namespace

Result<PlannedModel> PlanModel(const ModelSource& source,
                               const ModelOptions& options) {
  PlannedModel model;
  ECPHORY_ASSIGN_OR_RETURN(const ComputeThreads threads,
                           ChooseThreads(options));
  model.threads = static_cast<uint32_t>(threads.count);
  model.keeps_scratch = options.backend != "ref";
  Planner planner(source.config, &model);
  Weights unfilled;
  for (const TensorSlot& slot : MakeTensorSlots(source.config, &unfilled)) {
    if (slot.role == TensorRole::kVector) continue;
    ECPHORY_ASSIGN_OR_RETURN(const std::vector<StoredMatrix> stored,
                             FindMatrices(source, slot));
    planner.Add(slot, stored.front());
  }
  ECPHORY_ASSIGN_OR_RETURN(model.engram_place, FindEngramPlace(options));
  for (size_t i = 0; i < source.config.engram.layer_ids.size(); ++i) {
    ECPHORY_ASSIGN_OR_RETURN(const StoredTable table, FindTable(source, i));
    const uint64_t bytes = TableRowBytes(table.codec, table.width) +
                           TableScaleBytes(table.codec, table.width);
    model.engram_row_bytes += bytes;
    model.engram_table_bytes += table.rows * bytes;
  }
  return model;
}

}  // namespace ecphory
