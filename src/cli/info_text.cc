#include "info_text.h"

#include "output.h"
#include "sizes.h"
#include "tensor_types.h"

namespace ecphory::cli {

namespace {

std::string Line(const char* label, const std::string& value) {
  return Format("  %-18s %s\n", label, value.c_str());
}

// "39.2 MB (39,214,080 bytes)".
std::string Bytes(uint64_t bytes) {
  return Format("%s (%s bytes)", HumanBytes(bytes).c_str(),
                Grouped(bytes).c_str());
}

template <typename T>
std::string Join(const std::vector<T>& values, const char* separator = " ") {
  std::string text;
  for (const T& value : values) {
    text += (text.empty() ? "" : separator) + std::to_string(value);
  }
  return text.empty() ? "none" : text;
}

std::string ModelSection(const ModelInfo& info) {
  const std::string dialect =
      info.dialect.empty() ? "" : ", " + info.dialect + " names";
  std::string text = info.path + "\n";
  text += Line("format", info.format + dialect);
  text += Line("architecture", info.config.architecture);
  if (!info.config.name.empty()) text += Line("name", info.config.name);
  text +=
      Line("parameters", HumanCount(info.parameters_backbone) + " backbone (" +
                             HumanCount(info.parameters_active) +
                             " active per token) + " +
                             HumanCount(info.parameters_engram) + " Engram");
  text += Line("tokenizer", info.has_tokenizer ? info.tokenizer : "none");
  return text;
}

std::string ShapeSection(const ModelConfig& c) {
  std::string text = "\nsizes\n";
  text += Line("layers", Format("%u, width %u, %u residual streams", c.n_layers,
                                c.hidden_size, c.hc_mult));
  text += Line("vocabulary", Format("%u tokens", c.vocab_size));
  text += Line("context", Format("at most %u tokens", c.max_positions));
  text += Line("attention", Format("%u heads of %u, window %u", c.n_heads,
                                   c.head_dim, c.sliding_window));
  text += Line("compression",
               "ratio by layer: " + Join(c.compress_ratios) +
                   "; KV sources: " + Join(c.kv_source_layer_ids) +
                   "; index sources: " + Join(c.index_source_layer_ids));
  text += Line("experts", Format("%u routed of width %u, %u per token, %u "
                                 "shared",
                                 c.n_experts, c.expert_dim,
                                 c.n_experts_per_token, c.n_shared_experts));
  return text;
}

std::string TableLine(const EngramTableFacts& table) {
  std::string text = Format(
      "  layer %u: %s rows of %llu bytes, %s, %s\n      %s at %s offset %llu\n",
      table.layer, Grouped(table.rows).c_str(),
      static_cast<unsigned long long>(table.row_bytes), table.codec.c_str(),
      Bytes(table.bytes).c_str(), table.tensor.c_str(), table.file.c_str(),
      static_cast<unsigned long long>(table.offset));
  if (!table.scale_file.empty()) {
    text += Format("      scales at %s offset %llu\n", table.scale_file.c_str(),
                   static_cast<unsigned long long>(table.scale_offset));
  }
  return text;
}

std::string EngramSection(const ModelInfo& info) {
  const EngramConfig& e = info.config.engram;
  if (!e.enabled()) return "\nEngram memory: none\n";
  std::string text = "\nEngram memory (never mapped)\n";
  text += Line("lookup", Format("n-grams of 2 to %u tokens, %u rows each, %u "
                                "rows of %u values per token and layer",
                                e.max_ngram, e.heads, e.columns(), e.head_dim));
  text += Line("compressed ids", Grouped(info.compressed_vocab));
  for (const auto& table : info.engram_tables) text += TableLine(table);
  return text;
}

// "4096 tokens in chunks of 256", of so many sequences where there are several.
std::string PlannedFor(uint32_t context, uint32_t chunk, uint32_t sequences) {
  return (sequences > 1 ? Format("%u sequences of ", sequences) : "") +
         Format("%u tokens in chunks of %u", context, chunk);
}

const char* OfEach(uint32_t sequences) {
  return sequences > 1 ? " for each sequence" : "";
}

std::string MemorySection(const MemoryPlan& plan) {
  std::string text = "\nmemory for " +
                     PlannedFor(plan.context, plan.chunk, plan.sequences) +
                     "\n";
  text += plan.copied_weights == 0
              ? Line("mapped weights",
                     Bytes(plan.mapped_weights) + ", file pages, evictable")
              : Line("copied weights", Bytes(plan.copied_weights));
  text += Line("resident weights", Bytes(plan.resident_weights));
  text += Line("names, tokenizer", Bytes(plan.names));
  if (plan.engram_tables > 0) {
    text += Line("Engram tables", Bytes(plan.engram_tables));
  }
  if (plan.engram_reading > 0) {
    text += Line("reads in flight", Bytes(plan.engram_reading));
  }
  if (plan.engram_cache > 0) {
    text += Line("kept Engram rows",
                 Bytes(plan.engram_cache) +
                     " at most; none where the page cache holds the tables");
  }
  text += Line("state", Bytes(plan.state_context) + OfEach(plan.sequences) +
                            ": " + HumanBytes(plan.state_fixed) + " fixed, " +
                            Format("%g", plan.state_per_token_exact) +
                            " bytes a token");
  text += Line("scratch", Bytes(plan.scratch));
  if (plan.prefill_copy > 0) {
    text += Line("prefill copy",
                 Bytes(plan.prefill_copy) + ", while a prompt skips layers");
  }
  text += Line("operators",
               Bytes(plan.operators) + Format(" on %u thread%s", plan.threads,
                                              plan.threads == 1 ? "" : "s"));
  text += Line("total", Bytes(plan.Total()) + (plan.copied_weights == 0
                                                   ? " above the mapped weights"
                                                   : ""));
  return text;
}

std::string TypesSection(const std::vector<TensorFacts>& tensors) {
  std::string text = Format("\ntensors: %zu\n", tensors.size());
  for (const auto& [type, total] : TotalsByType(tensors)) {
    text +=
        Line(type.c_str(), Grouped(total.tensors) + ", " + Bytes(total.bytes));
  }
  return text;
}

std::string UnusedSection(const std::vector<ModelInfo::UnusedGroup>& groups) {
  std::string text;
  for (const ModelInfo::UnusedGroup& group : groups) {
    text += Line(group.group.c_str(),
                 Grouped(group.tensors) + " tensors, " + Bytes(group.bytes));
  }
  return text.empty() ? "" : "\nnot used by this engine\n" + text;
}

std::string TensorList(const std::vector<TensorFacts>& tensors) {
  std::string text = "\n";
  for (const TensorFacts& tensor : tensors) {
    text += Format("%s %s [%s] %s offset %llu, %llu bytes%s\n",
                   tensor.name.c_str(), tensor.dtype.c_str(),
                   Join(tensor.shape, ", ").c_str(), tensor.file.c_str(),
                   static_cast<unsigned long long>(tensor.offset),
                   static_cast<unsigned long long>(tensor.bytes),
                   tensor.used ? "" : ", not used");
  }
  return text;
}

}  // namespace

std::string InfoText(const ModelInfo& info, bool list_tensors) {
  return ModelSection(info) + ShapeSection(info.config) + EngramSection(info) +
         MemorySection(info.memory) + TypesSection(info.tensors) +
         UnusedSection(info.unused) +
         (list_tensors ? TensorList(info.tensors) : "");
}

std::string DevicePlanText(const DevicePlan& plan) {
  std::string text = "\nmemory of " + plan.device + ", for " +
                     PlannedFor(plan.context, plan.chunk, plan.sequences) +
                     "\n";
  text += Line("weights", Bytes(plan.weights));
  if (plan.engram_tables > 0) {
    text += Line("Engram tables", Bytes(plan.engram_tables));
  }
  text += Line("state", Bytes(plan.state) + OfEach(plan.sequences));
  text += Line("scratch", Bytes(plan.scratch));
  text += Line("operators", Bytes(plan.operators));
  text += Line("total", Bytes(plan.Total()));
  text += Line("in use before", Bytes(plan.in_use_before) +
                                    ": the CUDA context, and other programs");
  text += Line("free", Bytes(plan.total - plan.in_use_before) + " of " +
                           HumanBytes(plan.total) +
                           (plan.fits() ? "" : ": TOO LITTLE"));
  return text;
}

}  // namespace ecphory::cli
