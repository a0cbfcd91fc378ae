// Why the tail is as long as it is.
//
// Let n be the layers, W the window, S the last KV source and A the first token
// of the tail. What a token t reads of the tokens before it, in a layer after
// S, is that layer's window rows of t-W+1 .. t-1 and the entries S published.
// The rest is its own: its streams, its Engram rows, and its selection, which
// an index source makes at t from t's query, S's index keys and t's candidates.
//
//  1. Every token passes the layers before S, and S's window rows, entries and
//     index keys are made from these layers' streams alone. So they are exact
//     for all tokens, and S's own output is exact from A on.
//  2. Window rows of layer l+1 at t are made from the output of layer l at t.
//     If that is exact from E on, then so are the rows, and the output of layer
//     l+1 from E + W-1 on, where none of the rows read is older than E.
//  3. Hence the window rows of layer S+k are exact from A + (k-1)(W-1) on and
//     its output from A + k(W-1) on. With the halo h = (n-1-S)(W-1), logits are
//     exact from token A + h on, and no earlier: token A + h - 1 of the last
//     layer reads one row that is not.
//  4. The token appended next, at position p, reads rows from p-W+1 on: p may
//     be continued if p >= A + h. What leaves a ring W + chunk rows long in a
//     snapshot at p is exact if p >= A + h + chunk + 1, and then any of the
//     `chunk` positions before p may be gone back to as well.
//
// So kSkip takes A <= tokens - (h + chunk + 1). In the release, h = 19 * 127 =
// 2413: 2414 tokens for the logits alone, and 2670 with a chunk of 256.
//
// Rows older than A are not there in the layers after S, and attention is told
// so: values between A and A + h are wrong, but numbers like any other, and by
// 3 and 4 nothing that is kept descends from them.
#include "model/prefill.h"

namespace ecphory {

int LastKvSource(const ModelConfig& config) {
  const auto& sources = config.kv_source_layer_ids;  // ascending
  return sources.empty() ? -1 : static_cast<int>(sources.back());
}

uint64_t DecoderHalo(const ModelConfig& config) {
  const int source = LastKvSource(config);
  if (source < 0) return 0;
  return uint64_t{config.n_layers - 1 - static_cast<uint32_t>(source)} *
         (config.sliding_window - 1);
}

PrefillPlan PlanPrefill(const ModelConfig& config,
                        const SessionOptions& options, size_t tokens) {
  if (LastKvSource(config) < 0 || options.prefill == Prefill::kFull) return {};
  if (options.prefill == Prefill::kReplay) {
    // The published method: a window's length, whatever the layers.
    if (tokens <= config.sliding_window) return {};
    return {.tail = tokens - config.sliding_window, .whole = tokens};
  }
  const uint64_t halo = DecoderHalo(config);
  const uint64_t needed = halo + options.chunk + 1;
  if (tokens <= needed) return {};
  // Passes stay where the full pass has them: one more of them, through the
  // encoder, would cost about what half a chunk in the decoder does.
  const size_t tail = (tokens - needed) / options.chunk * options.chunk;
  if (tail == 0) return {};
  return {.tail = tail, .whole = static_cast<size_t>(tail + halo + 1)};
}

uint64_t ShortestSkipping(const ModelConfig& config,
                          const SessionOptions& options) {
  if (LastKvSource(config) < 0 || options.prefill == Prefill::kFull) return 0;
  if (options.prefill == Prefill::kReplay) return config.sliding_window + 1;
  return DecoderHalo(config) + 2 * uint64_t{options.chunk} + 1;
}

}  // namespace ecphory
