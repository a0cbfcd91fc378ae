// Products of packed weights with many inputs rounded to int8; compiled for the
// Highway target that has VNNI.
//
// A lane is a row: kLanes rows are unpacked once, and what one instruction
// takes of each, four codes, lies side by side. Four codes of an input go into
// all lanes, so that a block's 32-bit sum needs one instruction for every four
// values and no adding up of lanes. It becomes a float and is multiplied by
// (scale of the weights' part) * (scale of the input's block); a row's sum
// takes blocks in order. That is another order than int8_dot-inl.h's: more than
// kMaxFewTokens are multiplied like this, whatever the number, and fewer never.
#if defined(ECPHORY_OPS_CPU_INT8_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_INT8_TILES_INL_H_
#undef ECPHORY_OPS_CPU_INT8_TILES_INL_H_
#else
#define ECPHORY_OPS_CPU_INT8_TILES_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "base/ceil_div.h"
#include "ops/cpu/int8_dot-inl.h"
#include "ops/cpu/int8_panel-inl.h"
#include "ops/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

constexpr size_t kTileRows = kLanes;
constexpr size_t kMaxTileTokens = 12;  // 24 sums in 32 registers
// Tokens whose inputs are packed at once, 2 MB at 5,120 values.
constexpr size_t kInt8TileBlock = 264;

// Codes that a kernel's order leaves together.
template <class Shape>
constexpr size_t PieceSize() {
  if constexpr (requires { Shape::kPiece; }) return Shape::kPiece;
  return 16;
}

template <class Shape>
constexpr size_t PartSize() {
  if constexpr (requires { Shape::kPart; }) return Shape::kPart;
  return kInt8Block;
}

// Where in a group a kernel's order puts the values from kPiece * i on.
template <class Shape>
struct PiecePlaces {
  static constexpr size_t kPiece = PieceSize<Shape>();
  static constexpr size_t kPieces = Shape::kGroup / kPiece;
  constexpr PiecePlaces() : places() {
    constexpr size_t kPerPart = PartSize<Shape>() / kPiece;
    size_t quads[kPieces / kPerPart] = {};  // met of each part
    for (size_t at = 0; at < Shape::kGroup; at += 4) {
      const size_t part = Shape::PartOf(at / Shape::kSpan, at % kStep / 4);
      const size_t quad = quads[part]++;
      if (quad % (kPiece / 4) == 0) {
        places[part * kPerPart + quad * 4 / kPiece] = at;
      }
    }
  }
  size_t places[kPieces];
};
template <class Shape>
inline constexpr PiecePlaces<Shape> kPiecePlaces;

// How a block of 32 lies in memory, of kTileRows rows and of a tile's tokens.
template <class Shape>
struct TileLayout {
  static constexpr size_t kParts = kInt8Block / PartSize<Shape>();
  static constexpr size_t kQuads = PartSize<Shape>() / 4;  // of a part
  static constexpr size_t kFloats = kParts * (Shape::kMins ? 2 : 1);
  // Codes by fours, scales of the parts, mins of the parts.
  static constexpr size_t kRowBytes =
      kTileRows * (kInt8Block + sizeof(float) * kFloats);
  // Of a token: codes, scale, minus the offset times the sum of the codes; of
  // parts with mins, scale times the sum of the codes.
  static constexpr size_t kTokenBytes =
      kInt8Block + 8 + (Shape::kMins ? kParts * sizeof(float) : 0);
};

