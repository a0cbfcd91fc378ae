// Bytes and operations at released sizes, computed by hand.
#include "measure/op_cost.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace ecphory::measure {
namespace {

Matrix Weight(WeightFormat format, size_t rows, size_t cols) {
  return {.format = format, .rows = rows, .cols = cols};
}

TEST(OpCost, MatrixBytesCountScales) {
  // 5120 * 2304 codes, 160 * 72 scales.
  EXPECT_EQ(MatrixBytes(Weight(WeightFormat::kFp8Tile32, 5120, 2304)),
            11'796'480 + 11'520);
  // 2304 * 2560 bytes of codes, 2304 * 160 scales.
  EXPECT_EQ(MatrixBytes(Weight(WeightFormat::kFp4Row32, 2304, 5120)),
            5'898'240 + 368'640);
  // 2304 * 160 blocks of 17 bytes.
  EXPECT_EQ(MatrixBytes(Weight(WeightFormat::kMXFP4, 2304, 5120)), 6'266'880);
  // 32768 * 40 blocks of 34 bytes.
  EXPECT_EQ(MatrixBytes(Weight(WeightFormat::kQ8_0, 32768, 1280)), 44'564'480);
  EXPECT_EQ(MatrixBytes(Weight(WeightFormat::kF16, 25600, 6144)), 314'572'800);
  EXPECT_EQ(MatrixBytes(Weight(WeightFormat::kF32, 24, 20480)), 1'966'080);
}

TEST(OpCost, TileScalesOfABlockOfRows) {
  // Rows 16 to 47 touch two bands of 32 rows, each with 4 scales.
  const Matrix all = Weight(WeightFormat::kFp8Tile32, 64, 128);
  EXPECT_EQ(MatrixBytes(all.RowBlock(16, 32)), 32 * 128 + 2 * 4);
  EXPECT_EQ(MatrixBytes(all.RowBlock(32, 32)), 32 * 128 + 4);
}

TEST(OpCost, Matmul) {
  const OpCost cost = CostOf(MatmulArgs{
      .weight = Weight(WeightFormat::kQ8_0, 32768, 1280), .tokens = 1});
  EXPECT_EQ(cost.bytes, 44'564'480 + 4 * (32768 + 1280));
  EXPECT_EQ(cost.flops, 83'886'080);
  EXPECT_EQ(cost.stored, 44'564'480);
  const OpCost prompt = CostOf(MatmulArgs{
      .weight = Weight(WeightFormat::kFp4Row32, 2304, 5120), .tokens = 512});
  EXPECT_EQ(prompt.bytes, 6'266'880 + 4.0 * 512 * (2304 + 5120));
  EXPECT_EQ(prompt.flops, 12'079'595'520);
}

TEST(OpCost, ExpertsAreReadOnceEach) {
  const Expert expert = {Weight(WeightFormat::kFp4Row32, 2304, 5120),
                         Weight(WeightFormat::kFp4Row32, 2304, 5120),
                         Weight(WeightFormat::kFp4Row32, 5120, 2304)};
  EXPECT_EQ(ExpertBytes(expert), 18'800'640);
  const std::vector<Expert> experts(8, expert);
  const std::vector<int32_t> ids = {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 7};
  ExpertsArgs args = {.tokens = 1,
                      .dim = 5120,
                      .experts = experts.data(),
                      .n_experts = experts.size(),
                      .inner = experts[0].w1.rows,
                      .ids = ids.data(),
                      .topk = 6};
  EXPECT_EQ(CostOf(args).bytes, 6 * 18'800'640 + 2 * 4 * 5120);
  // 6 experts of three products of 2304 * 5120.
  EXPECT_EQ(CostOf(args).flops, 424'673'280);
  args.tokens = 2;
  EXPECT_EQ(CostOf(args).bytes, 7 * 18'800'640 + 2 * 2 * 4 * 5120);
  EXPECT_EQ(CostOf(args).flops, 849'346'560);
}

TEST(OpCost, HyperConnections) {
  const Streams h;
  HcSplitArgs args = {.h = h,
                      .fn = Weight(WeightFormat::kF32, 24, 20480),
                      .tokens = 1,
                      .streams = 4,
                      .dim = 5120};
  // The weights, four streams read, one vector written.
  EXPECT_EQ(CostOf(args).bytes, 1'966'080 + 5 * 20'480);
  // Of each of 5,120 channels: 24 products and a square in four streams, four
  // of the collapse, two of the norm.
  EXPECT_EQ(CostOf(args).flops, 2 * 5120 * 106);
  const float y = 0;
  args.y = &y;
  // (2 * 4 + 2) * 5120 values in all, and 20 more products a channel.
  EXPECT_EQ(CostOf(args).bytes, 1'966'080 + 10 * 20'480);
  EXPECT_EQ(CostOf(args).flops, 2 * 5120 * 126);
  // Streams of half the bytes; x and y are fp32.
  args.h.format = StreamFormat::kBF16;
  EXPECT_EQ(CostOf(args).bytes, 1'966'080 + (8 * 2 + 2 * 4) * 5120);
  const OpCost collapse =
      CostOf(HcCollapseArgs{.h = h, .tokens = 512, .streams = 4, .dim = 5120});
  EXPECT_EQ(collapse.bytes, 512.0 * 5 * 5120 * 4);
  EXPECT_EQ(collapse.flops, 20'971'520);
  const OpCost expand =
      CostOf(HcExpandArgs{.tokens = 1, .streams = 4, .dim = 5120, .h = h});
  EXPECT_EQ(expand.bytes, 184'320);
  EXPECT_EQ(expand.flops, 204'800);
}

TEST(OpCost, AttentionOfOneToken) {
  std::vector<int32_t> selected(512);
  std::iota(selected.begin(), selected.end(), 100);
  AttentionArgs args = {.tokens = 1,
                        .heads = 64,
                        .dim = 512,
                        .first_position = 65536,
                        .window_format = RowFormat::kFp8Block32,
                        .latent_format = RowFormat::kFp4Block16,
                        .window = 128,
                        .selected = selected.data(),
                        .topk = 512};
  // 128 rows of 528 bytes, 512 of 288, queries and results in fp32.
  EXPECT_EQ(CostOf(args).bytes, 67'584 + 147'456 + 262'144);
  EXPECT_EQ(CostOf(args).stored, 67'584 + 147'456);
  EXPECT_EQ(CostOf(args).flops, 83'886'080);
  // Entries behind the first -1 do not exist.
  std::fill(selected.begin() + 10, selected.end(), -1);
  EXPECT_EQ(CostOf(args).bytes, 67'584 + 10 * 288 + 262'144);
  EXPECT_EQ(CostOf(args).flops, 4.0 * 138 * 64 * 512);
}

TEST(OpCost, AttentionOfAPromptReadsSharedRowsOnce) {
  const std::vector<int32_t> selected = {0, 1, 0, 2, 1, -1};
  const AttentionArgs args = {.tokens = 3,
                              .heads = 2,
                              .dim = 32,
                              .first_position = 0,
                              .window_format = RowFormat::kF32,
                              .latent_format = RowFormat::kF32,
                              .window = 128,
                              .selected = selected.data(),
                              .topk = 2};
  // Positions 0 to 2, entries 0 to 2; q and out of 3 * 64 values.
  EXPECT_EQ(CostOf(args).bytes, 3 * 128 + 3 * 128 + 2 * 4 * 192);
  // 1 + 2 + 3 window positions and 2 + 2 + 1 entries.
  EXPECT_EQ(CostOf(args).flops, 4 * 11 * 64);
}

TEST(OpCost, IndexScores) {
  IndexScoresArgs args = {.tokens = 1,
                          .heads = 32,
                          .dim = 128,
                          .first_position = 65535,
                          .ratio = 1,
                          .key_format = RowFormat::kFp4Block32,
                          .groups = 65536};
  // Keys of 68 bytes, 4,096 query values, a score an entry.
  EXPECT_EQ(CostOf(args).bytes, 4'456'448 + 4 * (4096 + 65536));
  EXPECT_EQ(CostOf(args).flops, 541'065'216);
  args.ratio = 2;  // half of them are visible
  EXPECT_EQ(CostOf(args).flops, 270'532'608);
}

}  // namespace
}  // namespace ecphory::measure
