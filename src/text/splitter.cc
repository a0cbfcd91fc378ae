#include "text/splitter.h"

#include <utility>

#include "base/quote.h"
#include "text/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace ecphory {

namespace {

constexpr size_t kMaxPatterns = 16;
constexpr size_t kMaxPatternBytes = 4096;

// PCRE2 counts the steps of each start position on its own. A search tries
// kWindow positions under a small limit; where one hits it, that position is
// tried alone under growing limits, and this is charged to the text's budget.
// So a text costs at most kFirstLimit steps a byte and twice the budget. A run
// of white space takes a step per character: the budget grows with the text.
constexpr size_t kWindow = 64;
constexpr uint32_t kFirstLimit = 1024;
constexpr uint32_t kLimitGrowth = 4;
constexpr uint64_t kBudgetBase = 10'000'000;
constexpr uint64_t kBudgetPerByte = 256;

constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kJitStackStart = 32 * 1024;
constexpr size_t kJitStackMax = 1024 * 1024;

template <auto kFree>
struct Deleter {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};

using Code = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;
using MatchData =
    std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using MatchContext =
    std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using JitStack =
    std::unique_ptr<pcre2_jit_stack, Deleter<pcre2_jit_stack_free>>;

std::string ErrorText(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

Result<Code> Compile(const std::string& pattern, const std::string& where) {
  if (pattern.empty() || pattern.size() > kMaxPatternBytes) {
    return Unsupported("%s: %zu bytes long, expected 1 to %zu", where.c_str(),
                       pattern.size(), kMaxPatternBytes);
  }
  ECPHORY_ASSIGN_OR_RETURN(const std::string translated,
                           ToPcre2Pattern(pattern, where));
  int error = 0;
  size_t offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                          translated.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_USE_OFFSET_LIMIT,
                          &error, &offset, nullptr));
  if (!code) {
    return Corrupt("%s: %s is no regular expression: %s", where.c_str(),
                   Quoted(pattern).c_str(), ErrorText(error).c_str());
  }
  // Where no executable memory is allowed the interpreter does the same.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

// The first character boundary at or after `at`.
size_t Boundary(std::string_view text, size_t at) {
  while (at < text.size() && (text[at] & 0xc0) == 0x80) ++at;
  return at;
}

}  // namespace

struct Splitter::Impl {
  std::vector<Code> stages;
  std::string where;
};

Result<Splitter> Splitter::Create(const std::vector<std::string>& patterns,
                                  const std::string& where) {
  if (patterns.size() > kMaxPatterns) {
    return Unsupported("%s: %zu split patterns, at most %zu can be used",
                       where.c_str(), patterns.size(), kMaxPatterns);
  }
  auto impl = std::make_shared<Impl>();
  impl->where = where;
  for (size_t i = 0; i < patterns.size(); ++i) {
    ECPHORY_ASSIGN_OR_RETURN(
        Code code,
        Compile(patterns[i], where + ": split pattern " + std::to_string(i)));
    impl->stages.push_back(std::move(code));
  }
  return Splitter(std::move(impl));
}

struct SplitRun::Memory {
  MatchData data{pcre2_match_data_create(1, nullptr)};
  MatchContext context{pcre2_match_context_create(nullptr)};
  JitStack stack{pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr)};
};

SplitRun::SplitRun(const Splitter& splitter)
    : splitter_(splitter),
      memory_(std::make_unique<Memory>()),
      steps_left_(kBudgetBase) {
  pcre2_set_heap_limit(memory_->context.get(), kHeapLimitKib);
  pcre2_jit_stack_assign(memory_->context.get(), nullptr, memory_->stack.get());
}

SplitRun::~SplitRun() = default;

Status SplitRun::Split(std::string_view text, const Sink& sink) {
  steps_left_ += kBudgetPerByte * text.size();
  return SplitFrom(0, text, sink);
}

Status SplitRun::SplitFrom(size_t stage, std::string_view piece,
                           const Sink& sink) {
  if (piece.empty()) return Status::Ok();
  if (stage == splitter_.impl_->stages.size()) return sink(piece);
  size_t done = 0;
  size_t from = 0;
  while (from < piece.size()) {
    ECPHORY_ASSIGN_OR_RETURN(const Range match, Search(stage, piece, from));
    if (!match.found) break;
    ECPHORY_RETURN_IF_ERROR(
        SplitFrom(stage + 1, piece.substr(done, match.begin - done), sink));
    ECPHORY_RETURN_IF_ERROR(SplitFrom(
        stage + 1, piece.substr(match.begin, match.end - match.begin), sink));
    done = match.end;
    const bool empty = match.begin == match.end;  // cuts between characters
    from = empty ? Boundary(piece, done + 1) : done;
  }
  return SplitFrom(stage + 1, piece.substr(done), sink);
}

Result<SplitRun::Range> SplitRun::Search(size_t stage, std::string_view piece,
                                         size_t from) {
  while (from < piece.size()) {
    size_t last = from + kWindow - 1;
    int code = Match(stage, piece, from, last, kFirstLimit);
    if (code == PCRE2_ERROR_MATCHLIMIT) {
      last = from;
      code = MatchAt(stage, piece, from);
    }
    if (code >= 0) {
      const size_t* bounds = pcre2_get_ovector_pointer(memory_->data.get());
      return Range{bounds[0], bounds[1], true};
    }
    if (code != PCRE2_ERROR_NOMATCH) return BacktracksTooLong(stage, code);
    from = Boundary(piece, last + 1);
  }
  return Range{0, 0, false};
}

int SplitRun::MatchAt(size_t stage, std::string_view piece, size_t at) {
  uint64_t limit = kWindow * kFirstLimit;
  int code = PCRE2_ERROR_MATCHLIMIT;
  while (code == PCRE2_ERROR_MATCHLIMIT && limit <= steps_left_ &&
         limit <= UINT32_MAX) {
    steps_left_ -= limit;
    code = Match(stage, piece, at, at, static_cast<uint32_t>(limit));
    limit *= kLimitGrowth;
  }
  return code;
}

int SplitRun::Match(size_t stage, std::string_view piece, size_t first,
                    size_t last, uint32_t limit) {
  pcre2_set_match_limit(memory_->context.get(), limit);
  pcre2_set_offset_limit(memory_->context.get(), last);
  const auto match = [&](uint32_t options) {
    // The caller vouches for UTF-8; checking it here would make every search
    // as long as the text.
    return pcre2_match(splitter_.impl_->stages[stage].get(),
                       reinterpret_cast<PCRE2_SPTR>(piece.data()), piece.size(),
                       first, options | PCRE2_NO_UTF_CHECK, memory_->data.get(),
                       memory_->context.get());
  };
  const int code = match(0);
  return code == PCRE2_ERROR_JIT_STACKLIMIT ? match(PCRE2_NO_JIT) : code;
}

Status SplitRun::BacktracksTooLong(size_t stage, int code) const {
  return ResourceExhausted(
      "%s: split pattern %zu backtracks too long on this text (%s): use a "
      "pattern without nested repeats",
      splitter_.impl_->where.c_str(), stage, ErrorText(code).c_str());
}

}  // namespace ecphory
