// The queries of one call of index_scores as integers (index_codes-inl.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace ecphory {

// Borrowed arrays, `blocks` = dim / 32 of them a query.
struct IndexQueries {
  int8_t* codes = nullptr;    // [tokens, heads, dim] twice the e2m1 values, in
                              // the order in which a tile holds channels
  int32_t* starts = nullptr;  // [tokens, heads, blocks] of the accumulators
  float* scales = nullptr;    // [tokens, heads, blocks] a power of two, or NaN
};

}  // namespace ecphory
