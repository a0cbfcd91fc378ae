// Steps of one token ahead: where the queue can record, the next step's work is
// recorded while the device does this one's, and then replayed at once.
//
// The positions of the next step are known, if the same sequences take it, and
// with them every argument of every operator; the tokens are not, but they are
// read from memory, and so are the Engram rows. A step is one recording: it is
// given to the device whole, before its rows are asked for, and each Engram
// layer in it waits for a flag that the host raises when the rows have come.
//
// Where a caller goes on with what is drawn, the device has the next step
// behind the one under way, with the drawing between them, which writes the
// tokens to the next step's inputs. The host waits for them there, reads their
// rows and raises the flags before the caller has them. A step that is begun so
// and does not come is one like those whose rows cannot be read: it runs to its
// end and nothing of it is committed. What it has written is the rows of one
// position behind the sequence's last, which its rings have room for
// (SequenceState::NoteWritten) and the next token writes again; pooling reads
// rows of a group's own positions, and history, position and logits of the
// host's are those of committed steps.
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
         step.place == (engram_ ? engram_->next_place() : 0);
}

Status Forward::AllocateSteps() {
  if (!queue_->records()) return {};
  Device& device = *model_.device;
  const size_t tables = config_.engram.layer_ids.size();
  const size_t groups = sequences_ * config_.kv_source_layer_ids.size();
  const auto allocate = [&](auto& array, size_t each) -> Status {
    using Array = std::remove_reference_t<decltype(array)>;
    ECPHORY_ASSIGN_OR_RETURN(
        array, Array::Allocate(device, kSteps * each, MemoryKind::kShared));
    return {};
  };
  ECPHORY_RETURN_IF_ERROR(allocate(step_flags_, tables));
  ECPHORY_RETURN_IF_ERROR(allocate(step_ids_, sequences_));
  ECPHORY_RETURN_IF_ERROR(allocate(step_image_, sequences_));
  ECPHORY_RETURN_IF_ERROR(allocate(step_positions_, sequences_));
  ECPHORY_RETURN_IF_ERROR(allocate(step_group_positions_, groups));
  for (size_t i = 0; i < kSteps; ++i) {
    steps_[i].flags = step_flags_.data() + i * tables;
    steps_[i].inputs = {step_ids_.data() + i * sequences_,
                        step_image_.data() + i * sequences_,
                        step_positions_.data() + i * sequences_,
                        step_group_positions_.data() + i * groups};
  }
  return {};
}

// While recording, those of all tokens will have come when their flag is up.
Result<EngramFetch::Rows> Forward::TakeRows(size_t index, size_t first) {
  if (recording_ == nullptr) return engram_->Take(index, first);
  if (first == 0) {
    queue_->Await(&recording_->flags[index]);
    recording_->tables.push_back(index);
  }
  return EngramFetch::Rows{engram_->NextRows(index, first),
                           std::min(tokens() - first, EngramFetch::kMaxTaken)};
}

