#include "model/forward.h"

#include <algorithm>

#include "model/prefill.h"
#include "ops/aside.h"

namespace ecphory {

// The model on one screen. T tokens of the chunk, whichever sequences they are
// of, H streams, D hidden size.
Status Forward::RunLayers() {
  const bool whole = !chunk_->encoder_only;
  const uint32_t last_source = static_cast<uint32_t>(LastKvSource(config_));
  Embed();  // h[T, H, D], all streams alike
  for (uint32_t i = 0; i < (whole ? config_.n_layers : last_source); ++i) {
    const LayerWeights& layer = model_.weights->layers[i];
    ECPHORY_RETURN_IF_ERROR(Engram(i));  // h += gate * memory
    streams_.Site(layer.hc_attn, layer.attn_norm.data(),
                  [&](const float* x, float* y) { Attention(i, x, y); });
    ObserveSite(i, "attn");
    streams_.Site(layer.hc_ffn, layer.ffn_norm.data(),
                  [&](const float* x, float* y) { Moe(i, x, y); });
    ObserveSite(i, "ffn");
  }
  return whole ? Logits() : EnterDecoder(last_source);
}

Status Forward::Run(const ForwardChunk& chunk,
                    std::span<const ForwardSegment> segments,
                    std::span<ForwardDraw> draws, bool goes_on) {
  const bool begun =
      !draws.empty() && IsAhead(chunk.tokens, chunk.image, segments);
  if (!begun) DropAhead();
  chunk_ = &chunk;
  goes_on_ = goes_on;
  BeginDraws(draws);
  if (!begun) ECPHORY_RETURN_IF_ERROR(ChooseLogits());
  BeginSegments(segments);
  const Status status = RunOnDevice(begun);
  if (!status.ok()) {
    Abandon();
    return status;
  }
  Commit();
  FeedAhead();  // first: the device may stand still for it
  CommitLogits();
  return EndDraws(draws);
}

void Forward::Embed() {
  streams_.Begin(tokens());
  ops_.embed({.table = model_.weights->embed,
              .tokens = ids_.data(),
              .n_tokens = tokens(),
              .streams = config_.hc_mult,
              .h = streams_.streams()},
             pool_);
}

// Takes the chunk's rows (asked for before it began) as they come, the first
// tokens' while others are being read, and lets each stream decide how much of
// the memory's value it takes.
Status Forward::Engram(uint32_t i) {
  const int index = config_.engram.IndexOfLayer(i);
  if (index < 0 || !options_.engram) return Status::Ok();
  const EngramWeights& w = model_.weights->layers[i].engram;
  const size_t H = config_.hc_mult, D = config_.hidden_size;
  ObserveStreams(i, "streams_before_engram");
  const Streams h = streams_.streams();
  for (size_t t = 0; t < tokens();) {
    ECPHORY_ASSIGN_OR_RETURN(EngramFetch::Rows rows,
                             TakeRows(static_cast<size_t>(index), t));
    float* kv = engram_kv_.data() + t * (H + 1) * D;  // H keys and a value
    SendRows(w, kv, &rows);
    ProjectRows(w, rows, kv);
    RoundSeen(i, kv, rows.tokens * (H + 1) * D);
    ops_.engram_gate({.kv = kv,
                      .q_weight = w.q_weight.data(),
                      .k_weight = w.k_weight.data(),
                      .shut = image_.data() + t,
                      .tokens = rows.tokens,
                      .streams = H,
                      .dim = D,
                      .eps = config_.rms_norm_eps,
                      .h = h.From(t * H * D),
                      .gate = engram_gate_.data() + t * H},
                     pool_);
    t += rows.tokens;
  }
  queue_->MarkAhead();
  ObserveEngramValue(i);
  Observe(i, "engram.gate", engram_gate_.data(), {tokens(), H});
  ObserveStreams(i, "streams_after_engram");
  return Status::Ok();
}

// All that later tokens read of these in layer i, the last KV source, and the
// layers after it: i's window rows, entries and index keys (prefill.h).
Status Forward::EnterDecoder(uint32_t i) {
  const LayerWeights& layer = model_.weights->layers[i];
  ECPHORY_RETURN_IF_ERROR(Engram(i));
  const float* const x = streams_.Read(layer.hc_attn, layer.attn_norm.data());
  ProjectInput(i, x, /*queries=*/false);
  ProjectBeside(i, x, /*queries=*/false);
  StoreKv(i);
  return Status::Ok();
}

// Sliding window plus selected compressed entries; one KV vector per position
// serves all heads as key and value.
void Forward::Attention(uint32_t i, const float* x, float* y) {
  const AttentionWeights& w = model_.weights->layers[i].attn;
  Observe(i, "attn_in", x, {tokens(), config_.hidden_size});
  ProjectInput(i, x, /*queries=*/true);
  DoAside(*queue_, [&] {
    ProjectBeside(i, x, /*queries=*/true);
    StoreKv(i);
  });

  Norm(w.q_norm, qr_.data(), tokens());  // [T, q_lora_rank]
  ProjectQueries(i);                     // [T, n_heads, d], and the index's
  Rope(i, q_.data(), tokens(), config_.n_heads, config_.head_dim,
       positions_.data());

  JoinAside(*queue_);
  if (config_.IsIndexSource(i)) SelectCompressed(i);
  Attend(i);  // heads_[T, n_heads, d]
  Rope(i, heads_.data(), tokens(), config_.n_heads, config_.head_dim,
       positions_.data(), /*inverse=*/true);
  GroupedOutput(w, y);  // [T, D]
  RoundSeen(i, y, tokens() * config_.hidden_size);
  Observe(i, "attn_out", y, {tokens(), config_.hidden_size});
}

// What a token leaves for those after it.
void Forward::StoreKv(uint32_t i) {
  const AttentionWeights& w = model_.weights->layers[i].attn;
  Norm(w.kv_norm, kv_.data(), tokens());  // [T, d]
  Rope(i, kv_.data(), tokens(), 1, config_.head_dim, positions_.data());
  StoreWindow(i, kv_.data());  // FP8 rounding
  if (config_.IsKvSource(i)) PublishCompressed(i);
}

// A KV source turns every `ratio` tokens into one latent, from which the
// group's index key is made as well. Both replace what an earlier source
// published.
void Forward::PublishCompressed(uint32_t i) {
  const CompressorWeights& w = model_.weights->layers[i].attn.compressor;
  const size_t groups = PoolTokens(i);
  if (groups == 0) return;  // open groups wait for their last tokens
  Norm(w.norm, latent_.data(), groups);  // [groups, d]

  Project(w.index_wk, latent_.data(), groups, index_key_.data());
  Norm(w.index_k_norm, index_key_.data(), groups);  // before the latent's rope
  StoreCompressed(i, groups);                       // rope, FP4 rounding
}

// An index source chooses which compressed entries each position attends,
// for itself and the layers up to the next index source.
void Forward::SelectCompressed(uint32_t i) {
  const size_t heads = config_.index_n_heads, dim = config_.index_head_dim;
  Rope(i, index_q_.data(), tokens(), heads, dim, positions_.data());
  ops_.round_rows(
      {.x = index_q_.data(),
       .rows = tokens() * heads,
       .dim = dim,
       .format = CacheFormats::For(options_.state_rounding).index_key},
      pool_);  // FP4 rounding

  Select(i);  // selected_[T, index_topk]
  ObserveSelected(i);
}

// Routed experts and the shared one, summed in fp32.
void Forward::Moe(uint32_t i, const float* x, float* y) {
  const MoeWeights& w = model_.weights->layers[i].moe;
  Observe(i, "ffn_in", x, {tokens(), config_.hidden_size});
  const auto run_shared = [&](bool accumulate) {
    if (config_.n_shared_experts == 0) return;
    RunExperts({&w.shared, 1}, w.device_shared, shared_ids_.data(),
               shared_weights_.data(), 1, x, accumulate, y);
  };
  const bool shared_first = queue_->records() && config_.n_shared_experts > 0;
  if (shared_first) {  // beside the router
    DoAside(*queue_, [&] { run_shared(/*accumulate=*/false); });
  }
  Route(w, x);  // expert ids and weights
  ObserveRouter(i);
  if (shared_first) JoinAside(*queue_);
  RunExperts(w.experts, w.device_experts, expert_ids_.data(),
             expert_weights_.data(), config_.n_experts_per_token, x,
             /*accumulate=*/shared_first, y);
  if (!shared_first) run_shared(/*accumulate=*/true);
  RoundSeen(i, y, tokens() * config_.hidden_size);
  Observe(i, "ffn_out", y, {tokens(), config_.hidden_size});
}

Status Forward::Logits() {
  if (chunk_->logits == LogitsWanted::kNone && !chunk_->observer) {
    return Status::Ok();
  }
  // Of the last tokens nothing before the first one's.
  const bool all = chunk_->logits != LogitsWanted::kLast || chunk_->observer;
  const size_t first = all ? 0 : segments_[0].last();
  const size_t begin = first * config_.hidden_size;
  const float* const x = streams_.Final({}, first);  // [T, D]
  Norm(model_.weights->norm, x + begin, tokens() - first,
       hidden_.data() + begin);
  Observe(config_.n_layers - 1, "final_hidden", hidden_.data(),
          {tokens(), config_.hidden_size});
  return EmitLogits();  // head, fp32
}

}  // namespace ecphory
