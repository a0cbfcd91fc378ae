// A model timed as a whole: a prompt, and steps of one token at given contexts.
#pragma once

#include <functional>
#include <string>

#include "ecphory/bench.h"
#include "ecphory/status.h"
#include "measure/yardsticks.h"

namespace ecphory::measure {

// Opens the model and measures it, in turn with what bounds it. `step` is
// called with what comes next and may fail with kCancelled.
Result<BenchModel> MeasureModel(
    const BenchOptions& options, Yardsticks& yardsticks,
    const std::function<Status(const std::string&)>& step);

// kInvalidArgument names a prompt or a context that the model has no room for.
Status CheckRoom(const BenchOptions& options, const ModelConfig& config);

// Times that MeasureModel calls `step`.
size_t ModelSteps(const BenchOptions& options);

}  // namespace ecphory::measure
