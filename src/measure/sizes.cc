#include "measure/sizes.h"

namespace ecphory::measure {

namespace {

const Sizes& Released() {
  static const Sizes sizes = {
      .name = "released",
      .hidden = 5120,
      .streams = 4,
      .heads = 64,
      .head_dim = 512,
      .inner = 2304,
      .experts = 384,
      .topk_experts = 6,
      .window = 128,
      .index_heads = 32,
      .index_dim = 128,
      .index_topk = 512,
      .entries = 32768,
      .token_shapes = {{1280, 5120},     // wq_a
                       {32768, 1280},    // wq_b
                       {8192, 4096, 8},  // wo_a
                       {5120, 8192},     // wo_b
                       {2304, 5120},     // w1 and w3 of an expert
                       {5120, 2304},     // w2
                       {5120, 1280}},    // narrow
      // Tall and wide; a call is 12 and 43 GFLOP.
      .prompt_shapes = {{2304, 5120}, {5120, 8192}},
      // A prompt's 512 tokens give each of 384 experts 8, and so do 64 tokens
      // 48: the same work for a kernel at an eighth of the time.
      .expert_passes = {{1, 48}, {64, 48}},
      .long_passes = {{512, 384}},
      .contexts = {1024, 16384, 65536, 131072},
      .prompt_context = 4096,
      .smallest_set = uint64_t{256} << 20};
  return sizes;
}

// The bundled model's.
const Sizes& Mini() {
  static const Sizes sizes = {
      .name = "mini",
      .hidden = 288,
      .streams = 4,
      .heads = 6,
      .head_dim = 64,
      .inner = 96,
      .experts = 16,
      .topk_experts = 4,
      .window = 128,
      .index_heads = 4,
      .index_dim = 32,
      .index_topk = 64,
      .entries = 512,
      // A projection, the head, an expert's w1 and w2.
      .token_shapes = {{288, 288}, {8192, 288}, {96, 288}, {288, 96}},
      .prompt_shapes = {{288, 288}, {96, 288}},
      .expert_passes = {{1, 16}, {64, 16}, {512, 16}},
      .long_passes = {},
      .contexts = {2048},
      .prompt_context = 2048,
      // Not in the second-level cache when a matrix's turn comes, as in the
      // model itself.
      .smallest_set = uint64_t{16} << 20};
  return sizes;
}

}  // namespace

const Sizes& SizesOf(BenchSizes sizes) {
  return sizes == BenchSizes::kMini ? Mini() : Released();
}

}  // namespace ecphory::measure
