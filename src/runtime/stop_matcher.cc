#include "runtime/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace ecphory {

namespace {

// Length of the longest proper beginning of `stop` that `text` ends with.
size_t Overlap(std::string_view text, std::string_view stop) {
  size_t length = std::min(text.size(), stop.size() - 1);
  while (length > 0 && !text.ends_with(stop.substr(0, length))) --length;
  return length;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops)
    : stops_(std::move(stops)) {}

size_t StopMatcher::FindStop() const {
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    first = std::min(first, pending_.find(stop));
  }
  return first;
}

size_t StopMatcher::Undecided() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    longest = std::max(longest, Overlap(pending_, stop));
  }
  return longest;
}

std::string StopMatcher::Push(std::string_view piece) {
  if (matched_) return {};
  pending_ += piece;
  const size_t stop = FindStop();
  matched_ = stop != std::string::npos;
  const size_t safe = matched_ ? stop : pending_.size() - Undecided();
  std::string text = pending_.substr(0, safe);
  pending_.erase(0, safe);
  return text;
}

std::string StopMatcher::Finish() {
  if (matched_) return {};
  return std::exchange(pending_, {});
}

}  // namespace ecphory
