#include "ops/cpu/cpu_ops.h"

namespace ecphory {

const Ops& CpuOps() {
  static constexpr Ops kOps = {
      .name = "cpu",
      .embed = CpuEmbed,
      .rms_norm = CpuRmsNorm,
      .matmul = CpuMatmul,
      .matmuls = CpuMatmuls,
      .hc_split = CpuHcSplit,
      .hc_head = CpuHcHead,
      .hc_collapse = CpuHcCollapse,
      .hc_expand = CpuHcExpand,
      .rope = CpuRope,
      .store_rows = OneByOne<CpuStoreRows>,
      .round_rows = CpuRoundRows,
      .round_bf16 = CpuRoundBf16,
      .decode_rows = CpuDecodeRows,
      .pool_groups = OneByOne<CpuPoolGroups>,
      .attention = OneByOne<CpuAttention>,
      .index_scores = OneByOne<CpuIndexScores>,
      .candidate_blocks = OneByOne<CpuCandidateBlocks>,
      .select_topk = OneByOne<CpuSelectTopk>,
      .router = CpuRouter,
      .experts = CpuExperts,
      .engram_gate = CpuEngramGate,
      .ple_gate = CpuPleGate,
      .sample = CpuSample,
  };
  return kOps;
}

}  // namespace ecphory
