// The metadata of an n-gram table in GGUF, and what it must say.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ecphory/status.h"
#include "format/gguf.h"
#include "ple/gguf_table.h"
#include "ple/layout.h"

namespace ecphory::ple {

struct Constants {
  Layout layout;
  std::optional<uint32_t> layer;       // where a model's keys say it
  std::optional<uint64_t> table_rows;  // where a sidecar's keys say it
};

// Whether a file has the hash constants, right or wrong.
bool HasConstants(const GgufFile& file);

// From the first of `files` that has the hash constants; other files may repeat
// them, and say what it lacks. The result passed CheckLayout() and, where the
// model's keys are there, CheckPlacement(). Errors name file and key.
Result<Constants> ReadConstants(std::span<const GgufFile* const> files,
                                const TableOptions& options);

}  // namespace ecphory::ple
