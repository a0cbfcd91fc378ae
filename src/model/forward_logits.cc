// Logits: computed, kept where they are or brought to the host, drawn from.
#include <algorithm>

#include "model/draw.h"
#include "model/forward.h"

namespace ecphory {

Status Forward::LetLogitsStay() {
  if (model_.device->is_host()) return {};
  ECPHORY_ASSIGN_OR_RETURN(
      other_logits_,
      DeviceArray<float>::Allocate(*model_.device,
                                   sequences_ * size_t{config_.vocab_size}));
  ECPHORY_ASSIGN_OR_RETURN(
      sampled_, DeviceArray<Sampled>::Allocate(*model_.device, sequences_,
                                               MemoryKind::kShared));
  logits_stay_ = true;
  return {};
}

// Where the pass puts them: not over those of the pass before, and rather where
// few sequences have some that the host has not.
Status Forward::ChooseLogits() {
  if (!logits_stay_ || chunk_->logits == LogitsWanted::kNone) return {};
  size_t waiting[2] = {};
  for (size_t which = 0; which < 2; ++which) {
    std::erase_if(held_[which],
                  [](const auto& held) { return held.expired(); });
    for (const auto& held : held_[which])
      waiting[which] += !held.lock()->fetched;
  }
  const size_t other = 1 - logits_at_;
  logits_at_ = chunk_->logits == LogitsWanted::kAll    ? 0
               : waiting[other] <= waiting[logits_at_] ? other
                                                       : logits_at_;
  return FetchHeld(logits_at_);
}

// To the host, all that lie there.
Status Forward::FetchHeld(size_t which) {
  for (const auto& held : held_[which]) {
    const std::shared_ptr<DeviceLogits> logits = held.lock();
    if (logits == nullptr) continue;
    if (!logits->fetched) {
      ECPHORY_RETURN_IF_ERROR(FetchRow(logits->at, &logits->host));
    }
    logits->fetched = true;
    logits->at = nullptr;
  }
  held_[which].clear();
  return {};
}

Status Forward::FetchRow(const float* from, std::vector<float>* logits) {
  const size_t vocab = config_.vocab_size;
  const Queue::Scope scope(*queue_);
  queue_->Fetch(logits_.host(), from, vocab * sizeof(float));
  ECPHORY_RETURN_IF_ERROR(queue_->Finish());
  logits->assign(logits_.host(), logits_.host() + vocab);
  return {};
}

Status Forward::EmitLogits() {
  if (chunk_->logits == LogitsWanted::kNone) return Status::Ok();
  if (chunk_->logits == LogitsWanted::kAll) return EmitAllLogits();
  const size_t vocab = config_.vocab_size, n = segments_.size();
  if (logits_at_ == 0) ECPHORY_RETURN_IF_ERROR(NeedLogits(n));
  float* const logits = logits_at_ == 0 ? logits_.data() : other_logits_.data();
  // The last token of each sequence; those that lie together in one product.
  for (size_t begin = 0, end = 0; begin < n; begin = end) {
    const size_t first = segments_[begin].last();
    do {
      ++end;
    } while (end < n && segments_[end].last() == first + (end - begin));
    Head(first, end - begin, logits + begin * vocab);
  }
  PlaceLogits(logits, n);
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
  PlaceLogits(logits_.data() + (count - 1) * vocab, 1);
  return Status::Ok();
}

// Of the last tokens: left where they are, or on their way to the host.
void Forward::PlaceLogits(const float* logits, size_t count) {
  last_logits_ = logits;
  if (logits_stay_ && !chunk_->logits_to_host) return;
  last_logits_ = logits_.host();
  if (last_logits_ == logits) return;  // of the host
  queue_->Fetch(logits_.host(), logits,
                count * config_.vocab_size * sizeof(float));
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
  const bool stay = logits_stay_ && !chunk_->logits_to_host;
  for (size_t i = 0; i < segments_.size(); ++i) {
    SequenceState& state = *segments_[i].state;
    state.device_logits = nullptr;
    state.logits.clear();
    if (!wanted || !stay) continue;
    state.device_logits = std::make_shared<DeviceLogits>();
    state.device_logits->at = last_logits_ + i * vocab;
    held_[logits_at_].push_back(state.device_logits);
  }
  if (!wanted || stay) return;
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
  DropAhead();
  DeviceLogits& held = *state->device_logits;
  const Status status = held.fetched ? Status() : FetchRow(held.at, &held.host);
  if (!status.ok()) {
    state->device_logits = nullptr;
    return status;
  }
  held.fetched = true;
  state->logits = std::move(held.host);
  return {};
}

Status Forward::Draw(std::span<ForwardDraw> draws) {
  DropAhead();
  std::vector<ForwardDraw*> here, on_host;
  for (ForwardDraw& draw : draws) {
    const auto& held = draw.state->device_logits;
    const bool on_device = held != nullptr && held->at != nullptr;
    if (!on_device) ECPHORY_RETURN_IF_ERROR(FetchLogits(draw.state));
    (on_device ? here : on_host).push_back(&draw);
  }
  DrawThere(on_host);
  return here.empty() ? Status() : DrawHere(here);
}

// By operators that compute on the host.
void Forward::DrawThere(std::span<ForwardDraw* const> draws) {
  const Device& device = *model_.device;
  const Ops& ops = device.is_host() ? device.ops() : CpuOps();
  pool_.ParallelFor(draws.size(), 1, [&](size_t begin, size_t end, size_t) {
    for (size_t i = begin; i < end; ++i) {
      ForwardDraw& draw = *draws[i];
      draw.sampled =
          DrawOnHost(ops, draw.state->logits, draw.row, draw.penalized);
    }
  });
}

Status Forward::DrawHere(std::span<ForwardDraw* const> draws) {
  const Queue::Scope scope(*queue_);
  for (ForwardDraw* draw : draws) {
    draw->row.logits = draw->state->device_logits->at;
    draw->row.token = nullptr;
  }
  ECPHORY_RETURN_IF_ERROR(QueueDraws(draws));
  ECPHORY_RETURN_IF_ERROR(queue_->Finish());
  TakeDrawn(draws);
  return {};
}

// From the rows' logits, into sampled_.
Status Forward::QueueDraws(std::span<ForwardDraw* const> draws) {
  size_t ids = 0;
  for (const ForwardDraw* draw : draws) ids += draw->penalized.size();
  if (penalized_.size() < ids) {
    ECPHORY_ASSIGN_OR_RETURN(
        penalized_, DeviceArray<int32_t>::Allocate(*model_.device, ids,
                                                   MemoryKind::kShared));
  }
  std::vector<SampleRow> rows;
  int32_t* next = penalized_.data();
  for (const ForwardDraw* draw : draws) {
    rows.push_back(draw->row);
    rows.back().penalized = next;
    rows.back().n_penalized = draw->penalized.size();
    next = std::copy(draw->penalized.begin(), draw->penalized.end(), next);
  }
  model_.device->ops().sample({.rows = rows.data(),
                               .n_rows = rows.size(),
                               .vocab = config_.vocab_size,
                               .sampled = sampled_.data()},
                              pool_);
  return {};
}

// After the queue has finished them.
void Forward::TakeDrawn(std::span<ForwardDraw* const> draws) {
  for (size_t i = 0; i < draws.size(); ++i) {
    draws[i]->sampled = sampled_.data()[i];
  }
}

// --- Draws of a pass
// ----------------------------------------------------------

void Forward::BeginDraws(std::span<ForwardDraw> draws) {
  draws_.clear();
  for (ForwardDraw& draw : draws) draws_.push_back(&draw);
  drawn_ = false;
}

// Behind its logits, where they stay; the tokens are inputs of the next step.
Status Forward::DrawInPass() {
  if (draws_.empty() || !logits_stay_ || chunk_->logits_to_host) return {};
  const Step& next = StepAt(segments_[0].position() + 1);
  for (size_t i = 0; i < draws_.size(); ++i) {
    draws_[i]->row.logits = last_logits_ + i * config_.vocab_size;
    draws_[i]->row.token =
        next.inputs.ids == nullptr ? nullptr : next.inputs.ids + i;
  }
  ECPHORY_RETURN_IF_ERROR(QueueDraws(draws_));
  drawn_ = true;
  return {};
}

// After the commit: what was drawn, or is to be drawn now.
Status Forward::EndDraws(std::span<ForwardDraw> draws) {
  if (draws.empty()) return {};
  if (!drawn_) return Draw(draws);
  TakeDrawn(draws_);
  if (std::any_of(draws.begin(), draws.end(), [](const ForwardDraw& draw) {
        return draw.sampled.fault != SampleFault::kNone;
      })) {
    DropAhead();
  }
  return {};
}

// So that the step behind this pass may write its logits there, whose states
// then have none if the pass fails. False where others have some that the host
// has not.
bool Forward::TakeLogitsPlace(size_t which) {
  const auto waits = [&](const std::weak_ptr<DeviceLogits>& held) {
    const auto logits = held.lock();
    return logits != nullptr && !logits->fetched &&
           std::none_of(segments_.begin(), segments_.end(),
                        [&](const Segment& s) {
                          return s.state->device_logits == logits;
                        });
  };
  auto& all = held_[which];
  if (std::any_of(all.begin(), all.end(), waits)) return false;
  for (const auto& held : all) {
    if (const auto logits = held.lock()) logits->at = nullptr;
  }
  all.clear();
  return true;
}

}  // namespace ecphory
