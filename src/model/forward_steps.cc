// The steps that forward.cc names: planning, Engram rows, experts, output.
#include <algorithm>
#include <string>

#include "model/forward.h"
#include "model/matmul_inputs.h"
#include "model/prefill.h"

namespace ecphory {

namespace {

HyperConnections::Shape StreamShape(const ModelConfig& config,
                                    const SessionOptions& options) {
  return {.streams = config.hc_mult,
          .dim = config.hidden_size,
          .norm_eps = config.rms_norm_eps,
          .hc_eps = config.hc_eps,
          .sinkhorn_iters = config.hc_sinkhorn_iters,
          .mode = config.hc_mode,
          .sigmoid = SigmoidForm::kTanh,
          .format = HyperConnections::FormatFor(options.activations)};
}

}  // namespace

Forward::Forward(const ForwardModel& model, const SessionOptions& options,
                 size_t sequences)
    : model_(model),
      config_(*model.config),
      ops_(*model.ops),
      pool_(*model.pool),
      options_(options),
      sequences_(sequences),
      projected_(InputOf(options.activations)),
      streams_(StreamShape(config_, options), ops_, pool_) {}

Forward::~Forward() { DropAhead(); }

Result<std::unique_ptr<Forward>> Forward::Create(const ForwardModel& model,
                                                 const SessionOptions& options,
                                                 size_t sequences) {
  std::unique_ptr<Forward> forward(new Forward(model, options, sequences));
  const Status status = forward->Allocate();
  if (status.ok()) return forward;
  return Status(status.code(),
                "scratch for passes of " + std::to_string(options.chunk) +
                    " tokens: " + status.message() + "; use a smaller chunk");
}

Status Forward::Allocate() {
  Device& device = *model_.device;
  ECPHORY_RETURN_IF_ERROR(
      ForwardScratch::Allocate(config_, options_, sequences_, device));
  ECPHORY_RETURN_IF_ERROR(streams_.Allocate(options_.chunk, device));
  ECPHORY_ASSIGN_OR_RETURN(queue_, device.NewQueue());
  ECPHORY_RETURN_IF_ERROR(AllocateSteps());
  if (!config_.engram.enabled() || !options_.engram) return {};
  ECPHORY_ASSIGN_OR_RETURN(
      engram_, EngramFetch::Create(*model_.hasher, *model_.store, model_.tables,
                                   options_.chunk, device, pool_));
  ECPHORY_ASSIGN_OR_RETURN(engram_broken_, DeviceArray<uint32_t>::Allocate(
                                               device, 1, MemoryKind::kShared));
  return {};
}

Status Forward::Reserve(const ScratchShape& shape) {
  const Queue::Scope scope(*queue_);
  return queue_->Reserve(shape).WithContext("scratch of operators");
}

// --- The device -------------------------------------------------------------

// Whatever happens, nothing of the chunk is under way any more afterwards, and
// nothing but the step that was begun behind it: the host may write its inputs
// again. `begun`: the chunk is the step that was begun ahead.
Status Forward::RunOnDevice(bool begun) {
  const Queue::Scope scope(*queue_);
  if (begun) Follow(std::exchange(ahead_, nullptr));
  const bool replayed = begun || ReplayStep();
  if (!replayed) WriteInputs(OwnInputs());
  // Rows depend on token ids alone: ask before the first layer runs. A step
  // that waits for them by itself need not wait for the asking.
  Status status;
  if (begun) {
    status = ahead_rows_;
  } else {
    status = BeginEngram();
    if (replayed) status = HandOverRows(*replayed_, status);
  }
  if (!replayed && status.ok()) status = RunOperators(OwnInputs());
  Step* const next = status.ok() && IsStep() ? RecordNextStep() : nullptr;
  if (status.ok()) status = DrawInPass();
  const bool ahead = status.ok() && next != nullptr && BeginStep(next);
  const Status finished = ahead ? queue_->FinishMilestone() : queue_->Finish();
  if (status.ok()) status = finished;
  if (status.ok() && replayed && !ReplayedWithRows()) status = RunAgain();
  return status.ok() ? CheckRows() : status;
}

Status Forward::RunOperators(const HostInputs& inputs) {
  SendInputs(inputs);
  return RunLayers();
}

// A step that went on without its rows, which have come since.
Status Forward::RunAgain() {
  DropAhead();
  for (const Segment& s : segments_) {
    s.state->published_keys = s.published_keys;
  }
  if (engram_) *engram_broken_.data() = 0;
  WriteInputs(OwnInputs());
  Status status = RunOperators(OwnInputs());
  if (status.ok()) status = DrawInPass();
  const Status finished = queue_->Finish();
  return status.ok() ? finished : status;
}

// Of passes that are not recorded.
Forward::HostInputs Forward::OwnInputs() {
  return {ids_.host(), image_.host(), positions_.host(),
          group_positions_.host()};
}

void Forward::WriteInputs(const HostInputs& to) {
  WriteTokens(to);
  WritePositions(to);
}

void Forward::WriteTokens(const HostInputs& to) {
  std::copy(chunk_->tokens.begin(), chunk_->tokens.end(), to.ids);
  std::copy(chunk_->image.begin(), chunk_->image.end(), to.image);
}

void Forward::WritePositions(const HostInputs& to) {
  int64_t* position = to.positions;
  for (const Segment& s : segments_) {
    for (size_t t = 0; t < s.tokens; ++t) {
      *position++ = static_cast<int64_t>(s.position() + t);
    }
  }
  for (size_t i = 0; i < config_.kv_source_layer_ids.size(); ++i) {
    const uint64_t ratio =
        config_.compress_ratios[config_.kv_source_layer_ids[i]];
    int64_t* group = to.group_positions + i * tokens();
    for (const Segment& s : segments_) {
      for (size_t g = 0; g < s.groups(ratio); ++g) {
        *group++ = static_cast<int64_t>((s.first_group(ratio) + g) * ratio);
      }
    }
  }
}

void Forward::SendInputs(const HostInputs& from) {
  if (model_.device->is_host()) return;  // they are there
  const size_t n = tokens(), groups = n * config_.kv_source_layer_ids.size();
  const Queue::Transfer inputs[] = {
      {ids_.data(), from.ids, n * sizeof(*from.ids)},
      {image_.data(), from.image, n * sizeof(*from.image)},
      {positions_.data(), from.positions, n * sizeof(*from.positions)},
      {group_positions_.data(), from.group_positions,
       groups * sizeof(*from.group_positions)}};
  queue_->SendAll(inputs);
}

// --- Engram -----------------------------------------------------------------

// Many rows of a pass that lie in memory of the host go to the device beside
// the layers, or the products of the rows before them, rather than one by one
// when they are decoded: to where their keys and value will be.
void Forward::SendRows(const EngramWeights& w, float* kv,
                       EngramFetch::Rows* rows) {
  constexpr size_t kFewestTokens = 64;
  if (model_.device->is_host() || engram_->resident() ||
      recording_ != nullptr || rows->tokens < kFewestTokens) {
    return;
  }
  TableRows& from = rows->from;
  const size_t count = rows->tokens * (w.wkv.cols / config_.engram.head_dim);
  const size_t bytes = count * from.row_stride;
  const size_t room = rows->tokens * w.wkv.rows * sizeof(float);
  if (from.numbers != nullptr || bytes > room) return;
  uint8_t* const to = reinterpret_cast<uint8_t*>(kv);
  queue_->SendAhead(to, from.rows, bytes);
  queue_->JoinAhead();
  // Scales lie in the rows.
  if (from.scales != nullptr) from.scales = to + (from.scales - from.rows);
  from.rows = to;
}

// kv[rows, (H + 1) * D], which the gate rounds for bf16 streams.
void Forward::ProjectRows(const EngramWeights& w, const EngramFetch::Rows& rows,
                          float* kv) {
  const size_t width = config_.engram.head_dim;
  ops_.decode_rows({.from = rows.from,
                    .count = rows.tokens * (w.wkv.cols / width),
                    .width = width,
                    .x = engram_rows_.data(),
                    .broken = engram_broken_.data()},
                   pool_);
  ops_.matmul({.weight = w.wkv,
               .x = engram_rows_.data(),
               .y = kv,
               .tokens = rows.tokens,
               .input = RowsInputOf(options_.activations)},
              pool_);
}

// After the queue has finished: whether the rows so far were whole.
Status Forward::CheckRows() {
  if (!engram_ || *engram_broken_.data() == 0) return {};
  return engram_->BrokenRows();
}

// This chunk's rows, then those of the next: they are served in this order.
Status Forward::BeginEngram() {
  if (!engram_) return Status::Ok();
  stretches_.clear();
  for (const Segment& s : segments_) {
    stretches_.push_back({s.tokens, s.state->history});
  }
  ECPHORY_RETURN_IF_ERROR(BeginRows(chunk_->tokens, chunk_->image,
                                    EngramLayers(chunk_->encoder_only)));
  if (chunk_->next_tokens.empty()) return Status::Ok();
  const EngramFetch::Stretch next{chunk_->next_tokens.size(),
                                  engram_->after(0)};
  return engram_->Ahead(chunk_->next_tokens, chunk_->next_image, {&next, 1},
                        EngramLayers(chunk_->next_encoder_only));
}

// Of the chunk whose stretches_ were set last.
Status Forward::BeginRows(std::span<const int32_t> tokens,
                          std::span<const uint8_t> image, size_t layers) {
  *engram_broken_.data() = 0;
  return engram_->Begin(tokens, image, stretches_, layers);
}

// Engram layers that such a chunk passes: the first ones of the list.
size_t Forward::EngramLayers(bool encoder_only) const {
  const auto& ids = config_.engram.layer_ids;  // ascending
  if (!encoder_only) return ids.size();
  const uint32_t last = static_cast<uint32_t>(LastKvSource(config_));
  return static_cast<size_t>(std::upper_bound(ids.begin(), ids.end(), last) -
                             ids.begin());
}

void Forward::Prefetch(std::span<const int32_t> tokens,
                       std::span<const uint8_t> image,
                       std::span<const ForwardSegment> segments) {
  // A token that does not exist is reported when its chunk is run.
  if (!engram_ || segments.empty()) return;
  if (IsAhead(tokens, image, segments) || WaitsForAsking(tokens, segments)) {
    return;
  }
  stretches_.clear();
  for (const ForwardSegment& segment : segments) {
    stretches_.push_back({segment.tokens, segment.state->history});
  }
  (void)engram_->Ahead(tokens, image, stretches_, EngramLayers(false));
}

// Asking costs the host more than giving the device a recorded step, which
// waits for its rows by itself: unless they take long to come, that is first.
bool Forward::WaitsForAsking(std::span<const int32_t> tokens,
                             std::span<const ForwardSegment> segments) const {
  const SequenceState& state = *segments[0].state;
  const Step& step = steps_[state.position % kSteps];
  return step.ready && engram_->through_page_cache() &&
         tokens.size() == segments.size() && step.sequences[0].id == state.id &&
         step.sequences[0].position == state.position;
}

void Forward::CancelPrefetch() {
  if (engram_) engram_->Cancel();
}

SessionStats Forward::stats() const {
  SessionStats stats = engram_ ? engram_->stats() : SessionStats();
  stats.replayed_steps = replayed_steps_;
  return stats;
}

// --- Mixture of experts -----------------------------------------------------

void Forward::Route(const MoeWeights& w, const float* x) {
  ops_.matmul({.weight = w.gate,
               .x = x,
               .y = router_logits_.data(),
               .tokens = tokens(),
               .input = projected_},
              pool_);
  ops_.router(
      {.logits = router_logits_.data(),
       .bias = w.bias.data(),
       .bias_image = (w.bias_image.empty() ? w.bias : w.bias_image).data(),
       .image_mask = image_.data(),
       .tokens = tokens(),
       .experts = config_.n_experts,
       .topk = config_.n_experts_per_token,
       .score = config_.router_score,
       .gate_temp = config_.gate_temp,
       .normalize = config_.norm_topk_prob,
       .scale = config_.routed_scaling_factor,
       .ids = expert_ids_.data(),
       .weights = expert_weights_.data()},
      pool_);
}

void Forward::RunExperts(std::span<const Expert> experts,
                         const DeviceArray<Expert>& device_experts,
                         const int32_t* ids, const float* weights, size_t topk,
                         const float* x, bool accumulate, float* y) {
  ops_.experts({.x = x,
                .tokens = tokens(),
                .dim = config_.hidden_size,
                .experts = experts.data(),
                .device_experts = device_experts.data(),
                .n_experts = experts.size(),
                .inner = experts[0].w1.rows,
                .ids = ids,
                .weights = weights,
                .topk = topk,
                .swiglu_limit = config_.swiglu_limit,
                .round_bf16 = RoundsToBf16(),
                .accumulate = accumulate,
                .input = projected_,
                .y = y},
               pool_);
}

// --- Shared steps -----------------------------------------------------------

void Forward::Project(const Matrix& weight, const float* x, size_t rows,
                      float* y, MatmulInput input) {
  ops_.matmul({.weight = weight,
               .x = x,
               .y = y,
               .tokens = rows,
               .input = input,
               .round_bf16 = RoundsToBf16()},
              pool_);
}

void Forward::ProjectAll(const std::vector<Projection>& projections) {
  CallForAll(ops_.matmuls, std::span(projections), [&](const Projection& p) {
    return MatmulArgs{.weight = *p.weight,
                      .x = p.x,
                      .y = p.y,
                      .tokens = tokens(),
                      .input = projected_,
                      .round_bf16 = p.rounded && RoundsToBf16()};
  });
}

void Forward::Norm(const DeviceArray<float>& weight, const float* x,
                   size_t rows, float* y) {
  ops_.rms_norm({.x = x,
                 .weight = weight.data(),
                 .y = y,
                 .rows = rows,
                 .dim = weight.size(),
                 .eps = config_.rms_norm_eps,
                 .round_bf16 = RoundsToBf16()},
                pool_);
}

// Layers with a compressed branch rotate everything with the compressed rope.
// In bf16 mode x holds bf16 values before and after.
void Forward::Rope(uint32_t layer, float* x, size_t rows, size_t heads,
                   size_t dim, const int64_t* positions, bool inverse) {
  const bool compressed = config_.compress_ratios[layer] > 0;
  ops_.rope(
      {.x = x,
       .positions = positions,
       .inv_freq = compressed ? model_.inv_freq_compress : model_.inv_freq,
       .tokens = rows,
       .heads = heads,
       .dim = dim,
       .rope_dim = config_.rope_dim,
       .inverse = inverse,
       .round_bf16 = RoundsToBf16()},
      pool_);
}

}  // namespace ecphory
