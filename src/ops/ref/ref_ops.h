// The operators' definitions, one file per family.
//
// Every operator takes fp32 values, computes in double and rounds once at the
// end, except where the model itself defines fp32 or bf16 steps. No threads:
// the pool is ignored.
#pragma once

#include "ops/ops.h"

namespace ecphory::ref {

void Embed(const EmbedArgs& args, ThreadPool&);
void RmsNorm(const RmsNormArgs& args, ThreadPool&);
void Matmul(const MatmulArgs& args, ThreadPool&);
void HcSplit(const HcSplitArgs& args, ThreadPool&);
void HcHead(const HcHeadArgs& args, ThreadPool&);
void HcCollapse(const HcCollapseArgs& args, ThreadPool&);
void HcExpand(const HcExpandArgs& args, ThreadPool&);
void Rope(const RopeArgs& args, ThreadPool&);
void StoreRows(const StoreRowsArgs& args, ThreadPool&);
void RoundRows(const RoundRowsArgs& args, ThreadPool&);
void RoundBf16(const RoundBf16Args& args, ThreadPool&);
void DecodeRows(const DecodeRowsArgs& args, ThreadPool&);
void PoolGroups(const PoolGroupsArgs& args, ThreadPool&);
void Attention(const AttentionArgs& args, ThreadPool&);
void IndexScores(const IndexScoresArgs& args, ThreadPool&);
void CandidateBlocks(const CandidateBlocksArgs& args, ThreadPool&);
void SelectTopk(const SelectTopkArgs& args, ThreadPool&);
void Router(const RouterArgs& args, ThreadPool&);
void Experts(const ExpertsArgs& args, ThreadPool&);
void EngramGate(const EngramGateArgs& args, ThreadPool&);
void PleGate(const PleGateArgs& args, ThreadPool&);
void Sample(const SampleArgs& args, ThreadPool&);

}  // namespace ecphory::ref
