// What a call of an operator must read, write and compute, from its arguments.
// A bound counts every byte of memory once, whatever an implementation touches
// twice, and a multiply-add as two operations.
#pragma once

#include "ops/ops.h"
#include "tensor/matrix.h"

namespace ecphory::measure {

struct OpCost {
  double bytes = 0;  // weights, packed rows and activations
  double flops = 0;
  double stored = 0;   // of `bytes`: weights and packed rows
  double experts = 0;  // routed ones whose weights are read

  OpCost& operator+=(const OpCost& other) {
    bytes += other.bytes;
    stored += other.stored;
    flops += other.flops;
    experts += other.experts;
    return *this;
  }
};

// Stored bytes of a matrix, scales included.
double MatrixBytes(const Matrix& matrix);
double ExpertBytes(const Expert& expert);

OpCost CostOf(const MatmulArgs& args);
// Each expert that a token chose is read once.
OpCost CostOf(const ExpertsArgs& args);
OpCost CostOf(const HcSplitArgs& args);
OpCost CostOf(const HcHeadArgs& args);
OpCost CostOf(const HcCollapseArgs& args);
OpCost CostOf(const HcExpandArgs& args);
// Window rows that some token sees and entries that some token selected, once
// each.
OpCost CostOf(const AttentionArgs& args);
OpCost CostOf(const IndexScoresArgs& args);
OpCost CostOf(const CandidateBlocksArgs& args);
OpCost CostOf(const SelectTopkArgs& args);
OpCost CostOf(const EngramGateArgs& args);

}  // namespace ecphory::measure
