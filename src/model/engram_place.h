// Where the Engram tables of an open model lie.
#pragma once

#include <cstdint>
#include <string>

#include "ecphory/model.h"
#include "ecphory/status.h"

namespace ecphory {

enum class EngramPlace : uint8_t {
  kDisk,  // rows are read as tokens need them (io/io_mode.h)
  kHost,  // whole tables in memory of the process, pinned for a GPU
  kGpu,   // whole tables in the GPU's memory
};

// "disk", "host" or "gpu".
const char* EngramPlaceName(EngramPlace place);

// ModelOptions::engram_place. kInvalidArgument for a name that is none, for
// ways of reading that have no meaning there, and for "gpu" when the backend
// computes in the process's own memory; errors of opening the backend.
Result<EngramPlace> FindEngramPlace(const ModelOptions& options);

}  // namespace ecphory
