// Finds stop texts in text that arrives in pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ecphory {

// Holds back the end of the text as long as it may be the beginning of a stop
// text, so that no part of one is ever shown.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);  // none of them empty

  // The text that is safe to show now. After a match: what came before it, and
  // nothing from then on.
  std::string Push(std::string_view piece);
  // What was held back and turned out to be ordinary text.
  std::string Finish();
  bool matched() const { return matched_; }

 private:
  // Position of the earliest stop text in pending_, npos when there is none.
  size_t FindStop() const;
  // Length of the longest end of pending_ that begins a stop text.
  size_t Undecided() const;

  std::vector<std::string> stops_;
  std::string pending_;
  bool matched_ = false;
};

}  // namespace ecphory