// For the next positions, as if this step had been committed. Null where that
// cannot be.
Forward::Step* Forward::RecordNextStep() {
  const bool own_operators = model_.ops == &model_.device->ops();
  if (!queue_->records() || !own_operators || recording_failed_) return nullptr;
  for (const Segment& s : segments_) {
    if (s.position() + 1 >= s.state->context) return nullptr;
  }
  for (Segment& s : segments_) {
    ++s.state->position;
    s.candidate_groups = 0;
  }
  Step& step = StepAt(segments_[0].position());
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
  return step.ready ? &step : nullptr;
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
  WritePositions(step->inputs);
  recording_ = step;
  Status status = queue_->BeginRecording();
  if (status.ok()) {
    status = RunOperators(step->inputs);
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
  Step& step = StepAt(segments_[0].position());
  if (!IsRecorded(step)) return false;
  WriteTokens(step.inputs);
  if (!Launch(&step)) return false;
  Follow(&step);
  return true;
}

// False when it has to be recorded anew.
bool Forward::Launch(Step* step) {
  step->ready = false;  // of these positions only
  for (const size_t index : step->tables) step->flags[index].Lower();
  return queue_->Replay(*step->work);
}

// The pass under way is that step.
void Forward::Follow(Step* step) {
  replayed_ = step;
  for (size_t i = 0; i < segments_.size(); ++i) {
    segments_[i].state->published_keys = step->sequences[i].published_after;
  }
  last_logits_ = step->logits;
  logits_at_ = step->logits_at;
}

// Raises a launched step's flags as its rows come. Without them the device goes
// on as well, to the end of a step that will not be committed.
Status Forward::HandOverRows(const Step& step, Status status) {
  for (const size_t index : step.tables) {
    for (size_t first = 0; status.ok() && first < step.sequences.size();) {
      const Result<EngramFetch::Rows> rows = engram_->Take(index, first);
      status = rows.status();
      if (status.ok()) first += rows->tokens;
    }
    step.flags[index].Raise();
  }
  return status;
}

// --- The step behind the one under way ---------------------------------------

// Launches `next` behind the pass and its draws, which write its tokens. An
// image token makes it one that does not come.
bool Forward::BeginStep(Step* next) {
  if (!goes_on_ || !drawn_ || !TakeLogitsPlace(next->logits_at)) return false;
  std::fill_n(next->inputs.image, segments_.size(), uint8_t{0});
  queue_->SetMilestone();
  if (!Launch(next)) return false;
  for (const Segment& s : segments_) s.state->NoteWritten(s.tokens + 1);
  ahead_ = next;
  return true;
}

// After the commit of the pass before it, whose draws are its tokens. What
// cannot be read is an error of the step, if it comes.
void Forward::FeedAhead() {
  if (ahead_ == nullptr) return;
  ahead_rows_ = {};
  if (!engram_) return;
  stretches_.clear();
  for (const Segment& s : segments_) {
    stretches_.push_back({1, s.state->history});
  }
  const size_t n = segments_.size();
  ahead_rows_ = HandOverRows(
      *ahead_, BeginRows({ahead_->inputs.ids, n}, {ahead_->inputs.image, n},
                         EngramLayers(/*encoder_only=*/false)));
}

// Whether these continue the sequences as the step ahead does.
bool Forward::IsAhead(std::span<const int32_t> tokens,
                      std::span<const uint8_t> image,
                      std::span<const ForwardSegment> segments) const {
  if (ahead_ == nullptr) return false;
  const auto same = [](const ForwardSegment& s, const Step::Sequence& ahead) {
    return s.tokens == 1 && s.state->id == ahead.id &&
           s.state->position == ahead.position;
  };
  return std::equal(segments.begin(), segments.end(), ahead_->sequences.begin(),
                    ahead_->sequences.end(), same) &&
         std::equal(tokens.begin(), tokens.end(), ahead_->inputs.ids) &&
         std::count(image.begin(), image.end(), 0) ==
             static_cast<ptrdiff_t>(image.size());
}

void Forward::DropAhead() {
  if (ahead_ == nullptr) return;
  const Step& step = *std::exchange(ahead_, nullptr);
  for (const size_t index : step.tables) step.flags[index].Raise();
  // A device that fails does so in the next pass as well.
  (void)queue_->Finish();
}

// After the queue has finished: the time that the device stood still for rows,
// and whether it had them all.
bool Forward::ReplayedWithRows() {
  bool all = true;
  double seconds = 0;
  for (const size_t index : replayed_->tables) {
    const HostFlag& flag = replayed_->flags[index];
    all &= flag.given_up == 0;
    seconds += 1e-9 * static_cast<double>(flag.waited_ns);
  }
  if (engram_) engram_->NoteWait(seconds);
  if (all) ++replayed_steps_;
  return all;
}

}  // namespace ecphory
