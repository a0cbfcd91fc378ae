// DeepSeek V4 Flash as a GGUF file of architecture deepseek4: its keys and its
// tensors. This engine does not run it; others do.
#include <utility>

#include "model/convert_metadata.h"
#include "model/synth_plan.h"
#include "model/synth_scale.h"

namespace ecphory {

namespace {

const std::string kPrefix = "deepseek4.";

constexpr uint32_t kLayers = 43;
constexpr uint32_t kVocab = 129280;
constexpr uint32_t kDim = 4096;
constexpr uint32_t kStreams = 4;
constexpr uint32_t kHeads = 64;
constexpr uint32_t kHeadDim = 512;
constexpr uint32_t kRopeDim = 64;
constexpr uint32_t kQueryRank = 1024;
constexpr uint32_t kOutRank = 1024;
constexpr uint32_t kOutGroups = 8;
constexpr uint32_t kIndexHeads = 64;
constexpr uint32_t kIndexDim = 128;
constexpr uint32_t kExperts = 256;
constexpr uint32_t kChosen = 6;
constexpr uint32_t kExpertDim = 2048;
constexpr uint32_t kHashLayers = 3;  // these choose experts by token id
constexpr uint32_t kCsaRatio = 4;    // overlapping groups, with an indexer
constexpr uint32_t kHcaRatio = 128;

// Windows only, then the two kinds of compression in turn.
uint32_t RatioOf(uint32_t layer) {
  if (layer < 2) return 0;
  return layer % 2 == 0 ? kCsaRatio : kHcaRatio;
}

std::vector<uint32_t> Ratios(const SynthV4& shape) {
  std::vector<uint32_t> ratios;
  for (const uint32_t layer : shape.layers) ratios.push_back(RatioOf(layer));
  return ratios;
}

// Those kept of the first layers, which are the first of what is kept.
uint32_t HashLayers(const SynthV4& shape) {
  uint32_t count = 0;
  for (const uint32_t layer : shape.layers) count += layer < kHashLayers;
  return count;
}

class Plan {
 public:
  Plan(const SynthV4& shape, const SynthTypes& types)
      : shape_(shape), types_(types) {}

  std::vector<SynthTensor> Take() && { return std::move(tensors_); }

  void AddModel() {
    Put("token_embd.weight", DType::kF16, {kVocab, kDim}, SynthNumbers(1));
    Norm("output_norm.weight", kDim);
    Put("output.weight", DType::kQ8_0, {kVocab, kDim}, SynthMatrix(kDim, 2));
    SynthValues base = SynthMixBase(kStreams);
    base.mean.assign(kStreams, 0);
    Put("output_hc_base.weight", DType::kF32, {kStreams}, base);
    Small("output_hc_fn.weight", kStreams, kStreams * kDim);
    Put("output_hc_scale.weight", DType::kF32, {1}, SynthMixScale());
  }

  void AddLayer(uint32_t index) {
    prefix_ = "blk." + std::to_string(index) + ".";
    const uint32_t layer = shape_.layers[index];
    AddMix("hc_attn");
    Norm("attn_norm.weight", kDim);
    AddMix("hc_ffn");
    Norm("ffn_norm.weight", kDim);
    AddAttention();
    if (RatioOf(layer) != 0) AddCompressor(RatioOf(layer));
    if (RatioOf(layer) == kCsaRatio) AddIndexer();
    AddExperts(layer < kHashLayers);
  }

 private:
  void Put(const std::string& name, DType dtype, std::vector<uint64_t> shape,
           const SynthValues& values) {
    tensors_.push_back({prefix_ + name, dtype, std::move(shape), values});
  }
  void Norm(const std::string& name, uint64_t dim) {
    Put(name, DType::kF32, {dim}, SynthNorm());
  }
  void Small(const std::string& name, uint64_t rows, uint64_t cols) {
    Put(name, DType::kF16, {rows, cols}, SynthMatrix(cols));
  }
  void Dense(const std::string& name, uint64_t rows, uint64_t cols) {
    Put(name, DType::kQ8_0, {rows, cols}, SynthMatrix(cols));
  }

