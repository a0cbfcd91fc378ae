// Attention, the indexer, the decoding of table rows and the drawing of tokens.
#include <algorithm>
#include <random>

#include "cuda_bench.h"
#include "ops/ops.h"
#include "ops/sample.h"

namespace ecphory {
namespace {

constexpr size_t kHeads = 64, kDim = 512, kWindow = 128, kTopk = 512;
constexpr size_t kIndexHeads = 32, kIndexDim = 128;
constexpr size_t kCandidateBlock = 8, kCandidateBlocks = 2048;

std::string NameOf(const char* what, size_t tokens, size_t context) {
  return std::string(what) + "/" + std::to_string(tokens) + " at " +
         std::to_string(context);
}

// Ascending ids below `latents`, kTopk a token.
int32_t* Selections(size_t tokens, size_t latents) {
  std::mt19937 random(static_cast<uint32_t>(tokens + latents));
  std::vector<int32_t> ids(tokens * kTopk);
  for (size_t t = 0; t < tokens; ++t) {
    int32_t* const of_token = ids.data() + t * kTopk;
    // One of every latents / kTopk entries in turn.
    const uint32_t step = static_cast<uint32_t>(latents / kTopk);
    for (uint32_t i = 0; i < kTopk; ++i) {
      of_token[i] = static_cast<int32_t>(i * step + random() % step);
    }
  }
  const size_t bytes = ids.size() * sizeof(int32_t);
  int32_t* const copy = static_cast<int32_t*>(Device(bytes));
  Check(cudaMemcpy(copy, ids.data(), bytes, cudaMemcpyHostToDevice));
  return copy;
}

// A layer with compressed entries, ratio 1, everything selected that can be.
void BenchAttention(Bench& bench, size_t tokens, size_t context,
                    bool bf16 = false) {
  const std::string name =
      NameOf("attention", tokens, context) + (bf16 ? "/bf16" : "");
  if (!bench.Wanted(name)) return;
  const size_t capacity = kWindow + tokens;
  const size_t window_bytes = RowBytes(RowFormat::kFp8Block32, kDim);
  const size_t latent_bytes = RowBytes(RowFormat::kFp4Block16, kDim);
  // Magnitudes of one binade in codes and scales alike.
  const size_t sets = tokens < 64 ? 20 : 2;
  float* const sink = Floats(kHeads);
  int32_t* const selected = Selections(tokens, context);
  std::vector<std::function<void()>> launches;
  for (size_t i = 0; i < sets; ++i) {
    float* const q = Floats(tokens * kHeads * kDim);
    float* const out = Floats(tokens * kHeads * kDim);
    if (bf16) {
      Check(cudaDeviceSynchronize());  // filled by another stream
      CudaOps().round_bf16({.x = q, .count = tokens * kHeads * kDim},
                           bench.pool);
    }
    uint8_t* const window = Codes(capacity * window_bytes, 112, 14);
    uint8_t* const latents = Codes(context * latent_bytes, 112, 14);
    launches.push_back([=, &bench] {
      CudaOps().attention(AttentionArgs{.q = q,
                                        .tokens = tokens,
                                        .heads = kHeads,
                                        .dim = kDim,
                                        .first_position = context,
                                        .window_format = RowFormat::kFp8Block32,
                                        .latent_format = RowFormat::kFp4Block16,
                                        .round_bf16 = bf16,
                                        .scale = 0.04f,
                                        .window_rows = window,
                                        .window_capacity = capacity,
                                        .window = kWindow,
                                        .latent_rows = latents,
                                        .selected = selected,
                                        .topk = kTopk,
                                        .sink = sink,
                                        .out = out},
                          bench.pool);
    });
  }
  const size_t rows = (kWindow + tokens - 1) * window_bytes +
                      std::min(tokens * kTopk, context) * latent_bytes;
  const size_t vectors = 2 * tokens * kHeads * kDim * sizeof(float);
  bench.Report(name, static_cast<double>(rows + vectors), launches);
}

// Scores of all entries, then the best, and of one token the best blocks.
void BenchIndexer(Bench& bench, size_t tokens, size_t context) {
  const std::string scores_name = NameOf("index_scores", tokens, context);
  const std::string topk_name = NameOf("select_topk", tokens, context);
  const std::string blocks_name = NameOf("candidate_blocks", tokens, context);
  if (!bench.Wanted(scores_name) && !bench.Wanted(topk_name) &&
      !bench.Wanted(blocks_name)) {
    return;
  }
  const size_t key_bytes = RowBytes(RowFormat::kFp4Block32, kIndexDim);
  float* const weights = Floats(tokens * kIndexHeads);
  float* const q = Floats(tokens * kIndexHeads * kIndexDim);
  int32_t* const selected = Selections(tokens, context);
  uint8_t* const mask = Codes(tokens * (context / kCandidateBlock), 0, 0);
  std::vector<std::function<void()>> scoring, selecting, choosing;
  for (size_t i = 0; i < (tokens < 64 ? 30u : 1u); ++i) {
    uint8_t* const keys = Codes(context * key_bytes, 120, 7);
    float* const scores = Floats(tokens * context);
    float* const made = tokens < 64 ? Floats(tokens * context) : scores;
    selecting.push_back([=, &bench] {
      CudaOps().select_topk(SelectTopkArgs{.scores = scores,
                                           .tokens = tokens,
                                           .groups = context,
                                           .topk = kTopk,
                                           .selected = selected},
                            bench.pool);
    });
    choosing.push_back([=, &bench] {
      CudaOps().candidate_blocks(
          CandidateBlocksArgs{.scores = scores,
                              .tokens = tokens,
                              .groups = context,
                              .block_size = kCandidateBlock,
                              .top_blocks = kCandidateBlocks,
                              .mask = mask},
          bench.pool);
    });
    scoring.push_back([=, &bench] {
      CudaOps().index_scores(
          IndexScoresArgs{.q = q,
                          .weights = weights,
                          .tokens = tokens,
                          .heads = kIndexHeads,
                          .dim = kIndexDim,
                          .first_position = context,
                          .ratio = 1,
                          .key_format = RowFormat::kFp4Block32,
                          .key_rows = keys,
                          .groups = context,
                          .key_scale = 0.1f,
                          .head_scale = 0.2f,
                          .scores = made},
          bench.pool);
    });
  }
  const double score_bytes = static_cast<double>(tokens * context * 4);
  bench.Report(topk_name, score_bytes, selecting);
  bench.Report(blocks_name, score_bytes, choosing);
  bench.Report(scores_name,
               score_bytes + static_cast<double>(context * key_bytes), scoring);
}

// The rows of `tokens` tokens of one Engram layer, 264 bytes each, in the
// memory of the device or of the host.
void BenchRows(Bench& bench, size_t tokens, bool of_host) {
  const std::string name = std::string("decode rows of the ") +
                           (of_host ? "host/" : "device/") +
                           std::to_string(tokens);
  if (!bench.Wanted(name)) return;
  constexpr size_t kWidth = 256, kRowBytes = 264;
  const size_t count = tokens * 24, bytes = count * kRowBytes;
  std::vector<std::function<void()>> launches;
  uint32_t* const broken = static_cast<uint32_t*>(Device(sizeof(uint32_t)));
  for (size_t i = 0; i < (tokens < 64 ? 200u : 4u); ++i) {
    uint8_t* rows = Codes(bytes, 0, 0x7e);
    if (of_host) {
      void* shared = nullptr;
      Check(cudaHostAlloc(&shared, bytes, cudaHostAllocDefault));
      Check(cudaMemcpy(shared, rows, bytes, cudaMemcpyDeviceToHost));
      rows = static_cast<uint8_t*>(shared);
    }
    float* const x = static_cast<float*>(Device(count * kWidth * 4));
    launches.push_back([=, &bench] {
      CudaOps().decode_rows({.from = {.codec = TableCodec::kRow264,
                                      .rows = rows,
                                      .row_stride = kRowBytes},
                             .count = count,
                             .width = kWidth,
                             .x = x,
                             .broken = broken},
                            bench.pool);
    });
  }
  bench.Report(name, static_cast<double>(bytes + count * kWidth * 4), launches);
}

// Tokens from the logits of `n_rows` texts, at temperature 1.
void BenchSample(Bench& bench, size_t n_rows, float top_p) {
  const std::string name =
      "sample/" + std::to_string(n_rows) + (top_p < 1 ? " with top_p" : "");
  if (!bench.Wanted(name)) return;
  constexpr size_t kVocab = 129280;
  auto* const sampled = static_cast<Sampled*>(Device(n_rows * sizeof(Sampled)));
  std::mt19937_64 random(5);
  std::vector<std::function<void()>> launches;
  for (size_t i = 0; i < (n_rows < 8 ? 40u : 4u); ++i) {
    const float* const logits = Floats(n_rows * kVocab, 3);
    std::vector<SampleRow> rows(n_rows);
    for (size_t r = 0; r < n_rows; ++r) {
      rows[r] = {.logits = logits + r * kVocab,
                 .temperature = 1,
                 .top_p = top_p,
                 .random = random()};
    }
    launches.push_back([=, &bench] {
      CudaOps().sample({.rows = rows.data(),
                        .n_rows = n_rows,
                        .vocab = kVocab,
                        .sampled = sampled},
                       bench.pool);
    });
  }
  bench.Report(name, static_cast<double>(n_rows * kVocab * sizeof(float)),
               launches);
}

}  // namespace

void BenchAttentions(Bench& bench) {
  for (const size_t tokens : {1, 32, 4096}) {
    for (const size_t context : {1024, 65536}) {
      BenchAttention(bench, tokens, context);
    }
  }
  BenchAttention(bench, 4096, 65536, /*bf16=*/true);
  for (const size_t tokens : {1, 32, 4096}) {
    for (const size_t context : {1024, 65536, 131072}) {
      if (tokens < 64 || context == 65536) {
        BenchIndexer(bench, tokens, context);
      }
    }
  }
  for (const size_t tokens : {1, 4096}) {
    for (const bool of_host : {false, true}) BenchRows(bench, tokens, of_host);
  }
  for (const size_t rows : {1, 32}) {
    for (const float top_p : {1.0f, 0.9f}) BenchSample(bench, rows, top_p);
  }
}

}  // namespace ecphory
