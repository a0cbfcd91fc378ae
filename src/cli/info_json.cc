#include "info_json.h"

#include "tensor_types.h"

namespace ecphory::cli {

namespace {

const char* RouterScoreName(RouterScoreKind kind) {
  switch (kind) {
    case RouterScoreKind::kSqrtSoftplus: return "sqrtsoftplus";
    case RouterScoreKind::kSigmoid: return "sigmoid";
    case RouterScoreKind::kSoftmax: return "softmax";
  }
  return "";
}

Json AttentionJson(const ModelConfig& c) {
  return Json{{"heads", c.n_heads},
              {"head_dim", c.head_dim},
              {"rope_dim", c.rope_dim},
              {"q_lora_rank", c.q_lora_rank},
              {"o_groups", c.o_groups},
              {"o_lora_rank", c.o_lora_rank},
              {"sliding_window", c.sliding_window},
              {"compress_ratios", c.compress_ratios},
              {"kv_source_layer_ids", c.kv_source_layer_ids},
              {"index_source_layer_ids", c.index_source_layer_ids},
              {"index_heads", c.index_n_heads},
              {"index_head_dim", c.index_head_dim},
              {"index_topk", c.index_topk}};
}

Json ExpertsJson(const ModelConfig& c) {
  return Json{{"routed", c.n_experts},
              {"per_token", c.n_experts_per_token},
              {"shared", c.n_shared_experts},
              {"width", c.expert_dim},
              {"score", RouterScoreName(c.router_score)},
              {"swiglu_limit", c.swiglu_limit}};
}

Json ConfigJson(const ModelConfig& c) {
  const bool single = c.hc_mode == HyperConnectionMode::kSinglePass;
  return Json{{"vocab_size", c.vocab_size},
              {"hidden_size", c.hidden_size},
              {"layers", c.n_layers},
              {"max_positions", c.max_positions},
              {"attention", AttentionJson(c)},
              {"experts", ExpertsJson(c)},
              {"hyper_connections",
               {{"streams", c.hc_mult},
                {"sinkhorn_iterations", c.hc_sinkhorn_iters},
                {"mode", single ? "single pass" : "per site"}}}};
}

Json TableJson(const EngramTableFacts& table) {
  Json json{{"layer", table.layer},         {"tensor", table.tensor},
            {"file", table.file},           {"offset", table.offset},
            {"codec", table.codec},         {"rows", table.rows},
            {"row_bytes", table.row_bytes}, {"bytes", table.bytes}};
  if (!table.scale_file.empty()) {
    json["scale_file"] = table.scale_file;
    json["scale_offset"] = table.scale_offset;
  }
  return json;
}

Json EngramJson(const ModelInfo& info) {
  const EngramConfig& e = info.config.engram;
  Json tables = Json::array();
  for (const auto& table : info.engram_tables) {
    tables.push_back(TableJson(table));
  }
  return Json{{"layers", e.layer_ids},
              {"max_ngram", e.max_ngram},
              {"heads", e.heads},
              {"head_dim", e.head_dim},
              {"compressed_vocab", info.compressed_vocab},
              {"tables", std::move(tables)}};
}

Json MemoryJson(const MemoryPlan& plan) {
  return Json{{"context", plan.context},
              {"chunk", plan.chunk},
              {"sequences", plan.sequences},
              {"threads", plan.threads},
              {"mapped_weights", plan.mapped_weights},
              {"copied_weights", plan.copied_weights},
              {"resident_weights", plan.resident_weights},
              {"names", plan.names},
              {"engram_tables", plan.engram_tables},
              {"engram_cache", plan.engram_cache},
              {"engram_reading", plan.engram_reading},
              {"state_fixed", plan.state_fixed},
              {"state_per_token", plan.state_per_token_exact},
              {"state_context", plan.state_context},
              {"scratch", plan.scratch},
              {"prefill_copy", plan.prefill_copy},
              {"operators", plan.operators},
              {"total_above_mapped", plan.Total()}};
}

Json TypesJson(const std::vector<TensorFacts>& tensors) {
  Json types = Json::object();
  for (const auto& [type, total] : TotalsByType(tensors)) {
    types[type] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  }
  return types;
}

Json UnusedJson(const std::vector<ModelInfo::UnusedGroup>& groups) {
  Json unused = Json::array();
  for (const ModelInfo::UnusedGroup& group : groups) {
    unused.push_back(Json{{"group", group.group},
                          {"tensors", group.tensors},
                          {"bytes", group.bytes}});
  }
  return unused;
}

Json TensorsJson(const std::vector<TensorFacts>& tensors) {
  Json list = Json::array();
  for (const TensorFacts& tensor : tensors) {
    list.push_back(Json{{"name", tensor.name},
                        {"dtype", tensor.dtype},
                        {"shape", tensor.shape},
                        {"file", tensor.file},
                        {"offset", tensor.offset},
                        {"bytes", tensor.bytes},
                        {"used", tensor.used}});
  }
  return list;
}

}  // namespace

Json InfoJson(const ModelInfo& info, bool list_tensors) {
  Json json{
      {"path", info.path},
      {"format", info.format},
      {"dialect", info.dialect},
      {"architecture", info.config.architecture},
      {"name", info.config.name},
      {"parameters",
       {{"backbone", info.parameters_backbone},
        {"active", info.parameters_active},
        {"engram", info.parameters_engram}}},
      {"config", ConfigJson(info.config)},
      {"tokenizer", info.has_tokenizer ? Json(info.tokenizer) : Json(nullptr)},
      {"engram", EngramJson(info)},
      {"memory", MemoryJson(info.memory)},
      {"tensor_types", TypesJson(info.tensors)},
      {"tensor_count", info.tensors.size()},
      {"unused", UnusedJson(info.unused)}};
  if (list_tensors) json["tensors"] = TensorsJson(info.tensors);
  return json;
}

Json DevicePlanJson(const DevicePlan& plan) {
  return Json{{"name", plan.device},
              {"total", plan.total},
              {"in_use_before", plan.in_use_before},
              {"in_use", plan.in_use},
              {"taken", plan.taken},
              {"weights", plan.weights},
              {"engram_tables", plan.engram_tables},
              {"state", plan.state},
              {"scratch", plan.scratch},
              {"operators", plan.operators},
              {"context", plan.context},
              {"chunk", plan.chunk},
              {"sequences", plan.sequences},
              {"needed", plan.Total()},
              {"fits", plan.fits()}};
}

}  // namespace ecphory::cli
