// The sequences of a pass: where their states are before it, and after.
#include <span>
#include <vector>

#include "base/check.h"
#include "model/forward.h"

namespace ecphory {

Status Forward::Run(const ForwardChunk& chunk, SequenceState* state) {
  const ForwardSegment whole{state, chunk.tokens.size()};
  return Run(chunk, {&whole, 1});
}

Status Forward::Run(const ForwardChunk& chunk,
                    std::span<const ForwardSegment> segments) {
  return Run(chunk, segments, {}, /*goes_on=*/false);
}

void Forward::BeginSegments(std::span<const ForwardSegment> segments) {
  ECPHORY_CHECK(segments.size() <= sequences_);
  segments_.clear();
  size_t first = 0;
  for (const ForwardSegment& segment : segments) {
    segment.state->NoteWritten(segment.tokens);
    segments_.push_back({.state = segment.state,
                         .first = first,
                         .tokens = segment.tokens,
                         .published_keys = segment.state->published_keys});
    first += segment.tokens;
  }
  ECPHORY_CHECK(first == tokens());
}

void Forward::Commit() {
  size_t index = 0;
  for (const Segment& s : segments_) {
    SequenceState& state = *s.state;
    const auto ids = chunk_->tokens.subspan(s.first, s.tokens);
    const auto image = chunk_->image.subspan(s.first, s.tokens);
    state.tokens.insert(state.tokens.end(), ids.begin(), ids.end());
    state.image.insert(state.image.end(), image.begin(), image.end());
    state.position += s.tokens;
    if (engram_) state.history = engram_->after(index++);
  }
  if (engram_) engram_->End();
}

// Back to where the states were.
void Forward::Abandon() {
  DropAhead();
  for (const Segment& s : segments_) {
    s.state->published_keys = s.published_keys;
    const auto& logits = s.state->device_logits;
    const bool lost =
        logits != nullptr && logits->at == nullptr && !logits->fetched;
    if (lost) s.state->device_logits = nullptr;
  }
  CancelPrefetch();
}

}  // namespace ecphory
