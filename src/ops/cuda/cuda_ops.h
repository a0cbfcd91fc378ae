// The operators of CudaOps(), grouped by file. Every pointer of an argument
// struct is device memory, or host memory that the device can reach; the pool
// is not used. They return when the work is queued in the thread's stream
// (ops/cuda/stream.h). Products read weights before the work that precedes
// them in the stream has ended: no kernel of it may write them.
#pragma once

#include "ops/ops.h"

namespace ecphory::cuda {

void Embed(const EmbedArgs& args, ThreadPool& pool);
void RmsNorm(const RmsNormArgs& args, ThreadPool& pool);
void Matmul(const MatmulArgs& args, ThreadPool& pool);
void Matmuls(const Calls<MatmulArgs>& calls, ThreadPool& pool);
void HcSplit(const HcSplitArgs& args, ThreadPool& pool);
void HcHead(const HcHeadArgs& args, ThreadPool& pool);
void HcCollapse(const HcCollapseArgs& args, ThreadPool& pool);
void HcExpand(const HcExpandArgs& args, ThreadPool& pool);
void Rope(const RopeArgs& args, ThreadPool& pool);
void StoreRows(const Calls<StoreRowsArgs>& calls, ThreadPool& pool);
void RoundRows(const RoundRowsArgs& args, ThreadPool& pool);
void RoundBf16(const RoundBf16Args& args, ThreadPool& pool);
void DecodeRows(const DecodeRowsArgs& args, ThreadPool& pool);
void PoolGroups(const Calls<PoolGroupsArgs>& calls, ThreadPool& pool);
void Attention(const Calls<AttentionArgs>& calls, ThreadPool& pool);
void IndexScores(const Calls<IndexScoresArgs>& calls, ThreadPool& pool);
void CandidateBlocks(const Calls<CandidateBlocksArgs>& calls, ThreadPool& pool);
void SelectTopk(const Calls<SelectTopkArgs>& calls, ThreadPool& pool);
void Router(const RouterArgs& args, ThreadPool& pool);
void Experts(const ExpertsArgs& args, ThreadPool& pool);
void EngramGate(const EngramGateArgs& args, ThreadPool& pool);
void PleGate(const PleGateArgs& args, ThreadPool& pool);
void Sample(const SampleArgs& args, ThreadPool& pool);

}  // namespace ecphory::cuda
