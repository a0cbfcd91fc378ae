#include "ecphory/session.h"

#include <algorithm>
#include <utility>

#include "io/file.h"
#include "model/caches.h"
#include "model/draw.h"
#include "model/forward.h"
#include "model/memory_plan.h"
#include "model/model_impl.h"
#include "model/prefill.h"
#include "model/session_impl.h"
#include "model/snapshot.h"

namespace ecphory {

namespace {

constexpr uint32_t kDefaultContext = 4096;
constexpr uint32_t kMaxChunk = 8192;  // bounds scratch, and the rings

// A snapshot file larger than this is refused unread: a released model's state
// at 1M tokens takes under 1 GiB.
constexpr uint64_t kMaxSnapshotBytes = uint64_t{16} << 30;

unsigned long long Ull(uint64_t x) { return x; }

}  // namespace

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() { DropAhead(); }

Status CheckSessionOptions(const Model& model, SessionOptions* options) {
  const ModelConfig& config = model.config();
  if (options->context == 0) {
    options->context = std::min(config.max_positions, kDefaultContext);
  }
  if (options->context > config.max_positions) {
    return InvalidArgument("context of %u tokens: the model's maximum is %u",
                           options->context, config.max_positions);
  }
  if (options->chunk == 0 || options->chunk > kMaxChunk) {
    return InvalidArgument("chunk of %u tokens: expected 1 to %u",
                           options->chunk, kMaxChunk);
  }
  options->chunk = std::min(options->chunk, options->context);
  const Device& device = *model.impl().device;
  if (options->activations == Activations::kInt8 && !device.takes_int8()) {
    return Unsupported(
        "activations int8: %s has no such products, expected f32 or bf16",
        device.name().c_str());
  }
  return Status::Ok();
}

Result<std::unique_ptr<Session>> Session::Create(
    std::shared_ptr<const Model> model, const SessionOptions& options) {
  SessionOptions checked = options;
  ECPHORY_RETURN_IF_ERROR(CheckSessionOptions(*model, &checked));
  ECPHORY_RETURN_IF_ERROR(CheckFits(
      "a session of " + std::to_string(checked.context) + " tokens would",
      model->PlanMemory(checked).Session(),
      "ask for a smaller --ctx or --chunk"));
  ECPHORY_ASSIGN_OR_RETURN(std::unique_ptr<Forward> forward,
                           Forward::Create(model->impl().forward, checked));
  ECPHORY_RETURN_IF_ERROR(forward->Reserve(
      ScratchShapeOf(model->config(), checked, model->impl().planned)));
  ECPHORY_RETURN_IF_ERROR(forward->LetLogitsStay());
  return Impl::Create(std::move(model), checked, std::move(forward));
}

Result<std::unique_ptr<Session>> Session::Impl::Create(
    std::shared_ptr<const Model> model, const SessionOptions& options,
    std::shared_ptr<Forward> forward) {
  ECPHORY_ASSIGN_OR_RETURN(
      SequenceState state,
      SequenceState::Create(model->config(), options, *model->impl().device));
  auto impl = std::make_unique<Impl>(std::move(model), options,
                                     std::move(state), std::move(forward));
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Status Session::Impl::CheckTokens(std::span<const int32_t> tokens) const {
  if (tokens.size() > state.context - state.position) {
    return OutOfRange(
        "%zu tokens after %llu do not fit in the context of %llu tokens",
        tokens.size(), Ull(state.position), Ull(state.context));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 ||
        static_cast<uint32_t>(tokens[i]) >= config().vocab_size) {
      return OutOfRange("token %d at index %zu: the vocabulary has ids 0 to %u",
                        tokens[i], i, config().vocab_size - 1);
    }
  }
  return Status::Ok();
}

PrefillPlan Session::Impl::Plan(size_t tokens,
                                const AppendOptions& append) const {
  // What is asked of every token needs every layer.
  if (append.logits == LogitsWanted::kAll || append.observer != nullptr) {
    return {};
  }
  return PlanPrefill(config(), options, tokens);
}

// The pass that begins at token `first` of an Append.
Status Session::Impl::RunChunk(const AppendedText& text, size_t first,
                               const AppendOptions& append) {
  const size_t count = PassAt(text, first), end = first + count;
  const size_t next = PassAt(text, end);
  ForwardChunk chunk{
      .tokens = text.tokens.subspan(first, count),
      .image = text.image.subspan(first, count),
      .encoder_only = text.plan.EncoderOnly(first),
      .decoder_begin = text.plan.skips() ? text.position + text.plan.tail : 0,
      .next_tokens = text.tokens.subspan(end, next),
      .next_image = text.image.subspan(end, next),
      .next_encoder_only = text.plan.EncoderOnly(end),
      .logits = append.logits,
      .on_logits = {},
      .observer = append.observer};
  if (append.logits == LogitsWanted::kLast && next > 0) {
    chunk.logits = LogitsWanted::kNone;
  }
  if (append.on_logits) {
    chunk.on_logits = [&](size_t at, size_t rows,
                          std::span<const float> logits) {
      return append.on_logits(first + at, rows, logits);
    };
  }
  ECPHORY_RETURN_IF_ERROR(forward->Run(chunk, &state));
  tokens_run += count;
  if (chunk.encoder_only) tokens_skipped += count;
  return Status::Ok();
}

// Runs chunk after chunk until the end or the first that cannot be.
Status Session::Impl::Run(const AppendedText& text,
                          const AppendOptions& append) {
  for (size_t done = 0; done < text.tokens.size();) {
    if (append.cancel != nullptr && append.cancel->load()) {
      forward->CancelPrefetch();
      return Cancelled("stopped after %zu of %zu tokens%s", done,
                       text.tokens.size(),
                       done < text.plan.whole
                           ? ", none of which stays: layers were being skipped"
                           : "");
    }
    const size_t count = PassAt(text, done);
    ECPHORY_RETURN_IF_ERROR(RunChunk(text, done, append));
    done += count;
    if (append.on_progress) append.on_progress(done);
  }
  return Status::Ok();
}

Status Session::Append(std::span<const int32_t> tokens,
                       const AppendOptions& options) {
  Impl& impl = *impl_;
  SequenceState& state = impl.state;
  const size_t mask = options.image_mask.size();
  if (mask != 0 && mask != tokens.size()) {
    return InvalidArgument("image mask of %zu positions for %zu tokens", mask,
                           tokens.size());
  }
  ECPHORY_RETURN_IF_ERROR(impl.CheckTokens(tokens));
  ECPHORY_ASSIGN_OR_RETURN(const ThreadBinding binding,
                           BindCaller(impl.model->impl().threads));
  const std::vector<uint8_t> image =
      ImagePositions(impl.config(), tokens, options.image_mask);
  const AppendedText text{.tokens = tokens,
                          .image = image,
                          .position = state.position,
                          .plan = impl.Plan(tokens.size(), options)};
  if (!text.plan.skips()) return impl.Run(text, options);

  impl.forward->DropAhead();
  ECPHORY_RETURN_IF_ERROR(impl.forward->FetchLogits(&state));
  ECPHORY_ASSIGN_OR_RETURN(SequenceState::Checkpoint before, state.Save());
  const Status status = impl.Run(text, options);
  const uint64_t whole = text.position + text.plan.whole;
  if (state.position >= whole) {
    state.ForgetBefore(whole);
  } else if (state.position > text.position) {
    impl.forward->CancelPrefetch();
    ECPHORY_RETURN_IF_ERROR(state.Return(std::move(before)));
  }
  return status;
}

void Session::Prefetch(std::span<const int32_t> tokens) {
  const std::span<const int32_t> chunk =
      tokens.first(std::min<size_t>(tokens.size(), impl_->options.chunk));
  if (chunk.empty()) return;
  const ForwardSegment whole{&impl_->state, chunk.size()};
  impl_->forward->Prefetch(chunk, ImagePositions(impl_->config(), chunk, {}),
                           {&whole, 1});
}

std::span<const float> Session::logits() const {
  // A device that fails leaves them empty, and says so in the next Append.
  (void)impl_->forward->FetchLogits(&impl_->state);
  return impl_->state.logits;
}

Result<int32_t> Session::Draw(const SamplerOptions& options, uint64_t random) {
  ECPHORY_ASSIGN_OR_RETURN(ForwardDraw draw, impl_->DrawOf(options, random));
  ECPHORY_RETURN_IF_ERROR(impl_->forward->Draw({&draw, 1}));
  ECPHORY_RETURN_IF_ERROR(
      CheckSampled(draw.sampled, impl_->config().vocab_size));
  return draw.sampled.id;
}

Result<int32_t> Session::Step(int32_t token, const SamplerOptions& options,
                              uint64_t random, bool goes_on) {
  Impl& impl = *impl_;
  ECPHORY_RETURN_IF_ERROR(impl.CheckTokens({&token, 1}));
  ECPHORY_ASSIGN_OR_RETURN(ForwardDraw draw,
                           impl.DrawBehind(token, options, random));
  ECPHORY_ASSIGN_OR_RETURN(const ThreadBinding binding,
                           BindCaller(impl.model->impl().threads));
  const std::vector<uint8_t> image =
      ImagePositions(impl.config(), {&token, 1}, {});
  ForwardChunk chunk;
  chunk.tokens = {&token, 1};
  chunk.image = image;
  const ForwardSegment whole{&impl.state, 1};
  ECPHORY_RETURN_IF_ERROR(
      impl.forward->Run(chunk, {&whole, 1}, {&draw, 1}, goes_on));
  ++impl.tokens_run;
  ECPHORY_RETURN_IF_ERROR(CheckSampled(draw.sampled, impl.config().vocab_size));
  return draw.sampled.id;
}

void Session::DropAhead() { impl_->forward->DropAhead(); }

Result<ForwardDraw> Session::Impl::DrawBehind(int32_t token,
                                              const SamplerOptions& sampler,
                                              uint64_t random) {
  ECPHORY_RETURN_IF_ERROR(sampler.Validate());
  std::vector<int32_t> recent;
  if (sampler.repeat_penalty != 1.0f && sampler.repeat_window > 0) {
    const size_t before =
        std::min<size_t>(state.tokens.size(), sampler.repeat_window - 1);
    recent.assign(state.tokens.end() - static_cast<ptrdiff_t>(before),
                  state.tokens.end());
    recent.push_back(token);
  }
  return ForwardDraw{
      .state = &state,
      .row = DrawnRow(sampler, random),
      .penalized = PenalizedIds(sampler, recent, config().vocab_size),
      .sampled = {}};
}

Result<ForwardDraw> Session::Impl::DrawOf(const SamplerOptions& sampler,
                                          uint64_t random) {
  ECPHORY_RETURN_IF_ERROR(sampler.Validate());
  if (state.device_logits == nullptr && state.logits.empty()) {
    return InvalidArgument(
        "the session has no logits to draw from: append a token first");
  }
  return ForwardDraw{
      .state = &state,
      .row = DrawnRow(sampler, random),
      .penalized = PenalizedIds(sampler, state.tokens, config().vocab_size),
      .sampled = {}};
}

uint64_t Session::position() const { return impl_->state.position; }
uint64_t Session::context() const { return impl_->state.context; }
std::span<const int32_t> Session::tokens() const { return impl_->state.tokens; }

SessionStats& SessionStats::operator-=(const SessionStats& earlier) {
  tokens -= earlier.tokens;
  skipped_tokens -= earlier.skipped_tokens;
  skipped_layer_passes -= earlier.skipped_layer_passes;
  replayed_steps -= earlier.replayed_steps;
  engram_rows -= earlier.engram_rows;
  engram_rows_read -= earlier.engram_rows_read;
  engram_cache_hits -= earlier.engram_cache_hits;
  engram_bytes_read -= earlier.engram_bytes_read;
  engram_read_seconds -= earlier.engram_read_seconds;
  engram_wait_seconds -= earlier.engram_wait_seconds;
  engram_token_wait -= earlier.engram_token_wait;
  engram_token_read -= earlier.engram_token_read;
  return *this;
}

SessionStats Session::stats() const {
  SessionStats stats = impl_->forward->stats();
  stats.tokens = impl_->tokens_run;
  stats.skipped_tokens = impl_->tokens_skipped;
  const int source = LastKvSource(impl_->config());
  if (source >= 0) {
    stats.skipped_layer_passes =
        stats.skipped_tokens *
        (impl_->config().n_layers - static_cast<uint32_t>(source));
  }
  return stats;
}

uint64_t Session::state_bytes() const { return impl_->state.bytes(); }

uint64_t Session::EarliestTruncation() const {
  return impl_->state.EarliestTruncation();
}

Status Session::Truncate(uint64_t position) {
  SequenceState& state = impl_->state;
  if (position > state.position) {
    return OutOfRange("cannot truncate to %llu: the session holds %llu tokens",
                      Ull(position), Ull(state.position));
  }
  impl_->forward->DropAhead();
  if (position == state.position) return Status::Ok();
  const uint64_t earliest = state.EarliestTruncation();
  if (position != 0 && position < earliest) {
    return OutOfRange(
        "cannot truncate to %llu: the windows reach back to %llu (or start "
        "over at 0)",
        Ull(position), Ull(earliest));
  }
  impl_->forward->CancelPrefetch();
  state.TruncateTo(position);
  return impl_->RebuildHistory();
}

// The history is a function of the last few tokens.
Status Session::Impl::RebuildHistory() {
  state.history = {};
  const engram::Hasher* hasher = model->impl().forward.hasher;
  if (hasher == nullptr) return Status::Ok();
  const uint64_t count =
      std::min<uint64_t>(state.position, hasher->layout().max_ngram - 1);
  const std::span<const int32_t> tokens =
      std::span<const int32_t>(state.tokens).last(count);
  const std::span<const uint8_t> dead =
      std::span<const uint8_t>(state.image).last(count);
  std::vector<int32_t> compressed(count);
  ECPHORY_RETURN_IF_ERROR(hasher->Compress(tokens, dead, compressed));
  hasher->Advance(compressed, &state.history);
  return Status::Ok();
}

Result<std::vector<uint8_t>> Session::Snapshot() const {
  impl_->forward->DropAhead();
  ECPHORY_RETURN_IF_ERROR(impl_->forward->FetchLogits(&impl_->state));
  return EncodeSnapshot(impl_->config(), impl_->state);
}

Status Session::Restore(std::span<const uint8_t> snapshot) {
  impl_->forward->DropAhead();
  ECPHORY_RETURN_IF_ERROR(
      DecodeSnapshot(impl_->config(), snapshot, &impl_->state));
  impl_->forward->CancelPrefetch();
  return impl_->RebuildHistory();
}

Status Session::SaveSnapshot(const std::string& path) const {
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, Snapshot());
  ECPHORY_ASSIGN_OR_RETURN(std::unique_ptr<AtomicFileWriter> file,
                           AtomicFileWriter::Create(path));
  ECPHORY_RETURN_IF_ERROR(file->Write(bytes));
  return file->Commit();
}

Status Session::LoadSnapshot(const std::string& path) {
  ECPHORY_ASSIGN_OR_RETURN(const std::string bytes,
                           ReadWholeFile(path, kMaxSnapshotBytes));
  return Restore({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()})
      .WithContext(path);
}

}  // namespace ecphory
