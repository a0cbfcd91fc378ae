// Activations rounded to int8 in blocks: the definition that every vector path
// is held to.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ecphory {

// Values that share a scale. Blocks of 256, as other engines take for formats
// with blocks of 256, cost the same here and round twice as coarsely where one
// value of a block is large.
inline constexpr size_t kInt8Block = 32;

// Blocks whose largest magnitude is below this (2^-120) are taken for zeros:
// 127 / magnitude must stay finite.
inline constexpr float kInt8MinMagnitude = 0x1p-120f;

// Rounds a block: x[i] is taken for codes[i] * scale, with the scale returned,
//   scale = largest |x| / 127, codes[i] = x[i] * (127 / largest |x|)
// in fp32, to the nearest integer, ties to even. So |x[i] - codes[i] * scale|
// is at most about half a scale, 1/254 of the largest |x|. A block that holds
// an infinity or NaN has scale NaN and codes 0.
float RoundToInt8(const float* x, int8_t* codes);

}  // namespace ecphory
