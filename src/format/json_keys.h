// config.json as a source of named values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ecphory/status.h"
#include "format/field_reader.h"

namespace ecphory {

// Far above the config.json of any published model (a few kB).
inline constexpr uint64_t kMaxConfigBytes = 16ull << 20;

// The text of a released config.json: keys are looked up in `text_config`
// first, when there is one, then at the top.
Result<std::unique_ptr<KeySource>> ParseJsonKeys(const std::string& text,
                                                 const std::string& where);

}  // namespace ecphory
