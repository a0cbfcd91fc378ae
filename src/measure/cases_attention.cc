// Attention over packed caches, and the choice of what it attends.
#include <algorithm>
#include <string>

#include "measure/op_case.h"

namespace ecphory::measure {

namespace {

std::string ContextName(uint64_t context) {
  return std::to_string(context / 1024) + "k";
}

using Bytes = std::shared_ptr<std::vector<uint8_t>>;

// Rows of random values, the same again after 1,021 of them: encoding is slow.
Bytes PackedRows(RowFormat format, size_t rows, size_t dim) {
  const size_t bytes = RowBytes(format, dim);
  const size_t distinct = std::min<size_t>(rows, 1021);
  auto packed = std::make_shared<std::vector<uint8_t>>(rows * bytes);
  RandomBits bits(dim);
  std::vector<float> x(dim);
  for (size_t r = 0; r < distinct; ++r) {
    for (float& value : x) value = bits.Signed();
    EncodeRow(format, x.data(), dim, packed->data() + r * bytes);
  }
  for (size_t r = distinct; r < rows; ++r) {
    std::copy_n(packed->data() + (r - distinct) * bytes, bytes,
                packed->data() + r * bytes);
  }
  return packed;
}

// `topk` of `groups` entries for each token, ascending.
std::shared_ptr<std::vector<int32_t>> Selections(size_t tokens, size_t topk,
                                                 size_t groups) {
  auto selected = std::make_shared<std::vector<int32_t>>(tokens * topk);
  RandomBits bits(groups);
  const size_t step = groups / topk;
  for (size_t i = 0; i < selected->size(); ++i) {
    (*selected)[i] = static_cast<int32_t>(i % topk * step + bits.Next() % step);
  }
  return selected;
}

Result<PreparedCase> PrepareAttention(CaseContext& context, size_t tokens) {
  const Sizes& sizes = context.sizes();
  const size_t heads = sizes.heads, dim = sizes.head_dim;
  const size_t width = tokens * heads * dim;
  const size_t capacity = sizes.window + tokens, topk = sizes.index_topk;
  const size_t W = sizes.window, groups = sizes.entries;
  const uint64_t position = 2 * groups;  // of ratio 2
  ECPHORY_ASSIGN_OR_RETURN(const auto q, context.Floats(width));
  ECPHORY_ASSIGN_OR_RETURN(const auto out, context.Floats(width));
  ECPHORY_ASSIGN_OR_RETURN(const auto sink, context.Floats(heads));
  const Bytes window = PackedRows(RowFormat::kFp8Block32, capacity, dim);
  const Bytes latents = PackedRows(RowFormat::kFp4Block16, groups, dim);
  const auto selected = Selections(tokens, topk, groups);
  const auto args = [=] {
    return AttentionArgs{.q = q->floats(),
                         .tokens = tokens,
                         .heads = heads,
                         .dim = dim,
                         .first_position = position,
                         .window_format = RowFormat::kFp8Block32,
                         .latent_format = RowFormat::kFp4Block16,
                         .scale = 0.04f,
                         .window_rows = window->data(),
                         .window_capacity = capacity,
                         .window = W,
                         .latent_rows = latents->data(),
                         .selected = selected->data(),
                         .topk = topk,
                         .sink = sink->floats(),
                         .out = out->floats()};
  };
  return PreparedCase{
      {[=, &context] { context.ops().attention(args(), context.pool()); },
       nullptr},
      CostOf(args())};
}

Result<PreparedCase> PrepareScores(CaseContext& context, size_t tokens,
                                   uint64_t groups) {
  const size_t heads = context.sizes().index_heads;
  const size_t dim = context.sizes().index_dim;
  ECPHORY_ASSIGN_OR_RETURN(const auto q, context.Floats(tokens * heads * dim));
  ECPHORY_ASSIGN_OR_RETURN(const auto weights, context.Floats(tokens * heads));
  ECPHORY_ASSIGN_OR_RETURN(const auto scores, context.Floats(tokens * groups));
  const Bytes keys = PackedRows(RowFormat::kFp4Block32, groups, dim);
  // Queries are rounded as keys are.
  context.ops().round_rows({.x = q->floats(),
                            .rows = tokens * heads,
                            .dim = dim,
                            .format = RowFormat::kFp4Block32},
                           context.pool());
  const auto args = [=] {
    return IndexScoresArgs{.q = q->floats(),
                           .weights = weights->floats(),
                           .tokens = tokens,
                           .heads = heads,
                           .dim = dim,
                           .first_position = groups,
                           .ratio = 1,
                           .key_format = RowFormat::kFp4Block32,
                           .key_rows = keys->data(),
                           .groups = groups,
                           .key_scale = 0.088f,
                           .head_scale = 0.177f,
                           .scores = scores->floats()};
  };
  return PreparedCase{
      {[=, &context] { context.ops().index_scores(args(), context.pool()); },
       nullptr},
      CostOf(args())};
}

constexpr size_t kBlockSize = 8, kTopBlocks = 2048;

Result<PreparedCase> PrepareBlocks(CaseContext& context, uint64_t groups) {
  ECPHORY_ASSIGN_OR_RETURN(const auto scores, context.Floats(groups));
  auto mask = std::make_shared<std::vector<uint8_t>>(groups / kBlockSize);
  const auto args = [=] {
    return CandidateBlocksArgs{.scores = scores->floats(),
                               .tokens = 1,
                               .groups = groups,
                               .block_size = kBlockSize,
                               .top_blocks = kTopBlocks,
                               .mask = mask->data()};
  };
  return PreparedCase{{[=, &context] {
                         context.ops().candidate_blocks(args(), context.pool());
                       },
                       nullptr},
                      CostOf(args())};
}

Result<PreparedCase> PrepareTopk(CaseContext& context, uint64_t groups) {
  const size_t topk = context.sizes().index_topk;
  ECPHORY_ASSIGN_OR_RETURN(const auto scores, context.Floats(groups));
  auto selected = std::make_shared<std::vector<int32_t>>(topk);
  const auto args = [=] {
    return SelectTopkArgs{.scores = scores->floats(),
                          .tokens = 1,
                          .groups = groups,
                          .topk = topk,
                          .selected = selected->data()};
  };
  return PreparedCase{
      {[=, &context] { context.ops().select_topk(args(), context.pool()); },
       nullptr},
      CostOf(args())};
}

}  // namespace

void AddAttentionCases(const Sizes& sizes, std::vector<OpCase>* cases) {
  const auto add = [&](const std::string& name, auto prepare) {
    cases->push_back({name, {}, prepare});
  };
  for (const size_t tokens : {size_t{1}, kPromptTokens}) {
    add("attention" + std::to_string(tokens), [=](CaseContext& context) {
      return PrepareAttention(context, tokens);
    });
  }
  for (const uint64_t groups : sizes.contexts) {
    add("index_scores1/" + ContextName(groups), [=](CaseContext& context) {
      return PrepareScores(context, 1, groups);
    });
    add("candidate_blocks1/" + ContextName(groups),
        [=](CaseContext& context) { return PrepareBlocks(context, groups); });
    add("select_topk1/" + ContextName(groups),
        [=](CaseContext& context) { return PrepareTopk(context, groups); });
  }
  const uint64_t groups = sizes.prompt_context;
  add("index_scores512/" + ContextName(groups), [=](CaseContext& context) {
    return PrepareScores(context, kPromptTokens, groups);
  });
}

}  // namespace ecphory::measure
