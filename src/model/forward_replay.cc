// Steps of one token ahead: where the queue can record, the next step's work is
// recorded while the device does this one's, and then replayed at once.
//
// The position of the next step is known, and with it every argument of every
// operator; the token is not, but it is read from memory, and so are the Engram
// rows. A recording ends where an Engram layer needs its rows: the host waits
// for them between two recordings, while the device does the first.
#include "base/check.h"
#include "model/forward.h"

namespace ecphory {

// As generation makes them: one token, its logits, nothing looked at.
bool Forward::IsStep() const {
  return tokens() == 1 && chunk_->logits == LogitsWanted::kLast &&
         chunk_->observer == nullptr && !chunk_->encoder_only &&
         chunk_->decoder_begin == 0;
}

bool Forward::IsRecorded(const Step& step) const {
  return step.ready && IsStep() && step.state == state_ &&
         step.position == state_->position &&
         step.published_before == state_->published_keys &&
         step.rows == (engram_ ? engram_->RowsOf(0) : nullptr);
}

Result<EngramFetch::Rows> Forward::TakeRows(size_t index, size_t first) {
  if (recording_ == nullptr) return engram_->Take(index, first);
  ECPHORY_RETURN_IF_ERROR(NextRecording());
  recording_->tables.push_back(index);
  return EngramFetch::Rows{engram_->NextRowsOf(index), 1};
}

// Ends the part under way and begins the next.
Status Forward::NextRecording() {
  ECPHORY_RETURN_IF_ERROR(EndRecording());
  return queue_->BeginRecording();
}

Status Forward::EndRecording() {
  const size_t part = recording_->tables.size();
  if (recording_->parts.size() <= part) recording_->parts.resize(part + 1);
  return queue_->EndRecording(&recording_->parts[part]);
}

// For position + 1, as if this step had been committed.
void Forward::RecordNextStep() {
  const bool own_operators = model_.ops == &model_.device->ops();
  if (!queue_->records() || !own_operators || recording_failed_ ||
      state_->position + 1 >= state_->context) {
    return;
  }
  const int32_t published_keys = state_->published_keys;
  const uint64_t candidate_groups = candidate_groups_;
  const float* const last_logits = last_logits_;
  Step& step = steps_[++state_->position % kSteps];
  step.ready = false;
  step.state = state_;
  step.position = state_->position;
  step.published_before = published_keys;
  step.rows = engram_ ? engram_->NextRowsOf(0) : nullptr;
  step.tables.clear();
  recording_ = &step;
  candidate_groups_ = 0;
  Status status = queue_->BeginRecording();
  if (status.ok()) {
    SendInputs();
    status = RunLayers();
    const Status ended = EndRecording();
    if (status.ok()) status = ended;
  }
  step.ready = status.ok();
  step.published_after = state_->published_keys;
  step.logits = last_logits_;
  recording_failed_ = !status.ok();
  recording_ = nullptr;
  --state_->position;
  state_->published_keys = published_keys;
  candidate_groups_ = candidate_groups;
  last_logits_ = last_logits;
}

// True when it was done; false when it has to be run after all.
Result<bool> Forward::ReplayStep() {
  Step& step = steps_[state_->position % kSteps];
  if (!IsRecorded(step)) return false;
  step.ready = false;  // of this position only
  if (!queue_->Replay(*step.parts[0])) return false;
  for (size_t i = 0; i < step.tables.size(); ++i) {
    ECPHORY_ASSIGN_OR_RETURN(const EngramFetch::Rows rows,
                             engram_->Take(step.tables[i], 0));
    ECPHORY_CHECK(rows.tokens == 1);
    ECPHORY_CHECK(queue_->Replay(*step.parts[i + 1]));
  }
  state_->published_keys = step.published_after;
  last_logits_ = step.logits;
  ++replayed_steps_;
  return true;
}

}  // namespace ecphory
