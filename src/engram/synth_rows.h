// Rows of numbers that look like a table's and follow from a seed.
#pragma once

#include <cstdint>
#include <span>

namespace ecphory::engram {

// How the bytes of a synthetic row are made.
enum class SynthCodec : uint8_t {
  kE4M3Codes,  // every e4m3 code but the two NaNs
  kScales,     // e8m0 codes 112..119: 2^-15 .. 2^-8
  kRow264,     // codes, then width / 32 scales
  kBf16,       // magnitudes 2^-15 .. 2
  kQ8_0,       // blocks of an f16 scale near 2^-7 and 32 codes
};

struct SynthTable {
  uint64_t seed = 0;
  uint32_t table = 0;  // of one file: each has its own numbers
  SynthCodec codec = SynthCodec::kRow264;
  uint32_t width = 0;  // a multiple of 32
};

// Far above every published table (256).
inline constexpr uint32_t kMaxSynthWidth = 1 << 16;

uint32_t SynthRowBytes(SynthCodec codec, uint32_t width);

// Rows [first, ...) as many as fit into `out`, whose size is whole rows. A row
// depends on seed, table and row number alone; kE4M3Codes and kScales are the
// two parts of kRow264.
void SynthRows(const SynthTable& table, uint64_t first, std::span<uint8_t> out);

}  // namespace ecphory::engram
