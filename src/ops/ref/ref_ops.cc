#include "ops/ref/ref_ops.h"

namespace ecphory {

const Ops& RefOps() {
  static constexpr Ops kOps = {
      .name = "ref",
      .embed = ref::Embed,
      .rms_norm = ref::RmsNorm,
      .matmul = ref::Matmul,
      .matmuls = OneByOne<ref::Matmul, MatmulArgs>,
      .hc_split = ref::HcSplit,
      .hc_head = ref::HcHead,
      .hc_collapse = ref::HcCollapse,
      .hc_expand = ref::HcExpand,
      .rope = ref::Rope,
      .store_rows = OneByOne<ref::StoreRows>,
      .round_rows = ref::RoundRows,
      .round_bf16 = ref::RoundBf16,
      .decode_rows = ref::DecodeRows,
      .pool_groups = OneByOne<ref::PoolGroups>,
      .attention = OneByOne<ref::Attention>,
      .index_scores = OneByOne<ref::IndexScores>,
      .candidate_blocks = OneByOne<ref::CandidateBlocks>,
      .select_topk = OneByOne<ref::SelectTopk>,
      .router = ref::Router,
      .experts = ref::Experts,
      .engram_gate = ref::EngramGate,
      .ple_gate = ref::PleGate,
      .sample = ref::Sample,
  };
  return kOps;
}

}  // namespace ecphory
