#include "tables/synth_rows.h"

#include <algorithm>
#include <cstring>

namespace ecphory::tables {

namespace {

// The finishing step of splitmix64: every bit of x reaches every bit.
uint64_t Mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

constexpr uint64_t kGamma = 0x9e3779b97f4a7c15;

// Eight bytes of 0x.. each.
constexpr uint64_t Bytes(uint8_t byte) { return 0x0101010101010101 * byte; }

// 0x7f and 0xff, the NaNs, become their lower neighbours.
uint64_t ToCodes(uint64_t x) {
  const uint64_t nan = ((x & Bytes(0x7f)) + Bytes(1)) & Bytes(0x80);
  return x ^ nan >> 7;
}

uint64_t ToScales(uint64_t x) { return (x & Bytes(0x07)) | Bytes(0x70); }

// Exponents 112..127.
uint64_t ToBf16(uint64_t x) {
  return (x & 0x87ff87ff87ff87ff) | 0x3800380038003800;
}

// f16 scales 2^-7 .. 2^-6 in the first two bytes of every 34.
void SetQ8Scales(std::span<uint8_t> row) {
  for (size_t block = 0; block + 34 <= row.size(); block += 34) {
    row[block + 1] = static_cast<uint8_t>(0x20 | (row[block + 1] & 0x03));
  }
}

template <typename Map>
void Fill(uint64_t key, std::span<uint8_t> out, const Map& map) {
  size_t at = 0;
  for (; at + 8 <= out.size(); at += 8, key += kGamma) {
    const uint64_t word = map(Mix(key));
    std::memcpy(out.data() + at, &word, 8);
  }
  if (at == out.size()) return;
  const uint64_t word = map(Mix(key));
  std::memcpy(out.data() + at, &word, out.size() - at);
}

void FillRow(const SynthTable& table, uint64_t key, std::span<uint8_t> row) {
  // Scales have numbers of their own, so that they are the same wherever they
  // are stored.
  const uint64_t scale_key = Mix(key ^ 0x5ca1e5);
  switch (table.codec) {
    case SynthCodec::kE4M3Codes: return Fill(key, row, ToCodes);
    case SynthCodec::kScales: return Fill(scale_key, row, ToScales);
    case SynthCodec::kRow264:
      Fill(key, row.first(table.width), ToCodes);
      return Fill(scale_key, row.subspan(table.width), ToScales);
    case SynthCodec::kBf16: return Fill(key, row, ToBf16);
    case SynthCodec::kQ8_0:
      Fill(key, row, [](uint64_t x) { return x; });
      return SetQ8Scales(row);
  }
}

}  // namespace

uint32_t SynthRowBytes(SynthCodec codec, uint32_t width) {
  switch (codec) {
    case SynthCodec::kE4M3Codes: return width;
    case SynthCodec::kScales: return width / 32;
    case SynthCodec::kRow264: return width + width / 32;
    case SynthCodec::kBf16: return 2 * width;
    case SynthCodec::kQ8_0: return width / 32 * 34;
  }
  return 0;
}

void SynthRows(const SynthTable& table, uint64_t first,
               std::span<uint8_t> out) {
  const size_t row_bytes = SynthRowBytes(table.codec, table.width);
  const uint64_t base = Mix(Mix(table.seed + kGamma) ^ table.table);
  for (uint64_t row = first; !out.empty(); ++row) {
    FillRow(table, Mix(base + row * kGamma), out.first(row_bytes));
    out = out.subspan(row_bytes);
  }
}

}  // namespace ecphory::tables