// `tokens` inputs from `first` on, of which the last is repeated to fill the
// tile.
template <class Shape>
void PackTile(uint8_t* const* x8, size_t first, size_t tokens, size_t padded,
              size_t cols, uint8_t* out) {
  using Layout = TileLayout<Shape>;
  for (size_t t = 0; t < padded; ++t) {
    const Int8Row x = Int8RowAt(x8[first + std::min(t, tokens - 1)], cols);
    uint8_t* block = out;
    for (size_t c = 0; c < cols; c += kInt8Block) {
      const size_t in_group = c % Shape::kGroup;
      const int8_t* const codes = x.codes + (c - in_group);
      constexpr size_t kPiece = PieceSize<Shape>();
      const size_t* const places =
          kPiecePlaces<Shape>.places + in_group / kPiece;
#pragma GCC unroll 8
      for (size_t i = 0; i < kInt8Block / kPiece; ++i) {
        std::memcpy(block + t * kInt8Block + i * kPiece, codes + places[i],
                    kPiece);
      }
      uint8_t* const numbers = block + padded * kInt8Block;
      std::memcpy(numbers + 4 * t, x.scales + c / kInt8Block, 4);
      const int32_t offset =
          x.block_sums[c / kInt8Block] *
          (Shape::kOffsetBits == 0 ? 0 : -(int32_t{1} << Shape::kOffsetBits));
      std::memcpy(numbers + 4 * (padded + t), &offset, 4);
      if constexpr (Shape::kMins) {
        for (size_t p = 0; p < Layout::kParts; ++p) {
          std::memcpy(numbers + 4 * ((2 + p) * padded + t),
                      Shape::XSums(x, c) + p, 4);
        }
      }
      block += padded * Layout::kTokenBytes;
    }
  }
}

// 16 codes, of which pieces begin at `places`.
template <size_t kPiece>
HWY_INLINE __m128i LoadPieces(const uint8_t* codes, const size_t* places) {
  static_assert(kPiece == 16 || kPiece == 4);
  if constexpr (kPiece == 16) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + places[0]));
  }
  int32_t fours[4];
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    std::memcpy(&fours[i], codes + places[i], sizeof(fours[i]));
  }
  return _mm_setr_epi32(fours[0], fours[1], fours[2], fours[3]);
}

// Rows [row, row + 4) of a tile, at its lane `lane`.
template <class Codes>
void PackRows(PanelRow<Codes> (&rows)[kInt8Rows], size_t lane, size_t cols,
              uint8_t* out) {
  using Shape = typename Codes::Shape;
  using Layout = TileLayout<Shape>;
  constexpr size_t kPart = PartSize<Shape>();
  constexpr size_t kPiece = PieceSize<Shape>();
  for (size_t c = 0; c < cols; c += kInt8Block, out += Layout::kRowBytes) {
    const size_t in_group = c % Shape::kGroup;
    const size_t* const places = kPiecePlaces<Shape>.places + in_group / kPiece;
    for (size_t h = 0; h < kInt8Block; h += 16) {
      __m128 codes[kInt8Rows];
      for (size_t r = 0; r < kInt8Rows; ++r) {
        codes[r] = _mm_castsi128_ps(LoadPieces<kPiece>(
            rows[r].codes + (c - in_group), places + h / kPiece));
      }
      // Fours of codes come side by side.
      _MM_TRANSPOSE4_PS(codes[0], codes[1], codes[2], codes[3]);
      for (size_t quad = 0; quad < 4; ++quad) {
        _mm_storeu_ps(reinterpret_cast<float*>(
                          out + (h + 4 * quad) * kTileRows + 4 * lane),
                      codes[quad]);
      }
    }
    float* const floats =
        reinterpret_cast<float*>(out + kTileRows * kInt8Block) + lane;
    for (size_t r = 0; r < kInt8Rows; ++r) {
      rows[r].Begin(c - in_group, 0);
      for (size_t p = 0; p < Layout::kParts; ++p) {
        const float* const part = rows[r].parts + in_group / kPart + p;
        floats[p * kTileRows + r] = part[0];
        if constexpr (Shape::kMins) {
          floats[(Layout::kParts + p) * kTileRows + r] = part[kLanes];
        }
      }
    }
  }
}

