// Several texts at once: each has a place in the batch from its prompt to its
// last token, and then leaves it to the next one that waits.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "ecphory/generate.h"
#include "runtime/generation.h"

namespace ecphory {

namespace {

class BatchGeneration {
 public:
  BatchGeneration(Batch& batch, const Tokenizer& tokenizer,
                  std::span<const GenerateRequest> requests)
      : batch_(batch),
        tokenizer_(tokenizer),
        requests_(requests),
        results_(requests.size()) {}

  Result<std::vector<GenerateResult>> Run() {
    ECPHORY_RETURN_IF_ERROR(Check());
    for (;;) {
      ECPHORY_RETURN_IF_ERROR(Admit());
      if (running_.empty()) return std::move(results_);
      ECPHORY_RETURN_IF_ERROR(Step());
    }
  }

 private:
  struct Text {
    size_t request = 0;
    std::unique_ptr<Session> session;
    std::unique_ptr<Generation> generation;
    int32_t next = 0;    // sampled, not yet appended
    bool ended = false;  // but part of a step that was begun ahead
  };

  Status Check() const {
    const uint64_t context = batch_.options().context;
    for (size_t i = 0; i < requests_.size(); ++i) {
      const auto& [prompt, options] = requests_[i];
      ECPHORY_RETURN_IF_ERROR(
          CheckGeneration(0, context, prompt, options).WithContext(NameOf(i)));
    }
    return {};
  }

  // Fills the places that are free, no step having been begun ahead; who has
  // one has a token afterwards.
  Status Admit() {
    while (running_.size() < batch_.sequences() &&
           waiting_ < requests_.size()) {
      const size_t first = running_.size();
      while (running_.size() < batch_.sequences() &&
             waiting_ < requests_.size()) {
        const size_t request = waiting_++;
        ECPHORY_RETURN_IF_ERROR(Begin(request).WithContext(NameOf(request)));
      }
      ECPHORY_RETURN_IF_ERROR(DrawFrom(first));
    }
    return {};
  }

  // Reads the prompt.
  Status Begin(size_t request) {
    const auto& [prompt, options] = requests_[request];
    Text text;
    text.request = request;
    ECPHORY_ASSIGN_OR_RETURN(text.session, batch_.NewSession());
    text.generation =
        std::make_unique<Generation>(*text.session, tokenizer_, options);
    const Status status = text.generation->AppendPrompt(prompt);
    if (status.code() == StatusCode::kCancelled) {
      text.generation->Cancel();
      Finish(text);
      return {};
    }
    ECPHORY_RETURN_IF_ERROR(status);
    if (options.max_tokens == 0) {
      Finish(text);
    } else {
      running_.push_back(std::move(text));
    }
    return {};
  }

  void Finish(Text& text) {
    results_[text.request] = text.generation->Finish();
  }

  // The first tokens of texts from that one on.
  Status DrawFrom(size_t first) {
    if (first == running_.size()) return {};
    std::vector<BatchDraw> draws;
    for (size_t i = first; i < running_.size(); ++i) {
      draws.push_back(running_[i].generation->Next());
    }
    ECPHORY_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                             batch_.Draw(draws));
    Take(first, ids);
    return {};
  }

  // All read their tokens and draw the next ones.
  Status Step() {
    std::vector<BatchDraw> draws;
    bool goes_on = true;
    tokens_.clear();
    for (Text& text : running_) {
      tokens_.push_back({text.session.get(), text.next});
      draws.push_back(text.ended ? BatchDraw{text.session.get(), {}, 0}
                                 : text.generation->Next());
      goes_on = goes_on && !text.ended && text.generation->WillGoOn();
    }
    ECPHORY_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                             batch_.Step(tokens_, draws, goes_on));
    for (size_t i = running_.size(); i-- > 0;) {
      if (running_[i].ended) ids.erase(ids.begin() + static_cast<ptrdiff_t>(i));
    }
    EraseEnded();
    Take(0, ids);
    return {};
  }

  // New tokens of the texts from that one on. While they are shown, the rows of
  // those that go on are on their way. A text that has ended stays in a step
  // that was begun with its token: without it the others would begin anew.
  void Take(size_t first, std::span<const int32_t> ids) {
    const bool ahead = batch_.ahead();
    tokens_.clear();
    for (size_t i = 0; i < running_.size(); ++i) {
      Text& text = running_[i];
      if (i >= first) text.next = ids[i - first];
      if (i < first || text.generation->GoesOnWith(text.next)) {
        tokens_.push_back({text.session.get(), text.next});
      }
    }
    if (!ahead) batch_.Prefetch(tokens_);
    bool any = first > 0;
    for (size_t i = first; i < running_.size(); ++i) {
      Text& text = running_[i];
      text.ended = !text.generation->Take(text.next);
      if (text.ended) Finish(text);
      any = any || !text.ended;
    }
    if (ahead && any) return;
    batch_.DropAhead();
    EraseEnded();
  }

  void EraseEnded() {
    std::erase_if(running_, [](const Text& text) { return text.ended; });
  }

  static std::string NameOf(size_t request) {
    return "prompt " + std::to_string(request);
  }

  Batch& batch_;
  const Tokenizer& tokenizer_;
  const std::span<const GenerateRequest> requests_;
  std::vector<GenerateResult> results_;
  size_t waiting_ = 0;  // the first request that has no place yet
  std::vector<Text> running_;
  std::vector<BatchToken> tokens_;
};

}  // namespace

Result<std::vector<GenerateResult>> Generate(
    Batch& batch, const Tokenizer& tokenizer,
    std::span<const GenerateRequest> requests) {
  return BatchGeneration(batch, tokenizer, requests).Run();
}

}  // namespace ecphory