  void AddMix(const std::string& site) {
    constexpr uint32_t kOutputs = (2 + kStreams) * kStreams;
    Small(site + "_fn.weight", kOutputs, kStreams * kDim);
    Put(site + "_base.weight", DType::kF32, {kOutputs}, SynthMixBase(kStreams));
    Put(site + "_scale.weight", DType::kF32, {3}, SynthMixScale());
  }

  void AddAttention() {
    Put("attn_sinks.weight", DType::kF32, {kHeads}, SynthNumbers(1));
    Dense("attn_q_a.weight", kQueryRank, kDim);
    Dense("attn_q_b.weight", kHeads * kHeadDim, kQueryRank);
    Norm("attn_q_a_norm.weight", kQueryRank);
    Dense("attn_kv.weight", kHeadDim, kDim);
    Norm("attn_kv_a_norm.weight", kHeadDim);
    Dense("attn_output_a.weight", kOutGroups * kOutRank,
          kHeads * kHeadDim / kOutGroups);
    Dense("attn_output_b.weight", kDim, kOutGroups * kOutRank);
  }

  // Overlapping groups need two halves of everything.
  void AddPool(const std::string& name, uint32_t ratio, uint32_t width) {
    const uint64_t wide = uint64_t{ratio == kCsaRatio ? 2u : 1u} * width;
    Put(name + "_ape.weight", DType::kF16, {ratio, wide}, SynthNumbers(0.5));
    Small(name + "_kv.weight", wide, kDim);
    Small(name + "_gate.weight", wide, kDim);
    Norm(name + "_norm.weight", width);
  }
  void AddCompressor(uint32_t ratio) {
    AddPool("attn_compressor", ratio, kHeadDim);
  }
  void AddIndexer() {
    Small("indexer.attn_q_b.weight", kIndexHeads * kIndexDim, kQueryRank);
    Small("indexer.proj.weight", kIndexHeads, kDim);
    AddPool("indexer_compressor", kCsaRatio, kIndexDim);
  }

  void AddExperts(bool by_token) {
    const uint64_t experts = shape_.experts;
    Small("ffn_gate_inp.weight", experts, kDim);
    if (by_token) {
      SynthValues ids;
      ids.kind = SynthValues::Kind::kExpertIds;
      ids.limit = shape_.experts;
      Put("ffn_gate_tid2eid.weight", DType::kI32, {kVocab, kChosen}, ids);
    } else {
      Put("exp_probs_b.bias", DType::kF32, {experts}, SynthNumbers(0.02));
    }
    for (const char* part : {"gate", "up", "down"}) {
      const bool down = std::string(part) == "down";
      const uint64_t rows = down ? kDim : kExpertDim;
      const uint64_t cols = down ? kExpertDim : kDim;
      const std::string name = std::string("ffn_") + part;
      Dense(name + "_shexp.weight", rows, cols);
      Put(name + "_exps.weight", down ? types_.down : types_.gate_up,
          {experts, rows, cols}, SynthMatrix(cols));
    }
  }

