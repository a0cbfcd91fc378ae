// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ecphory {

// Bytes that can be had without swapping: MemAvailable of /proc/meminfo, or
// less where a control group limits the process. Nothing where neither is
// known. `root` is put before /proc and /sys (tests).
std::optional<uint64_t> AvailableMemory(const std::string& root = "");

// The same, but pages of files that a control group would give back count as
// free: what a process can have before it is refused memory, or killed.
std::optional<uint64_t> AttainableMemory(const std::string& root = "");

// MemAvailable of the text of /proc/meminfo, in bytes.
std::optional<uint64_t> ParseMemAvailable(std::string_view meminfo);

}  // namespace ecphory
