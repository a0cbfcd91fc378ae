// A model's facts as a page of text.
#pragma once

#include <string>

#include "ecphory/model.h"

namespace ecphory::cli {

std::string InfoText(const ModelInfo& info, bool list_tensors);

}  // namespace ecphory::cli
