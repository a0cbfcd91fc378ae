#include "ops/cuda/cuda_ops.h"

namespace ecphory {

const Ops& CudaOps() {
  static constexpr Ops ops = {.name = "cuda",
                              .embed = cuda::Embed,
                              .rms_norm = cuda::RmsNorm,
                              .matmul = cuda::Matmul,
                              .matmuls = cuda::Matmuls,
                              .hc_split = cuda::HcSplit,
                              .hc_head = cuda::HcHead,
                              .hc_collapse = cuda::HcCollapse,
                              .hc_expand = cuda::HcExpand,
                              .rope = cuda::Rope,
                              .store_rows = cuda::StoreRows,
                              .round_rows = cuda::RoundRows,
                              .round_bf16 = cuda::RoundBf16,
                              .decode_rows = cuda::DecodeRows,
                              .pool_groups = cuda::PoolGroups,
                              .attention = cuda::Attention,
                              .index_scores = cuda::IndexScores,
                              .candidate_blocks = cuda::CandidateBlocks,
                              .select_topk = cuda::SelectTopk,
                              .router = cuda::Router,
                              .experts = cuda::Experts,
                              .engram_gate = cuda::EngramGate,
                              .ple_gate = cuda::PleGate,
                              .sample = cuda::Sample};
  return ops;
}

}  // namespace ecphory
