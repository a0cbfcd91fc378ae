#include "engram/synth_rows.h"

#include "base/counter_random.h"

namespace ecphory::engram {

namespace {

// 0x7f and 0xff, the NaNs, become their lower neighbours.
uint64_t ToCodes(uint64_t x) {
  const uint64_t nan = ((x & EightOf(0x7f)) + EightOf(1)) & EightOf(0x80);
  return x ^ nan >> 7;
}

uint64_t ToScales(uint64_t x) { return (x & EightOf(0x07)) | EightOf(0x70); }

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

void FillRow(const SynthTable& table, uint64_t key, std::span<uint8_t> row) {
  // Scales have numbers of their own, so that they are the same wherever they
  // are stored.
  const uint64_t scale_key = MixBits(key ^ 0x5ca1e5);
  switch (table.codec) {
    case SynthCodec::kE4M3Codes: return FillRandom(key, row, ToCodes);
    case SynthCodec::kScales: return FillRandom(scale_key, row, ToScales);
    case SynthCodec::kRow264:
      FillRandom(key, row.first(table.width), ToCodes);
      return FillRandom(scale_key, row.subspan(table.width), ToScales);
    case SynthCodec::kBf16: return FillRandom(key, row, ToBf16);
    case SynthCodec::kQ8_0:
      FillRandom(key, row, [](uint64_t x) { return x; });
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
  const uint64_t base =
      MixBits(MixBits(table.seed + kRandomStep) ^ table.table);
  for (uint64_t row = first; !out.empty(); ++row) {
    FillRow(table, MixBits(base + row * kRandomStep), out.first(row_bytes));
    out = out.subspan(row_bytes);
  }
}

}  // namespace ecphory::engram
