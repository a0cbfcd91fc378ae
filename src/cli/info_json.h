// A model's facts as JSON: the same as the text, in full precision.
#pragma once

#include "ecphory/model.h"
#include "output.h"

namespace ecphory::cli {

Json InfoJson(const ModelInfo& info, bool list_tensors);

}  // namespace ecphory::cli
