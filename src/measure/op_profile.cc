#include "measure/op_profile.h"

#include <vector>

#include "base/check.h"
#include "measure/sampler.h"
#include "ops/device.h"

namespace ecphory::measure {

namespace {

thread_local OpProfile* active_profile = nullptr;

// Most operators belong to one part; a product belongs to its weight's.
template <typename Args>
Part PartOfCall(const OpProfile&, const Args&, Part part) {
  return part;
}
Part PartOfCall(const OpProfile& profile, const MatmulArgs& args, Part) {
  return profile.PartOf(args.weight);
}
// Those of a layer's attention, for the most part.
Part PartOfCall(const OpProfile& profile, const Calls<MatmulArgs>& calls,
                Part) {
  return profile.PartOf(calls[0].weight);
}

template <typename Args>
OpCost CostOfCall(Queue&, const Args& args) {
  if constexpr (requires { CostOf(args); }) {
    return CostOf(args);
  } else {
    return {};  // a few activations
  }
}

// Of some, the cost depends on values: the host looks at a copy. Where that
// fails, the queue says so at the end of the pass.
std::vector<int32_t> Copied(Queue& queue, const int32_t* values, size_t count) {
  std::vector<int32_t> copy(count);
  (void)queue.Receive(copy.data(), values, count * sizeof(int32_t));
  return copy;
}
OpCost CostOfCall(Queue& queue, const ExpertsArgs& args) {
  const auto ids = Copied(queue, args.ids, args.tokens * args.topk);
  ExpertsArgs seen = args;
  seen.ids = ids.data();
  return CostOf(seen);
}
OpCost CostOfCall(Queue& queue, const AttentionArgs& args) {
  if (args.selected == nullptr) return CostOf(args);
  const auto selected = Copied(queue, args.selected, args.tokens * args.topk);
  AttentionArgs seen = args;
  seen.selected = selected.data();
  return CostOf(seen);
}

// Of calls at once, those of all.
template <typename Args>
OpCost CostOfCall(Queue& queue, const Calls<Args>& calls) {
  OpCost sum;
  for (const Args& args : calls) sum += CostOfCall(queue, args);
  return sum;
}

template <typename Args, void (*Ops::*kEntry)(const Args&, ThreadPool&),
          Part kPart>
void Timed(const Args& args, ThreadPool& pool) {
  OpProfile* const profile = active_profile;
  Queue* const queue = Queue::Current();
  ECPHORY_CHECK(profile != nullptr && queue != nullptr);
  const double begin = Now();
  const Part part = PartOfCall(*profile, args, kPart);
  const OpCost cost = CostOfCall(*queue, args);
  const double start = Now();
  queue->Mark();
  (profile->inner().*kEntry)(args, pool);
  queue->Mark();
  profile->Add(part, queue->SecondsBetweenMarks(), cost);
  profile->AddOverhead(start - begin);
}

// One line an operator: its arguments, its entry, its part.
template <typename Visit>
void ForEachEntry(const Visit& visit) {
#define ECPHORY_TIMED(Args, entry, part) \
  visit(&Ops::entry, &Timed<Args, &Ops::entry, Part::part>)
  ECPHORY_TIMED(EmbedArgs, embed, kEmbed);
  ECPHORY_TIMED(RmsNormArgs, rms_norm, kNorm);
  ECPHORY_TIMED(MatmulArgs, matmul, kProjections);
  ECPHORY_TIMED(Calls<MatmulArgs>, matmuls, kProjections);
  ECPHORY_TIMED(HcSplitArgs, hc_split, kMhc);
  ECPHORY_TIMED(HcHeadArgs, hc_head, kMhc);
  ECPHORY_TIMED(HcCollapseArgs, hc_collapse, kMhc);
  ECPHORY_TIMED(HcExpandArgs, hc_expand, kMhc);
  ECPHORY_TIMED(RopeArgs, rope, kRows);
  ECPHORY_TIMED(Calls<StoreRowsArgs>, store_rows, kRows);
  ECPHORY_TIMED(RoundRowsArgs, round_rows, kRows);
  ECPHORY_TIMED(RoundBf16Args, round_bf16, kRows);
  ECPHORY_TIMED(DecodeRowsArgs, decode_rows, kEngram);
  ECPHORY_TIMED(Calls<PoolGroupsArgs>, pool_groups, kCompressor);
  ECPHORY_TIMED(Calls<AttentionArgs>, attention, kAttention);
  ECPHORY_TIMED(Calls<IndexScoresArgs>, index_scores, kIndexer);
  ECPHORY_TIMED(Calls<CandidateBlocksArgs>, candidate_blocks, kIndexer);
  ECPHORY_TIMED(Calls<SelectTopkArgs>, select_topk, kIndexer);
  ECPHORY_TIMED(RouterArgs, router, kRouter);
  ECPHORY_TIMED(ExpertsArgs, experts, kExperts);
  ECPHORY_TIMED(EngramGateArgs, engram_gate, kEngram);
  ECPHORY_TIMED(PleGateArgs, ple_gate, kEngram);
  ECPHORY_TIMED(SampleArgs, sample, kHead);
#undef ECPHORY_TIMED
}

}  // namespace

const char* PartName(Part part) {
  switch (part) {
    case Part::kEmbed: return "embedding";
    case Part::kEngram: return "engram";
    case Part::kMhc: return "mhc";
    case Part::kNorm: return "norms";
    case Part::kProjections: return "attention projections";
    case Part::kRows: return "rope and rows";
    case Part::kAttention: return "attention";
    case Part::kCompressor: return "compressor";
    case Part::kIndexer: return "indexer";
    case Part::kRouter: return "router";
    case Part::kExperts: return "experts";
    case Part::kHead: return "head";
  }
  return "unknown";
}

OpProfile::OpProfile(const Ops& inner, const Weights& weights)
    : inner_(inner), timed_(inner) {
  timed_.name = "timed";
  ForEachEntry([&](auto entry, auto timed) { timed_.*entry = timed; });
  const auto note = [&](Part part, const Matrix& weight) {
    if (!weight.empty()) part_of_[weight.data] = part;
  };
  // The head last: it may share its bytes with nobody but the embedding.
  for (const LayerWeights& layer : weights.layers) {
    note(Part::kCompressor, layer.attn.compressor.wkv);
    note(Part::kCompressor, layer.attn.compressor.wgate);
    note(Part::kIndexer, layer.attn.compressor.index_wk);
    note(Part::kIndexer, layer.attn.indexer.wq_b);
    note(Part::kIndexer, layer.attn.indexer.weights_proj);
    note(Part::kRouter, layer.moe.gate);
    note(Part::kEngram, layer.engram.wkv);
  }
  note(Part::kHead, weights.head);
}

Part OpProfile::PartOf(const Matrix& weight) const {
  const auto found = part_of_.find(weight.data);
  return found == part_of_.end() ? Part::kProjections : found->second;
}

void OpProfile::Add(Part part, double seconds, const OpCost& cost) {
  PartTime& time = parts_[static_cast<size_t>(part)];
  time.seconds += seconds;
  time.cost += cost;
  ++time.calls;
}

OpCost OpProfile::cost() const {
  OpCost sum;
  for (const PartTime& part : parts_) sum += part.cost;
  return sum;
}

double OpProfile::seconds() const {
  double sum = 0;
  for (const PartTime& part : parts_) sum += part.seconds;
  return sum;
}

void OpProfile::Reset() {
  parts_ = {};
  overhead_ = 0;
}

OpProfile::Scope::Scope(OpProfile* profile) : outer_(active_profile) {
  active_profile = profile;
}
OpProfile::Scope::~Scope() { active_profile = outer_; }

size_t TimedEntries() {
  size_t count = 0;
  ForEachEntry([&](auto, auto) { ++count; });
  return count;
}

}  // namespace ecphory::measure
