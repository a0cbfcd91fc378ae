// Steps of one token ahead: where the queue can record, the next step's work is
// recorded while the device does this one's, and then replayed at once.
//
// The positions of the next step are known, if the same sequences take it, and
// with them every argument of every operator; the tokens are not, but they are
// read from memory, and so are the Engram rows. A step is one recording: it is
// given to the device whole, before its rows are asked for, and each Engram
// layer in it waits for a flag that the host raises when the rows have come.
#include <algorithm>

#include "model/forward.h"

namespace ecphory {

// As generation makes them: one token of each sequence, its logits, nothing
// looked at.
bool Forward::IsStep() const {
  return tokens() == segments_.size() &&
         chunk_->logits == LogitsWanted::kLast && chunk_->observer == nullptr &&
         !chunk_->encoder_only && chunk_->decoder_begin == 0;
}

// Before the rows of the chunk under way are asked for, unless the device has
// them.
bool Forward::IsRecorded(const Step& step) const {
  return step.ready && IsStep() && step.logits_at == logits_at_ &&
         step.logits_to_host == chunk_->logits_to_host &&
         std::equal(segments_.begin(), segments_.end(), step.sequences.begin(),
                    step.sequences.end(),
                    [](const Segment& s, const Step::Sequence& recorded) {
                      return recorded.id == s.state->id &&
                             recorded.position == s.position() &&
                             recorded.published_before == s.published_keys;
                    }) &&
         step.place == (!engram_              ? 0
                        : engram_->resident() ? engram_->place()
                                              : engram_->next_place());
}

// While recording, those of all tokens will have come when their flag is up.
Result<EngramFetch::Rows> Forward::TakeRows(size_t index, size_t first) {
  if (recording_ == nullptr) return engram_->Take(index, first);
  if (first == 0 && !engram_->resident()) {
    queue_->Await(&engram_flags_.data()[index]);
    recording_->tables.push_back(index);
  }
  return EngramFetch::Rows{engram_->NextRows(index, first),
                           std::min(tokens() - first, EngramFetch::kMaxTaken)};
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
  const size_t logits_at = logits_at_;
  if (logits_stay_) logits_at_ = 1 - logits_at_;
  step.ready = false;
  const Status status = RecordStep(&step);
  step.ready = status.ok();
  recording_failed_ = !status.ok();
  last_logits_ = last_logits;
  logits_at_ = logits_at;
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
  step->place = engram_ ? engram_->next_place() : 0;
  step->tables.clear();
  recording_ = step;
  Status status = queue_->BeginRecording();
  if (status.ok()) {
    status = RunOperators();
    const Status ended = queue_->EndRecording(&step->work);
    if (status.ok()) status = ended;
  }
  recording_ = nullptr;
  for (size_t i = 0; i < segments_.size(); ++i) {
    step->sequences[i].published_after = segments_[i].state->published_keys;
  }
  step->logits = last_logits_;
  step->logits_at = logits_at_;
  step->logits_to_host = chunk_->logits_to_host;
  return status;
}

// True when the device has been given the step; false when it has to be run
// after all.
bool Forward::ReplayStep() {
  Step& step = steps_[segments_[0].position() % kSteps];
  if (!IsRecorded(step)) return false;
  step.ready = false;  // of these positions only
  for (const size_t index : step.tables) engram_flags_.data()[index].Lower();
  if (!queue_->Replay(*step.work)) return false;
  replayed_ = &step;
  for (size_t i = 0; i < segments_.size(); ++i) {
    segments_[i].state->published_keys = step.sequences[i].published_after;
  }
  last_logits_ = step.logits;
  return true;
}

// Raises the replayed step's flags as its rows come. Without them the device
// goes on as well, to the end of a step that will not be committed.
Status Forward::HandOverRows(Status status) {
  for (const size_t index : replayed_->tables) {
    for (size_t first = 0; status.ok() && first < tokens();) {
      const Result<EngramFetch::Rows> rows = engram_->Take(index, first);
      status = rows.status();
      if (status.ok()) first += rows->tokens;
    }
    engram_flags_.data()[index].Raise();
  }
  return status;
}

// After the queue has finished: the time that the device stood still for rows,
// and whether it had them all.
bool Forward::ReplayedWithRows() {
  bool all = true;
  double seconds = 0;
  for (const size_t index : replayed_->tables) {
    const HostFlag& flag = engram_flags_.data()[index];
    all &= flag.given_up == 0;
    seconds += 1e-9 * static_cast<double>(flag.waited_ns);
  }
  if (engram_) engram_->NoteWait(seconds);
  if (all) ++replayed_steps_;
  return all;
}

}  // namespace ecphory
