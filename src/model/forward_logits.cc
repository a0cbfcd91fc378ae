// Logits: computed, kept where they are or brought to the host, drawn from.
#include <algorithm>

#include "model/draw.h"
#include "model/forward.h"

namespace ecphory {

Status Forward::LetLogitsStay() {
  if (model_.device->is_host()) return {};
  ECPHORY_ASSIGN_OR_RETURN(
      former_logits_,
      DeviceArray<float>::Allocate(*model_.device, config_.vocab_size));
  logits_stay_ = true;
  return {};
}

Status Forward::EmitLogits() {
  if (chunk_->logits == LogitsWanted::kNone) return Status::Ok();
  if (chunk_->logits == LogitsWanted::kAll) return EmitAllLogits();
  const size_t vocab = config_.vocab_size, n = segments_.size();
  ECPHORY_RETURN_IF_ERROR(NeedLogits(n));
  // The last token of each sequence; those that lie together in one product.
  for (size_t begin = 0, end = 0; begin < n; begin = end) {
    const size_t first = segments_[begin].last();
    do {
      ++end;
    } while (end < n && segments_[end].last() == first + (end - begin));
    Head(first, end - begin, logits_.data() + begin * vocab);
  }
  PlaceLogits(0, n);
  return Status::Ok();
}

Status Forward::EmitAllLogits() {
  const size_t vocab = config_.vocab_size;
  const size_t batch = std::min(tokens(), kLogitBatch);
  ECPHORY_RETURN_IF_ERROR(NeedLogits(batch));
  size_t count = 0;
  for (size_t first = 0; first < tokens(); first += count) {
    count = std::min(batch, tokens() - first);
    Head(first, count, logits_.data());
    if (!chunk_->on_logits) continue;
    ECPHORY_ASSIGN_OR_RETURN(const float* const logits,
                             logits_.Receive(*queue_, 0, count * vocab));
    ECPHORY_RETURN_IF_ERROR(CheckRows());
    ECPHORY_RETURN_IF_ERROR(
        chunk_->on_logits(first, count, {logits, count * vocab}));
  }
  PlaceLogits(count - 1, 1);
  return Status::Ok();
}

// Of the last tokens: left where they are, or on their way to the host.
void Forward::PlaceLogits(size_t first, size_t count) {
  const size_t vocab = config_.vocab_size;
  last_logits_ = logits_stay_
                     ? logits_.data() + first * vocab
                     : logits_.Fetch(*queue_, first * vocab, count * vocab);
}

Status Forward::NeedLogits(size_t tokens) {
  const size_t count = tokens * config_.vocab_size;
  if (logits_.size() >= count) return Status::Ok();
  for (Step& step : steps_) step.ready = false;  // it writes to the old ones
  ECPHORY_ASSIGN_OR_RETURN(
      logits_, MirroredArray<float>::Allocate(*model_.device, count));
  return Status::Ok();
}

void Forward::Head(size_t first, size_t count, float* logits) {
  ops_.matmul({.weight = model_.weights->head,
               .x = hidden_.data() + first * config_.hidden_size,
               .y = logits,
               .tokens = count,
               .input = projected_},
              pool_);
}

void Forward::CommitLogits() {
  const size_t vocab = config_.vocab_size;
  const bool wanted = chunk_->logits != LogitsWanted::kNone;
  for (const Segment& s : segments_) {
    s.state->device_logits = wanted && logits_stay_ ? last_logits_ : nullptr;
    s.state->logits.clear();
  }
  if (!wanted || logits_stay_) return;
  // Copying takes a few cycles a value.
  pool_.ParallelFor(segments_.size(), 1, [&](size_t begin, size_t end, size_t) {
    for (size_t i = begin; i < end; ++i) {
      const float* const from = last_logits_ + i * vocab;
      segments_[i].state->logits.assign(from, from + vocab);
    }
  });
}

Status Forward::FetchLogits(SequenceState* state) {
  if (state->device_logits == nullptr || !state->logits.empty()) return {};
  const size_t first =
      static_cast<size_t>(state->device_logits - logits_.data());
  const Queue::Scope scope(*queue_);
  const float* const logits = logits_.Fetch(*queue_, first, config_.vocab_size);
  const Status status = queue_->Finish();
  if (!status.ok()) {
    state->device_logits = nullptr;
    return status;
  }
  state->logits.assign(logits, logits + config_.vocab_size);
  return {};
}

// A pass that fails leaves the logits that were there: before a step they are
// copied on the device, before other passes the host takes them.
Status Forward::SecureLogits(SequenceState* state) {
  if (state->device_logits == nullptr) return {};
  if (!IsStep() || !state->logits.empty()) {
    ECPHORY_RETURN_IF_ERROR(FetchLogits(state));
    state->device_logits = nullptr;
    return {};
  }
  const Queue::Scope scope(*queue_);
  queue_->Copy(former_logits_.data(), state->device_logits,
               config_.vocab_size * sizeof(float));
  return {};
}

void Forward::ReturnLogits(SequenceState* state) {
  if (state->device_logits == nullptr) return;
  const Queue::Scope scope(*queue_);
  queue_->Copy(logits_.data(), former_logits_.data(),
               config_.vocab_size * sizeof(float));
  state->device_logits = queue_->Finish().ok() ? logits_.data() : nullptr;
}

Result<int32_t> Forward::Draw(SampleRow row, std::span<const int32_t> penalized,
                              const SequenceState& state) {
  row.n_penalized = penalized.size();
  if (state.device_logits == nullptr) {
    row.penalized = penalized.data();
    const Device& device = *model_.device;
    return DrawOnHost(device.is_host() ? device.ops() : CpuOps(), state.logits,
                      row);
  }
  if (penalized_.size() < penalized.size()) {
    ECPHORY_ASSIGN_OR_RETURN(
        penalized_, DeviceArray<int32_t>::Allocate(
                        *model_.device, penalized.size(), MemoryKind::kShared));
  }
  std::copy(penalized.begin(), penalized.end(), penalized_.data());
  row.penalized = penalized_.data();
  row.logits = state.device_logits;
  const Queue::Scope scope(*queue_);
  model_.device->ops().sample({.rows = &row,
                               .n_rows = 1,
                               .vocab = config_.vocab_size,
                               .sampled = sampled_.data()},
                              pool_);
  const Sampled* const sampled = sampled_.Fetch(*queue_, 0, 1);
  ECPHORY_RETURN_IF_ERROR(queue_->Finish());
  ECPHORY_RETURN_IF_ERROR(CheckSampled(*sampled, config_.vocab_size));
  return sampled->id;
}

}  // namespace ecphory