// sum += four codes of each row times four of an input.
HWY_INLINE void AddQuad(VI32& sum, VU8 codes, const uint8_t* x) {
  struct Four {
    int8_t codes[4];
  };
  asm("vpdpbusd %2%{1to16%}, %1, %0"
      : "+v"(sum.raw)
      : "v"(codes.raw), "m"(*reinterpret_cast<const Four*>(x)));
}

// y[t][lane] of one tile of rows and one of kTokens tokens.
template <class Shape, size_t kTokens>
HWY_INLINE void MultiplyTile(const uint8_t* HWY_RESTRICT rows,
                             const uint8_t* HWY_RESTRICT x, size_t blocks,
                             VF (&sums)[kTokens]) {
  using Layout = TileLayout<Shape>;
#pragma GCC unroll 12
  for (size_t t = 0; t < kTokens; ++t) sums[t] = hn::Zero(kF);
  for (size_t b = 0; b < blocks; ++b) {
    const uint8_t* const numbers = x + kTokens * kInt8Block;
    const auto number = [&](size_t i, size_t t) HWY_ATTR {
      return reinterpret_cast<const float*>(numbers) + i * kTokens + t;
    };
    const float* const floats =
        reinterpret_cast<const float*>(rows + kTileRows * kInt8Block);
#pragma GCC unroll 2
    for (size_t p = 0; p < Layout::kParts; ++p) {
      VI32 products[kTokens];
#pragma GCC unroll 12
      for (size_t t = 0; t < kTokens; ++t) {
        products[t] = Shape::kOffsetBits == 0
                          ? hn::Zero(kI32)
                          : hn::BitCast(kI32, hn::Set(kF, *number(1, t)));
      }
#pragma GCC unroll 8
      for (size_t k = 0; k < Layout::kQuads; ++k) {
        const size_t quad = p * Layout::kQuads + k;
        const VU8 codes = hn::Load(kU8, rows + quad * 4 * kTileRows);
#pragma GCC unroll 12
        for (size_t t = 0; t < kTokens; ++t) {
          AddQuad(products[t], codes, x + t * kInt8Block + 4 * quad);
        }
      }
      const VF scale = hn::Load(kF, floats + p * kTileRows);
#pragma GCC unroll 12
      for (size_t t = 0; t < kTokens; ++t) {
        const VF factor = hn::Mul(scale, hn::Set(kF, *number(0, t)));
        sums[t] = hn::MulAdd(hn::ConvertTo(kF, products[t]), factor, sums[t]);
      }
      if constexpr (Shape::kMins) {
        const VF min = hn::Load(kF, floats + (Layout::kParts + p) * kTileRows);
#pragma GCC unroll 12
        for (size_t t = 0; t < kTokens; ++t) {
          sums[t] = hn::NegMulAdd(min, hn::Set(kF, *number(2 + p, t)), sums[t]);
        }
      }
    }
    rows += Layout::kRowBytes;
    x += kTokens * Layout::kTokenBytes;
  }
}

template <class Shape, size_t kTokens>
void StoreTile(const uint8_t* rows, const uint8_t* x, size_t cols,
               size_t first_row, size_t count, float* const* y, size_t tokens) {
  VF sums[kTokens];
  MultiplyTile<Shape, kTokens>(rows, x, cols / kInt8Block, sums);
  for (size_t t = 0; t < tokens; ++t) {
    if (count == kTileRows) {
      Store(sums[t], y[t] + first_row);
    } else {
      StorePartial(sums[t], y[t] + first_row, count);
    }
  }
}

// Tokens of the next tile, of `left`: 12, 8 or 4, so that few are made up.
inline size_t NextTile(size_t left) {
  const size_t fours = CeilDiv(left, size_t{4});
  return fours == 4 ? 8 : 4 * std::min<size_t>(fours, 3);
}