  const SynthV4& shape_;
  const SynthTypes& types_;
  std::string prefix_;
  std::vector<SynthTensor> tensors_;
};

void AddSizes(const SynthV4& shape, GgufWriter* w) {
  const std::pair<const char*, uint32_t> sizes[] = {
      {"block_count", static_cast<uint32_t>(shape.layers.size())},
      {"context_length", 1048576},
      {"embedding_length", kDim},
      {"vocab_size", kVocab},
      {"attention.head_count", kHeads},
      {"attention.head_count_kv", 1},
      {"attention.key_length", kHeadDim},
      {"attention.value_length", kHeadDim},
      {"attention.q_lora_rank", kQueryRank},
      {"attention.output_lora_rank", kOutRank},
      {"attention.output_group_count", kOutGroups},
      {"attention.sliding_window", 128},
      {"attention.indexer.head_count", kIndexHeads},
      {"attention.indexer.key_length", kIndexDim},
      {"attention.indexer.top_k", 512},
      {"rope.dimension_count", kRopeDim},
      {"expert_count", shape.experts},
      {"expert_used_count", kChosen},
      {"expert_feed_forward_length", kExpertDim},
      {"expert_shared_count", 1},
      {"expert_group_count", 0},
      {"expert_group_used_count", 0},
      {"hash_layer_count", HashLayers(shape)},
      {"hyper_connection.count", kStreams},
      {"hyper_connection.sinkhorn_iterations", 20}};
  for (const auto& [key, value] : sizes) w->AddUint32(kPrefix + key, value);
}

void AddNumbers(const SynthV4& shape, GgufWriter* w) {
  const std::pair<const char*, float> numbers[] = {
      {"hyper_connection.epsilon", 1e-6f},
      {"attention.layer_norm_rms_epsilon", 1e-6f},
      {"attention.compress_rope_freq_base", 160000},
      {"rope.freq_base", 10000},
      {"rope.scaling.factor", 16},
      {"rope.scaling.yarn_beta_fast", 32},
      {"rope.scaling.yarn_beta_slow", 1},
      {"expert_weights_scale", 1.5f}};
  for (const auto& [key, value] : numbers) w->AddFloat32(kPrefix + key, value);
  w->AddUint64(kPrefix + "rope.scaling.original_context_length", 65536);
  w->AddBool(kPrefix + "expert_weights_norm", true);
  w->AddUint32Array(kPrefix + "attention.compress_ratios", Ratios(shape));
  w->AddFloat32Array(kPrefix + "swiglu_clamp_exp",
                     std::vector<float>(shape.layers.size(), 10));
}

}  // namespace

Result<SynthV4> MakeSynthV4(const SynthCut& cut) {
  ECPHORY_RETURN_IF_ERROR(CheckSynthLayers("v4-flash", cut.layers, kLayers));
  if (cut.engram_rows != 0) {
    return InvalidArgument("--engram-rows: DeepSeek V4 has no Engram memory");
  }
  if (cut.experts != 0 && (cut.experts < kChosen || cut.experts > kExperts)) {
    return InvalidArgument(
        "--experts %u: expected %u (those of a token) to %u (the preset's)",
        cut.experts, kChosen, kExperts);
  }
  SynthV4 shape;
  shape.name = "DeepSeek V4 Flash, random weights";
  // One of each compression, one of them choosing experts by token; a window.
  shape.layers =
      KeptLayers(kLayers, cut.layers == 0 ? kLayers : cut.layers, {2, 3, 0});
  shape.experts = cut.experts == 0 ? kExperts : cut.experts;
  return shape;
}

std::vector<SynthTensor> PlanSynthV4(const SynthV4& shape,
                                     const SynthTypes& types) {
  Plan plan(shape, types);
  plan.AddModel();
  for (uint32_t i = 0; i < shape.layers.size(); ++i) plan.AddLayer(i);
  return std::move(plan).Take();
}

Status AddSynthV4Keys(const SynthV4& shape, const SynthTypes& types,
                      GgufWriter* writer) {
  writer->AddString("general.architecture", "deepseek4");
  writer->AddString("general.name", shape.name);
  AddSizes(shape, writer);
  AddNumbers(shape, writer);
  writer->AddString(kPrefix + "quantization", types.description);
  ECPHORY_ASSIGN_OR_RETURN(
      const Tokenizer tokenizer,
      Tokenizer::FromData(SynthTokenizer(kVocab), shape.name));
  AddTokenizerKeys(tokenizer, writer);
  writer->AddUint32("tokenizer.ggml.bos_token_id", 0);
  writer->AddUint32("tokenizer.ggml.eos_token_id", 1);
  return {};
}

}  // namespace ecphory
