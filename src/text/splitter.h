// Pre-tokenizer: cuts text into words by regular expressions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ecphory/status.h"

namespace ecphory {

// Compiled split patterns. Immutable and thread-safe.
class Splitter {
 public:
  static Result<Splitter> Create(const std::vector<std::string>& patterns,
                                 const std::string& where);

 private:
  friend class SplitRun;
  struct Impl;
  explicit Splitter(std::shared_ptr<const Impl> impl)
      : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// One thread's use of a Splitter, with its match memory.
//
// The patterns come from a file, so backtracking has a budget in proportion to
// the text: a pattern that exceeds it is an error, not a hang. The DeepSeek
// patterns take linear time on every text and stay far below it.
class SplitRun {
 public:
  // Receives the words of the text in order: non-empty, together all of it. An
  // error ends the run.
  using Sink = std::function<Status(std::string_view word)>;

  // `splitter` must outlive this object.
  explicit SplitRun(const Splitter& splitter);
  ~SplitRun();
  SplitRun(const SplitRun&) = delete;
  SplitRun& operator=(const SplitRun&) = delete;

  // The first pattern cuts `text` (valid UTF-8) into its matches and what lies
  // between them, the second one cuts each of these pieces, and so on. A
  // pattern sees its piece only, never the neighbours.
  Status Split(std::string_view text, const Sink& sink);

 private:
  struct Range {
    size_t begin;
    size_t end;
    bool found;
  };

  Status SplitFrom(size_t stage, std::string_view piece, const Sink& sink);
  // The leftmost match that begins at or after `from`.
  Result<Range> Search(size_t stage, std::string_view piece, size_t from);
  // A match that begins exactly at `at`; PCRE2's code.
  int MatchAt(size_t stage, std::string_view piece, size_t at);
  // The leftmost match that begins in [first, last]; PCRE2's code.
  int Match(size_t stage, std::string_view piece, size_t first, size_t last,
            uint32_t limit);
  Status BacktracksTooLong(size_t stage, int code) const;

  struct Memory;
  const Splitter& splitter_;
  std::unique_ptr<Memory> memory_;
  uint64_t steps_left_;
};

}  // namespace ecphory
