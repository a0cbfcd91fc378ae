#include "tensor/scale_check.h"

#include <cstring>

#include "tensor/super_blocks.h"

namespace ecphory {

namespace {

// Where the f16 scales of a block lie, or its e8m0 byte.
struct ScalePlaces {
  size_t block_bytes = 0;
  size_t first = 0;
  size_t halves = 0;  // from `first` on; 0: one e8m0 byte there
};

std::optional<ScalePlaces> PlacesOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ8_0: return ScalePlaces{34, 0, 1};
    case WeightFormat::kMXFP4: return ScalePlaces{17, 0, 0};
    case WeightFormat::kQ4_K:
      return ScalePlaces{sizeof(Q4KBlock), offsetof(Q4KBlock, d), 2};
    case WeightFormat::kQ2_K:
      return ScalePlaces{sizeof(Q2KBlock), offsetof(Q2KBlock, d), 2};
    case WeightFormat::kIQ2_XXS:
      return ScalePlaces{sizeof(Iq2xxsBlock), offsetof(Iq2xxsBlock, d), 1};
    default: return std::nullopt;
  }
}

bool Broken(const uint8_t* block, const ScalePlaces& places) {
  const uint8_t* const scales = block + places.first;
  if (places.halves == 0) return *scales == 255;
  for (size_t i = 0; i < places.halves; ++i) {
    uint16_t half;
    std::memcpy(&half, scales + 2 * i, sizeof(half));
    if ((half & 0x7c00) == 0x7c00) return true;
  }
  return false;
}

}  // namespace

std::optional<size_t> FirstRowWithBrokenScale(const Matrix& matrix) {
  const std::optional<ScalePlaces> places = PlacesOf(matrix.format);
  if (!places) return std::nullopt;
  const size_t row_bytes = matrix.row_bytes();
  for (size_t r = 0; r < matrix.rows; ++r) {
    const uint8_t* const row = matrix.data + (matrix.first_row + r) * row_bytes;
    for (size_t at = 0; at < row_bytes; at += places->block_bytes) {
      if (Broken(row + at, *places)) return r;
    }
  }
  return std::nullopt;
}

}  // namespace ecphory
