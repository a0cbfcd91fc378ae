#include "ecphory/batch.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/memory_plan.h"
#include "model/model_impl.h"
#include "model/session_impl.h"

namespace ecphory {

namespace {

constexpr uint32_t kMaxSequences = 8192;  // as tokens of a chunk

// Options that decide what a step computes, or in which memory.
Status CheckSame(const SessionOptions& session, const SessionOptions& batch) {
  if (session.activations != batch.activations) {
    return InvalidArgument("the session's activations are not the batch's");
  }
  if (session.state_rounding != batch.state_rounding) {
    return InvalidArgument("the session's state_rounding is not the batch's");
  }
  if (session.index_keys != batch.index_keys) {
    return InvalidArgument("the session's index_keys are not the batch's");
  }
  if (session.engram != batch.engram) {
    return InvalidArgument("the session's engram is not the batch's");
  }
  if (session.context > batch.context) {
    return InvalidArgument(
        "the session's context of %u tokens is longer than the batch's %u",
        session.context, batch.context);
  }
  return {};
}

std::string NameOf(size_t index) { return "sequence " + std::to_string(index); }

Status CheckOfSameSessions(std::span<const BatchToken> tokens,
                           std::span<const BatchDraw> draws) {
  if (tokens.size() != draws.size()) {
    return InvalidArgument("%zu draws after a step of %zu sequences",
                           draws.size(), tokens.size());
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].session == draws[i].session) continue;
    return InvalidArgument("%s: the draw is of another session",
                           NameOf(i).c_str());
  }
  return {};
}

}  // namespace

struct Batch::Impl {
  std::shared_ptr<const Model> model;
  SessionOptions options;
  uint32_t sequences = 0;
  std::shared_ptr<Forward> forward;
  uint64_t tokens_run = 0;
  // Of the step under way.
  std::vector<int32_t> ids;
  std::vector<uint8_t> image;
  std::vector<ForwardSegment> segments;

  Status Check(std::span<const BatchToken> tokens) const;
  Status CheckCount(size_t count) const;
  Status CheckOwn(Session* session) const;
  Status CheckOne(const BatchToken& token) const;
  void Fill(std::span<const BatchToken> tokens);
  Status Run(std::span<const BatchToken> tokens, std::span<ForwardDraw> draws,
             bool goes_on);
  Result<std::vector<int32_t>> Drawn(std::span<const ForwardDraw> draws) const;
};

Batch::Batch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Batch::~Batch() = default;

Result<std::unique_ptr<Batch>> Batch::Create(std::shared_ptr<const Model> model,
                                             const SessionOptions& options,
                                             uint32_t sequences) {
  if (sequences == 0 || sequences > kMaxSequences) {
    return InvalidArgument("a batch of %u sequences: expected 1 to %u",
                           sequences, kMaxSequences);
  }
  SessionOptions checked = options;
  ECPHORY_RETURN_IF_ERROR(CheckSessionOptions(*model, &checked));
  checked.chunk = std::max(checked.chunk, sequences);
  ECPHORY_RETURN_IF_ERROR(
      CheckFits(std::to_string(sequences) + " sequences of " +
                    std::to_string(checked.context) + " tokens would",
                model->PlanMemory(checked, sequences).Session(),
                "ask for fewer, or for a smaller --ctx or --chunk"));
  auto impl = std::make_unique<Impl>();
  ECPHORY_ASSIGN_OR_RETURN(impl->forward, Forward::Create(model->impl().forward,
                                                          checked, sequences));
  ECPHORY_RETURN_IF_ERROR(impl->forward->Reserve(ScratchShapeOf(
      model->config(), checked, model->impl().planned, sequences)));
  ECPHORY_RETURN_IF_ERROR(impl->forward->LetLogitsStay());
  impl->model = std::move(model);
  impl->options = checked;
  impl->sequences = sequences;
  return std::unique_ptr<Batch>(new Batch(std::move(impl)));
}

Result<std::unique_ptr<Session>> Batch::NewSession(uint32_t context) const {
  SessionOptions options = impl_->options;
  if (context != 0) options.context = context;
  ECPHORY_RETURN_IF_ERROR(CheckSessionOptions(*impl_->model, &options));
  ECPHORY_RETURN_IF_ERROR(CheckSame(options, impl_->options));
  return Session::Impl::Create(impl_->model, options, impl_->forward);
}

Status Batch::Impl::CheckCount(size_t count) const {
  if (count > 0 && count <= sequences) return {};
  return InvalidArgument("a step of %zu sequences: expected 1 to %u", count,
                         sequences);
}

Status Batch::Impl::CheckOwn(Session* session) const {
  if (session == nullptr) return InvalidArgument("there is no session");
  if (session->impl().model != model) {
    return InvalidArgument("the session is of another model");
  }
  return {};
}

Status Batch::Impl::CheckOne(const BatchToken& token) const {
  ECPHORY_RETURN_IF_ERROR(CheckOwn(token.session));
  const Session::Impl& session = token.session->impl();
  ECPHORY_RETURN_IF_ERROR(CheckSame(session.options, options));
  return session.CheckTokens({&token.token, 1});
}

