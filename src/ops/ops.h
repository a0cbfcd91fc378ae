// The operator interface: one constant table of functions per backend.
//
// The forward pass (model/forward.cc) calls nothing else, so that it is written
// once for every backend. Each operator's header is its contract; ops/ref is
// the definition (plain loops, double accumulation, never sped up), ops/cpu the
// Highway implementation held to it by the same test body.
#pragma once

#include "base/thread_pool.h"
#include "ecphory/status.h"
#include "ops/attention.h"
#include "ops/calls.h"
#include "ops/compressor.h"
#include "ops/embed.h"
#include "ops/engram_gate.h"
#include "ops/hyper_connection.h"
#include "ops/indexer.h"
#include "ops/matmul.h"
#include "ops/moe.h"
#include "ops/ple_gate.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/rows.h"
#include "ops/sample.h"
#include "ops/table_rows.h"

namespace ecphory {

// Every entry is set. What has to do with a sequence's caches is called for
// several of them at once (ops/calls.h). Operators cannot fail: shapes, ids and
// formats were checked when the model was loaded and the session planned.
struct Ops {
  const char* name;  // "ref", "cpu", "cuda"
  void (*embed)(const EmbedArgs&, ThreadPool&);
  void (*rms_norm)(const RmsNormArgs&, ThreadPool&);
  void (*matmul)(const MatmulArgs&, ThreadPool&);
  void (*matmuls)(const Calls<MatmulArgs>&, ThreadPool&);
  void (*hc_split)(const HcSplitArgs&, ThreadPool&);
  void (*hc_head)(const HcHeadArgs&, ThreadPool&);
  void (*hc_collapse)(const HcCollapseArgs&, ThreadPool&);
  void (*hc_expand)(const HcExpandArgs&, ThreadPool&);
  void (*rope)(const RopeArgs&, ThreadPool&);
  void (*store_rows)(const Calls<StoreRowsArgs>&, ThreadPool&);
  void (*round_rows)(const RoundRowsArgs&, ThreadPool&);
  void (*round_bf16)(const RoundBf16Args&, ThreadPool&);
  void (*decode_rows)(const DecodeRowsArgs&, ThreadPool&);
  void (*pool_groups)(const Calls<PoolGroupsArgs>&, ThreadPool&);
  void (*attention)(const Calls<AttentionArgs>&, ThreadPool&);
  void (*index_scores)(const Calls<IndexScoresArgs>&, ThreadPool&);
  void (*candidate_blocks)(const Calls<CandidateBlocksArgs>&, ThreadPool&);
  void (*select_topk)(const Calls<SelectTopkArgs>&, ThreadPool&);
  void (*router)(const RouterArgs&, ThreadPool&);
  void (*experts)(const ExpertsArgs&, ThreadPool&);
  void (*engram_gate)(const EngramGateArgs&, ThreadPool&);
  void (*ple_gate)(const PleGateArgs&, ThreadPool&);
  void (*sample)(const SampleArgs&, ThreadPool&);
};

// The definition. Always built.
const Ops& RefOps();
// Highway, the best target this processor runs (chosen once at first use).
const Ops& CpuOps();
// CUDA, where it was built (ECPHORY_CUDA): its pointers are device memory, and
// its operators run in the queue that the calling thread has entered
// (ops/device.h).
const Ops& CudaOps();
// "ref", "cpu" or "auto" (= cpu); kInvalidArgument names what exists.
Result<const Ops*> FindOps(const char* name);
// Name of the Highway target CpuOps() runs on, e.g. "AVX3_DL", "AVX2".
const char* CpuTargetName();

}  // namespace ecphory
