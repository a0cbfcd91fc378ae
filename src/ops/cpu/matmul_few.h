// Products of few tokens, one or several at a time: bound by reading weights,
// so all of them are one loop over rows that threads share out as they go.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "ops/calls.h"
#include "ops/cpu/scratch_plan.h"
#include "ops/matmul.h"

namespace ecphory {

// Up to kMaxFewTokens whose inputs are not multiplied as bf16.
bool TakesFewTokens(const MatmulArgs& args);

// y of all products, not rounded. All take few tokens.
void MultiplyFewTokens(const Calls<MatmulArgs>& calls, ThreadPool& pool);

// What the caller and threads keep of their inputs (scratch_plan.h).
uint64_t FewTokensScratchBytes(const ScratchShape& shape);

}  // namespace ecphory
