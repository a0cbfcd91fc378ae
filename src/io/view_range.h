// What the views share.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "ecphory/status.h"
#include "io/file_view.h"

namespace ecphory {

// kOutOfRange for the first range that is not inside [begin, begin + size);
// *index is its index.
inline Status CheckViewRanges(const std::string& path,
                              std::span<const ViewRange> ranges, uint64_t begin,
                              uint64_t size, size_t* index) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    const ViewRange& range = ranges[i];
    if (range.offset >= begin && range.offset - begin <= size &&
        range.bytes <= size - (range.offset - begin)) {
      continue;
    }
    *index = i;
    return OutOfRange(
        "%s: %u bytes at offset %llu lie outside the view of %llu bytes at "
        "offset %llu",
        path.c_str(), range.bytes,
        static_cast<unsigned long long>(range.offset),
        static_cast<unsigned long long>(size),
        static_cast<unsigned long long>(begin));
  }
  return Status::Ok();
}

}  // namespace ecphory
