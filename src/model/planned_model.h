// What memory depends on beside the configuration: how a model is stored, and
// what computes it.
#pragma once

#include <cstdint>
#include <vector>

#include "ecphory/model.h"
#include "ecphory/status.h"
#include "model/engram_place.h"
#include "model/source.h"
#include "ops/cpu/scratch_plan.h"

namespace ecphory {

struct PlannedModel {
  uint32_t threads = 1;
  // Operators keep working memory from call to call. The reference does not.
  bool keeps_scratch = true;
  // Each kind of matrix once; tokens and input depend on the session.
  std::vector<ScratchProduct> products;  // with all tokens of a pass
  std::vector<ScratchProduct> head;      // with one token
  std::vector<ScratchProduct> engram;    // with rows of the memory
  std::vector<ScratchExperts> experts;
  EngramPlace engram_place = EngramPlace::kDisk;
  uint64_t engram_table_bytes = 0;            // of all tables, as stored
  uint64_t engram_row_bytes = 0;              // of a row of each, as stored
  WeightFormat streams = WeightFormat::kF32;  // of mHC's projections
};

// Errors name what is missing or of the wrong shape.
Result<PlannedModel> PlanModel(const ModelSource& source,
                               const ModelOptions& options);

}  // namespace ecphory
