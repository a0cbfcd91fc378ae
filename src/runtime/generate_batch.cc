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
      ECPHORY_RETURN_IF_ERROR(Sample());
      if (!running_.empty()) ECPHORY_RETURN_IF_ERROR(Step());
    }
  }

 private:
  struct Text {
    size_t request = 0;
    std::unique_ptr<Session> session;
    std::unique_ptr<Generation> generation;
    int32_t next = 0;  // sampled, not yet appended
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

  Status Admit() {
    while (running_.size() < batch_.sequences() &&
           waiting_ < requests_.size()) {
      const size_t request = waiting_++;
      ECPHORY_RETURN_IF_ERROR(Begin(request).WithContext(NameOf(request)));
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
    text.session.reset();
  }

  // A token of each. While their texts are shown, the rows of those that go on
  // are on their way.
  Status Sample() {
    std::vector<BatchDraw> draws;
    for (Text& text : running_) draws.push_back(text.generation->Next());
    ECPHORY_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                             batch_.Draw(draws));
    tokens_.clear();
    for (size_t i = 0; i < running_.size(); ++i) {
      Text& text = running_[i];
      text.next = ids[i];
      if (text.generation->GoesOnWith(text.next)) {
        tokens_.push_back({text.session.get(), text.next});
      }
    }
    batch_.Prefetch(tokens_);
    std::erase_if(running_, [&](Text& text) {
      if (text.generation->Take(text.next)) return false;
      Finish(text);
      return true;
    });
    return {};
  }

  Status Step() {
    tokens_.clear();
    for (const Text& text : running_) {
      tokens_.push_back({text.session.get(), text.next});
    }
    return batch_.Step(tokens_);
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
