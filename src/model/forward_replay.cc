// Steps of one token ahead: where the queue can record, the next step's work is
// recorded while the device does this one's, and then replayed at once.
//
// The positions of the next step are known, if the same sequences take it, and
// with them every argument of every operator; the tokens are not, but they are
// read from memory, and so are the Engram rows. A recording ends where an
// Engram layer needs its rows: the host waits for them between two recordings,
// while the device does the first.
#include <algorithm>

#include "base/check.h"
#include "model/forward.h"

namespace ecphory {

// As generation makes them: one token of each sequence, its logits, nothing
// looked at.
bool Forward::IsStep() const {
  return tokens() == segments_.size() &&
         chunk_->logits == LogitsWanted::kLast && chunk_->observer == nullptr &&
         !chunk_->encoder_only && chunk_->decoder_begin == 0;
}

bool Forward::IsRecorded(const Step& step) const {
  return step.ready && IsStep() &&
         std::equal(segments_.begin(), segments_.end(), step.sequences.begin(),
                    step.sequences.end(),
                    [](const Segment& s, const Step::Sequence& recorded) {
                      return recorded.id == s.state->id &&
                             recorded.position == s.position() &&
                             recorded.published_before == s.published_keys;
                    }) &&
         step.rows == (engram_ ? engram_->RowsOf(0, 0) : nullptr);
}

// While recording, those of all tokens will have come when its part is done.
Result<EngramFetch::Rows> Forward::TakeRows(size_t index, size_t first) {
  if (recording_ == nullptr) return engram_->Take(index, first);
  if (first == 0) {
    ECPHORY_RETURN_IF_ERROR(NextRecording());
    recording_->tables.push_back(index);
  }
  return EngramFetch::Rows{engram_->NextRowsOf(index, first),
                           std::min(tokens() - first, EngramFetch::kMaxTaken)};
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

// For the next positions, as if this step had been committed.
void Forward::RecordNextStep() {
  const bool own_operators = model_.ops == &model_.device->ops();
  if (!queue_->records() || !own_operators || recording_failed_) return;
  for (const Segment& s : segments_) {
    if (s.position() + 1 >= s.state->context) return;
  }
  for (Segment& s : segments_) {
    ++s.state->position;
    s.candidate_groups = 0;
  }
  Step& step = steps_[segments_[0].position() % kSteps];
  const float* const last_logits = last_logits_;
  step.ready = false;
  const Status status = RecordStep(&step);
  step.ready = status.ok();
  recording_failed_ = !status.ok();
  last_logits_ = last_logits;
  for (size_t i = 0; i < segments_.size(); ++i) {
    SequenceState& state = *segments_[i].state;
    --state.position;
    state.published_keys = step.sequences[i].published_before;
  }
}

Status Forward::RecordStep(Step* step) {
  step->sequences.clear();
  for (const Segment& s : segments_) {
    step->sequences.push_back({.id = s.state->id,
                               .position = s.position(),
                               .published_before = s.state->published_keys});
  }
  step->rows = engram_ ? engram_->NextRowsOf(0, 0) : nullptr;
  step->tables.clear();
  recording_ = step;
  Status status = queue_->BeginRecording();
  if (status.ok()) {
    SendInputs();
    status = RunLayers();
    const Status ended = EndRecording();
    if (status.ok()) status = ended;
  }
  recording_ = nullptr;
  for (size_t i = 0; i < segments_.size(); ++i) {
    step->sequences[i].published_after = segments_[i].state->published_keys;
  }
  step->logits = last_logits_;
  return status;
}

// True when it was done; false when it has to be run after all.
Result<bool> Forward::ReplayStep() {
  Step& step = steps_[segments_[0].position() % kSteps];
  if (!IsRecorded(step)) return false;
  step.ready = false;  // of these positions only
  if (!queue_->Replay(*step.parts[0])) return false;
  for (size_t i = 0; i < step.tables.size(); ++i) {
    for (size_t first = 0; first < tokens();) {
      ECPHORY_ASSIGN_OR_RETURN(const EngramFetch::Rows rows,
                               engram_->Take(step.tables[i], first));
      first += rows.tokens;
    }
    ECPHORY_CHECK(queue_->Replay(*step.parts[i + 1]));
  }
  for (size_t i = 0; i < segments_.size(); ++i) {
    segments_[i].state->published_keys = step.sequences[i].published_after;
  }
  last_logits_ = step.logits;
  ++replayed_steps_;
  return true;
}

}  // namespace ecphory