Status Batch::Impl::Check(std::span<const BatchToken> tokens) const {
  ECPHORY_RETURN_IF_ERROR(CheckCount(tokens.size()));
  std::vector<std::pair<const Session*, size_t>> seen;
  for (size_t i = 0; i < tokens.size(); ++i) {
    ECPHORY_RETURN_IF_ERROR(CheckOne(tokens[i]).WithContext(NameOf(i)));
    seen.emplace_back(tokens[i].session, i);
  }
  std::sort(seen.begin(), seen.end());
  for (size_t i = 1; i < seen.size(); ++i) {
    if (seen[i - 1].first != seen[i].first) continue;
    return InvalidArgument("%s: the session is that of sequence %zu",
                           NameOf(seen[i].second).c_str(), seen[i - 1].second);
  }
  return {};
}

void Batch::Impl::Fill(std::span<const BatchToken> tokens) {
  ids.clear();
  segments.clear();
  for (const BatchToken& token : tokens) {
    ids.push_back(token.token);
    segments.push_back({&token.session->impl().state, 1});
  }
  image = ImagePositions(model->config(), ids, {});
}

Status Batch::Step(std::span<const BatchToken> tokens) {
  ECPHORY_RETURN_IF_ERROR(impl_->Check(tokens));
  return impl_->Run(tokens, {}, /*goes_on=*/false);
}

Result<std::vector<int32_t>> Batch::Step(std::span<const BatchToken> tokens,
                                         std::span<const BatchDraw> draws,
                                         bool goes_on) {
  Impl& impl = *impl_;
  ECPHORY_RETURN_IF_ERROR(impl.Check(tokens));
  ECPHORY_RETURN_IF_ERROR(CheckOfSameSessions(tokens, draws));
  std::vector<ForwardDraw> all;
  for (size_t i = 0; i < draws.size(); ++i) {
    Result<ForwardDraw> one = draws[i].session->impl().DrawBehind(
        tokens[i].token, draws[i].options, draws[i].random);
    if (!one.ok()) return one.status().WithContext(NameOf(i));
    all.push_back(std::move(*one));
  }
  ECPHORY_RETURN_IF_ERROR(impl.Run(tokens, all, goes_on));
  return impl.Drawn(all);
}

void Batch::DropAhead() { impl_->forward->DropAhead(); }
bool Batch::ahead() const { return impl_->forward->ahead(); }

// Of tokens that have been checked.
Status Batch::Impl::Run(std::span<const BatchToken> tokens,
                        std::span<ForwardDraw> draws, bool goes_on) {
  ECPHORY_ASSIGN_OR_RETURN(const ThreadBinding binding,
                           BindCaller(model->impl().threads));
  Fill(tokens);
  ForwardChunk chunk;
  chunk.tokens = ids;
  chunk.image = image;
  for (const BatchToken& token : tokens) {
    Forward* const own = token.session->impl().forward.get();
    if (own == forward.get()) continue;
    own->DropAhead();
    chunk.logits_to_host = true;  // it may outlive the batch's memory
  }
  ECPHORY_RETURN_IF_ERROR(forward->Run(chunk, segments, draws, goes_on));
  tokens_run += tokens.size();
  for (const BatchToken& token : tokens) ++token.session->impl().tokens_run;
  return {};
}

Result<std::vector<int32_t>> Batch::Impl::Drawn(
    std::span<const ForwardDraw> draws) const {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < draws.size(); ++i) {
    ECPHORY_RETURN_IF_ERROR(
        CheckSampled(draws[i].sampled, model->config().vocab_size)
            .WithContext(NameOf(i)));
    tokens.push_back(draws[i].sampled.id);
  }
  return tokens;
}

Result<std::vector<int32_t>> Batch::Draw(std::span<const BatchDraw> draws) {
  Impl& impl = *impl_;
  ECPHORY_RETURN_IF_ERROR(impl.CheckCount(draws.size()));
  std::vector<ForwardDraw> all;
  for (size_t i = 0; i < draws.size(); ++i) {
    const BatchDraw& draw = draws[i];
    ECPHORY_RETURN_IF_ERROR(impl.CheckOwn(draw.session).WithContext(NameOf(i)));
    Result<ForwardDraw> one =
        draw.session->impl().DrawOf(draw.options, draw.random);
    if (!one.ok()) return one.status().WithContext(NameOf(i));
    all.push_back(std::move(*one));
  }
  ECPHORY_RETURN_IF_ERROR(impl.forward->Draw(all));
  return impl.Drawn(all);
}

void Batch::Prefetch(std::span<const BatchToken> tokens) {
  Impl& impl = *impl_;
  if (!impl.Check(tokens).ok()) return;  // Step will say it
  impl.Fill(tokens);
  impl.forward->Prefetch(impl.ids, impl.image, impl.segments);
}

uint32_t Batch::sequences() const { return impl_->sequences; }
const SessionOptions& Batch::options() const { return impl_->options; }

SessionStats Batch::stats() const {
  SessionStats stats = impl_->forward->stats();
  stats.tokens = impl_->tokens_run;
  return stats;
}

}  // namespace ecphory