// Tiles of rows whose codes stay in the second-level cache while the tokens'
// tiles come from the third.
template <class Shape>
size_t RowTilesAtOnce(size_t cols) {
  constexpr size_t kBytes = 384 << 10;
  const size_t tile = cols / kInt8Block * TileLayout<Shape>::kRowBytes;
  return std::clamp<size_t>(kBytes / tile, 1, 8);
}

// The scratch of a thread, which all formats share.
struct TileTokens;
struct TileRowCodes;
// The TokenRows::input_id of what this thread has in the first of these.
inline uint64_t& PackedTokens() {
  thread_local uint64_t input_id = 0;
  return input_id;
}
template <class Shape>
size_t TileTokenBytes(size_t cols, size_t tokens) {
  return (std::min(tokens, kInt8TileBlock) + kMaxTileTokens) *
         (cols / kInt8Block) * TileLayout<Shape>::kTokenBytes;
}
template <class Shape>
size_t TileRowBytes(size_t cols) {
  return RowTilesAtOnce<Shape>(cols) * (cols / kInt8Block) *
         TileLayout<Shape>::kRowBytes;
}

// Unpacks rows [row, row + 16), the last repeated where there are fewer.
template <class Codes>
void PackRowTile(const Matrix& weight, size_t row, size_t end, uint8_t* out) {
  Int8PanelRows<Codes> panel(weight.cols);
  for (size_t lane = 0; lane < kTileRows; lane += kInt8Rows) {
    const size_t first = std::min(row + lane, end - 1);
    panel.Fill(weight, Int8Group(first, end));
    PackRows<Codes>(panel.rows, lane, weight.cols, out);
  }
}

// y[t][row] = weight[row] . x8[t] for rows [begin, end), of tokens enough.
template <class Codes>
void Int8Tiles(const Matrix& weight, const TokenRows& tokens, size_t begin,
               size_t end) {
  using Shape = typename Codes::Shape;
  using Layout = TileLayout<Shape>;
  const size_t cols = weight.cols, blocks = cols / kInt8Block;
  const size_t token_bytes = blocks * Layout::kTokenBytes;
  const size_t row_bytes = blocks * Layout::kRowBytes;
  uint8_t* const x = ThreadScratch<TileTokens, uint8_t>(
      TileTokenBytes<Shape>(cols, tokens.tokens));
  const auto for_tiles = [&](const auto& body) {
    uint8_t* tile = x;
    for (size_t t = 0; t < tokens.tokens;) {
      const size_t padded = NextTile(tokens.tokens - t);
      const size_t count = std::min(padded, tokens.tokens - t);
      body(tile, t, count, padded);
      tile += padded * token_bytes;
      t += count;
    }
  };
  uint64_t& packed = PackedTokens();
  if (tokens.input_id == 0 || tokens.input_id != packed) {
    packed = tokens.input_id;
    for_tiles([&](uint8_t* tile, size_t t, size_t count, size_t padded) {
      PackTile<Shape>(tokens.x8, t, count, padded, cols, tile);
    });
  }
  const size_t step = RowTilesAtOnce<Shape>(cols) * kTileRows;
  uint8_t* const rows =
      ThreadScratch<TileRowCodes, uint8_t>(TileRowBytes<Shape>(cols));
  for (size_t row = begin; row < end; row += step) {
    const size_t last = std::min(end, row + step);
    for (size_t r = row; r < last; r += kTileRows) {
      PackRowTile<Codes>(weight, r, last,
                         rows + (r - row) / kTileRows * row_bytes);
    }
    for_tiles([&](uint8_t* tile, size_t t, size_t count, size_t padded) {
      for (size_t r = row; r < last; r += kTileRows) {
        const auto multiply = padded == 12  ? StoreTile<Shape, 12>
                              : padded == 8 ? StoreTile<Shape, 8>
                                            : StoreTile<Shape, 4>;
        multiply(rows + (r - row) / kTileRows * row_bytes, tile, cols, r,
                 std::min(kTileRows, last - r), tokens.y + t, count);
      }
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
