// The operators of CpuOps(), one per file of this folder.
#pragma once

#include "ops/ops.h"

namespace ecphory {

void CpuEmbed(const EmbedArgs& args, ThreadPool& pool);
void CpuRmsNorm(const RmsNormArgs& args, ThreadPool& pool);
void CpuMatmul(const MatmulArgs& args, ThreadPool& pool);
void CpuMatmuls(const Calls<MatmulArgs>& calls, ThreadPool& pool);
// Of weights with TakesInt8(), the input rounded to int8.
void CpuInt8Matmul(const MatmulArgs& args, ThreadPool& pool);
void CpuHcSplit(const HcSplitArgs& args, ThreadPool& pool);
void CpuHcHead(const HcHeadArgs& args, ThreadPool& pool);
void CpuHcCollapse(const HcCollapseArgs& args, ThreadPool& pool);
void CpuHcExpand(const HcExpandArgs& args, ThreadPool& pool);
void CpuRope(const RopeArgs& args, ThreadPool& pool);
void CpuStoreRows(const StoreRowsArgs& args, ThreadPool& pool);
void CpuRoundRows(const RoundRowsArgs& args, ThreadPool& pool);
void CpuRoundBf16(const RoundBf16Args& args, ThreadPool& pool);
// x [n] as bf16 values, by the calling thread.
void RoundRunToBf16(float* x, size_t n);
void CpuDecodeRows(const DecodeRowsArgs& args, ThreadPool& pool);
void CpuPoolGroups(const PoolGroupsArgs& args, ThreadPool& pool);
void CpuAttention(const AttentionArgs& args, ThreadPool& pool);
void CpuIndexScores(const IndexScoresArgs& args, ThreadPool& pool);
void CpuCandidateBlocks(const CandidateBlocksArgs& args, ThreadPool& pool);
void CpuSelectTopk(const SelectTopkArgs& args, ThreadPool& pool);
void CpuRouter(const RouterArgs& args, ThreadPool& pool);
void CpuExperts(const ExpertsArgs& args, ThreadPool& pool);
void CpuEngramGate(const EngramGateArgs& args, ThreadPool& pool);
void CpuPleGate(const PleGateArgs& args, ThreadPool& pool);
void CpuSample(const SampleArgs& args, ThreadPool& pool);

}  // namespace ecphory
