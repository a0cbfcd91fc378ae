// Small files of /proc and /sys, and the numbers in them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ecphory {

// The first 64 KiB of a file, trailing newlines removed; nothing when it cannot
// be read. Works where the file's size is said to be 0, as in /proc.
std::optional<std::string> ReadSmallText(const std::string& path);

// The unsigned decimal number that `text` starts with, after blanks.
std::optional<uint64_t> ParseNumber(std::string_view text);

}  // namespace ecphory
