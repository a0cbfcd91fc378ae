// Opening a model for tracing, and tracing a text with it.
#include <algorithm>
#include <optional>
#include <utility>

#include "ecphory/engram_trace.h"
#include "ecphory/output_path.h"
#include "ecphory/session.h"
#include "engram/source.h"
#include "io/file.h"
#include "model/model_impl.h"
#include "model/source.h"
#include "text/tokenizer_file.h"
#include "trace/addresses.h"
#include "trace/gate_observer.h"

namespace ecphory {

namespace {

void AddPieces(const Tokenizer& tokenizer, EngramTrace* trace) {
  for (EngramTraceToken& token : trace->tokens) {
    token.piece = tokenizer.TokenBytes(token.id);
    token.special = tokenizer.IsSpecial(token.id);
  }
}

}  // namespace

struct EngramTracer::Impl {
  std::string path;
  ModelConfig config;
  std::optional<engram::Hasher> hasher;
  std::optional<Tokenizer> tokenizer;
  std::shared_ptr<const Model> model;  // null: addresses only

  Status OpenAddresses();
  Status AddStreams(std::span<const int32_t> tokens,
                    const EngramTraceOptions& options,
                    EngramTrace* trace) const;
  Result<size_t> TokensToTrace(std::span<const int32_t> tokens,
                               const EngramTraceOptions& options) const;
};

EngramTracer::EngramTracer(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
EngramTracer::~EngramTracer() = default;

Result<std::unique_ptr<EngramTracer>> EngramTracer::Open(
    const std::string& path, const EngramTracerOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  if (options.weights) {
    ECPHORY_ASSIGN_OR_RETURN(impl->model, Model::Open(path, options.model));
    impl->config = impl->model->config();
    impl->hasher = impl->model->impl().hasher;
    impl->tokenizer = impl->model->impl().source.tokenizer;
  } else {
    ECPHORY_RETURN_IF_ERROR(impl->OpenAddresses());
  }
  if (!impl->hasher) {
    return InvalidArgument("%s: the model has no Engram memory", path.c_str());
  }
  if (!options.tokenizer.empty()) {
    ECPHORY_ASSIGN_OR_RETURN(impl->tokenizer,
                             ReadTokenizerFile(options.tokenizer));
  }
  return std::unique_ptr<EngramTracer>(new EngramTracer(std::move(impl)));
}

const Tokenizer* EngramTracer::tokenizer() const {
  return impl_->tokenizer ? &*impl_->tokenizer : nullptr;
}

// A model's headers, or, where that is not a whole model, its Engram's numbers.
Status EngramTracer::Impl::OpenAddresses() {
  Result<ModelSource> whole = OpenModelSource(path);
  if (whole.ok()) {
    config = whole->config;
    tokenizer = std::move(whole->tokenizer);
    if (!config.engram.enabled()) return {};
    ECPHORY_ASSIGN_OR_RETURN(hasher, MakeHasher(*whole));
    return {};
  }
  engram::SourceOptions options;
  options.read_tokenizer = true;
  options.tables = false;
  Result<engram::Source> alone = engram::OpenSource(path, options);
  if (!alone.ok()) return whole.status();
  config.engram = alone->config;
  config.image_token_id = alone->image_token_id;
  tokenizer = std::move(alone->tokenizer);
  ECPHORY_ASSIGN_OR_RETURN(hasher, engram::MakeHasher(*alone));
  return {};
}

const Model* EngramTracer::model() const { return impl_->model.get(); }

Result<size_t> EngramTracer::Impl::TokensToTrace(
    std::span<const int32_t> tokens, const EngramTraceOptions& options) const {
  if (tokens.empty()) {
    return InvalidArgument("no token to trace, expected at least one");
  }
  if (options.limit == 0 || options.limit > kMaxTraceTokens) {
    return InvalidArgument("limit of %u tokens: expected 1 to %u",
                           options.limit, kMaxTraceTokens);
  }
  if (!options.image_mask.empty() &&
      options.image_mask.size() != tokens.size()) {
    return InvalidArgument("image mask of %zu positions for %zu tokens",
                           options.image_mask.size(), tokens.size());
  }
  const size_t count = std::min<size_t>(tokens.size(), options.limit);
  if (model == nullptr) return count;
  return std::min<size_t>(count, config.max_positions);
}

Status EngramTracer::Impl::AddStreams(std::span<const int32_t> tokens,
                                      const EngramTraceOptions& options,
                                      EngramTrace* trace) const {
  SessionOptions session_options;
  session_options.context = static_cast<uint32_t>(tokens.size());
  ECPHORY_ASSIGN_OR_RETURN(const auto session,
                           Session::Create(model, session_options));
  trace::GateObserver observer(
      config.engram.layer_ids, [&](size_t token, size_t layer,
                                   std::span<const EngramStreamTrace> streams) {
        trace->tokens[token].layers[layer].streams.assign(streams.begin(),
                                                          streams.end());
      });
  AppendOptions append;
  append.logits = LogitsWanted::kNone;
  append.observer = &observer;
  append.cancel = options.cancel;
  if (!options.image_mask.empty()) {
    append.image_mask = options.image_mask.first(tokens.size());
  }
  return session->Append(tokens, append);
}

Result<EngramTrace> EngramTracer::Trace(
    std::span<const int32_t> tokens, const EngramTraceOptions& options) const {
  const Impl& impl = *impl_;
  ECPHORY_ASSIGN_OR_RETURN(const size_t count,
                           impl.TokensToTrace(tokens, options));
  EngramTrace trace;
  trace.path = impl.path;
  trace.name = impl.config.name;
  trace.tokens_given = tokens.size();
  tokens = tokens.first(count);
  const engram::Layout& layout = impl.hasher->layout();
  trace.max_ngram = layout.max_ngram;
  trace.heads = layout.heads;
  trace.row_width = impl.config.engram.head_dim;
  trace.pad_compressed = impl.hasher->pad_id();
  trace.layers = trace::DescribeLayers(layout);
  std::span<const uint8_t> mask = options.image_mask;
  if (!mask.empty()) mask = mask.first(count);
  ECPHORY_RETURN_IF_ERROR(trace::TraceAddresses(
      *impl.hasher, tokens, ImagePositions(impl.config, tokens, mask), &trace));
  if (impl.tokenizer) AddPieces(*impl.tokenizer, &trace);
  trace.classes = trace::DescribeClasses(*impl.hasher, tokenizer(), trace);
  if (impl.model != nullptr) {
    trace.backend = impl.model->backend();
    trace.streams = impl.config.hc_mult;
    ECPHORY_RETURN_IF_ERROR(impl.AddStreams(tokens, options, &trace));
  }
  return trace;
}

Status CheckTextFile(const std::string& path,
                     std::span<const std::string> inputs) {
  return CheckOutputPath(path, inputs);
}

Status WriteTextFile(const std::string& path, const std::string& text) {
  ECPHORY_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFileWriter> file,
                           AtomicFileWriter::Create(path));
  ECPHORY_RETURN_IF_ERROR(file->Write(
      {reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
  return file->Commit();
}

}  // namespace ecphory
