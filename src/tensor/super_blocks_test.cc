#include "tensor/super_blocks.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tensor/float_codec.h"
#include "tensor/iq2_xxs.h"

namespace ecphory {
namespace {

constexpr uint16_t kHalf = 0x3800;  // f16 0.5
constexpr uint16_t kQuarter = 0x3400;

template <class Block>
std::vector<float> Decode(void (*dequantize)(const uint8_t*, size_t, float*),
                          const std::vector<Block>& blocks) {
  // One byte in front: blocks may lie anywhere in a file.
  std::vector<uint8_t> bytes(1 + blocks.size() * sizeof(Block));
  std::memcpy(bytes.data() + 1, blocks.data(), blocks.size() * sizeof(Block));
  std::vector<float> out(blocks.size() * kSuperBlock);
  dequantize(bytes.data() + 1, out.size(), out.data());
  return out;
}

TEST(SuperBlocks, Q4KUnpacksSixBitScales) {
  // Part j has scale 5 j + 1 and min 63 - 7 j, in the packing's own words.
  uint8_t packed[12] = {};
  for (size_t j = 0; j < 8; ++j) {
    const auto scale = static_cast<uint8_t>(5 * j + 1);
    const auto min = static_cast<uint8_t>(63 - 7 * j);
    if (j < 4) {
      packed[j] |= scale;
      packed[j + 4] |= min;
    } else {
      packed[j + 4] = static_cast<uint8_t>((scale & 15) | (min & 15) << 4);
      packed[j - 4] |= static_cast<uint8_t>(scale >> 4 << 6);
      packed[j] |= static_cast<uint8_t>(min >> 4 << 6);
    }
  }
  for (size_t j = 0; j < 8; ++j) {
    EXPECT_EQ(5 * j + 1, Q4KScale(packed, j)) << j;
    EXPECT_EQ(63 - 7 * j, Q4KMin(packed, j)) << j;
  }
}

TEST(SuperBlocks, Q4KPlacesNibblesAndSubtractsMins) {
  std::vector<Q4KBlock> blocks(2);
  blocks[1].d = kHalf;
  blocks[1].dmin = kQuarter;
  blocks[1].scales[1] = 3;       // of part 1
  blocks[1].scales[4] = 2;       // min of part 0
  blocks[1].scales[8] = 0x5f;    // part 4: scale 15, min 5
  blocks[1].codes[2] = 0x9c;     // part 0 value 2: 12; part 1 value 2: 9
  blocks[1].codes[64 + 31] = 7;  // part 4 value 31
  const std::vector<float> y = Decode(DequantizeQ4K, blocks);
  EXPECT_EQ(0.0f, y[2]);
  EXPECT_EQ(-0.5f, y[256 + 2]);  // its scale is 0
  EXPECT_EQ(0.5f * 3 * 9, y[256 + 32 + 2]);
  EXPECT_EQ(0.5f * 15 * 7 - 0.25f * 5, y[256 + 128 + 31]);
  EXPECT_EQ(-0.25f * 5, y[256 + 128 + 30]);
}

TEST(SuperBlocks, Q2KPlacesPairsOfBitsAndSubtractsMins) {
  std::vector<Q2KBlock> blocks(2);
  blocks[1].d = kHalf;
  blocks[1].dmin = kQuarter;
  blocks[1].scales[0] = 0x21;   // part 0: scale 1, min 2
  blocks[1].scales[3] = 0x4f;   // values 48..63
  blocks[1].scales[15] = 0xf2;  // values 240..255
  blocks[1].codes[5] = 0b01'00'11'10;
  blocks[1].codes[17] = 0b01'00'11'10;
  blocks[1].codes[63] = 0b11'01'00'10;
  const std::vector<float> y = Decode(DequantizeQ2K, blocks);
  EXPECT_EQ(0.0f, y[5]);
  EXPECT_EQ(0.5f * 2 - 0.25f * 2, y[256 + 5]);
  EXPECT_EQ(0.0f, y[256 + 32 + 5]);  // part 2 has scale 0 and min 0
  EXPECT_EQ(0.5f * 15 * 3 - 0.25f * 4, y[256 + 32 + 17]);
  EXPECT_EQ(0.5f * 2 * 3 - 0.25f * 15, y[256 + 255]);
  EXPECT_EQ(-0.25f * 15, y[256 + 254]);
}

TEST(SuperBlocks, Iq2xxsLooksUpSignsAndScales) {
  std::vector<Iq2xxsBlock> blocks(2);
  blocks[1].d = kHalf;
  Iq2xxsBlock::Part& part = blocks[1].parts[3];
  part.entries[1] = 1;   // code 0x0002: the first magnitude is 43
  part.entries[2] = 21;  // code 0x0101: 25 8 8 8 25 8 8 8
  // Entry 2: values 0 and 1 negative, an even number, so value 7 is not; entry
  // 1: value 4, an odd number, so value 7 is. Scale 6.
  const uint32_t word = 6u << 28 | 0b11u << 14 | 0b10000u << 7;
  std::memcpy(part.signs_scale, &word, sizeof(word));
  const std::vector<float> y = Decode(DequantizeIq2xxs, blocks);
  const float scale = 0.5f * 6.5f / 4;
  const float* const values = y.data() + 256 + 3 * 32;
  const float expected[32] = {8,   8,  8, 8, 8,  8, 8, 8,   //
                              43,  8,  8, 8, -8, 8, 8, -8,  //
                              -25, -8, 8, 8, 25, 8, 8, 8,   //
                              8,   8,  8, 8, 8,  8, 8, 8};
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(scale * expected[i], values[i]) << i;
  }
  EXPECT_EQ(0.5f * 0.5f / 4 * 8, y[256]);  // scale 0 stands for 0.5
}

TEST(SuperBlocks, EverySignIndexHasAnEvenNumberOfSigns) {
  for (uint32_t i = 0; i < 128; ++i) {
    EXPECT_EQ(i, Iq2xxsSigns(i) & 127u);
    EXPECT_EQ(0, std::popcount(Iq2xxsSigns(i)) % 2) << i;
  }
}

// FIPS 180-4, of whole 64-byte blocks.
std::array<uint32_t, 8> Sha256(const std::vector<uint8_t>& message) {
  // The first 32 bits of the fractional parts of the square and cube roots of
  // the first primes.
  const auto fraction = [](double root) {
    return static_cast<uint32_t>(
        std::floor((root - std::floor(root)) * 0x1p32));
  };
  std::vector<uint32_t> k;
  std::array<uint32_t, 8> h{};
  for (uint32_t n = 2; k.size() < 64; ++n) {
    bool prime = true;
    for (uint32_t i = 2; i * i <= n; ++i) prime = prime && n % i != 0;
    if (!prime) continue;
    if (k.size() < 8) h[k.size()] = fraction(std::sqrt(n));
    k.push_back(fraction(std::cbrt(n)));
  }
  std::vector<uint8_t> padded = message;
  padded.push_back(0x80);
  while (padded.size() % 64 != 56) padded.push_back(0);
  for (int shift = 56; shift >= 0; shift -= 8) {
    padded.push_back(static_cast<uint8_t>(message.size() * 8 >> shift));
  }
  for (size_t block = 0; block < padded.size(); block += 64) {
    uint32_t w[64];
    for (size_t i = 0; i < 16; ++i) {
      const uint8_t* const p = &padded[block + 4 * i];
      w[i] = uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 |
             p[3];
    }
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] +
             (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    std::array<uint32_t, 8> s = h;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t e = s[4], a = s[0];
      const uint32_t t1 =
          s[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
          ((e & s[5]) ^ (~e & s[6])) + k[i] + w[i];
      const uint32_t t2 =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
          ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
      s = {t1 + t2, s[0], s[1], s[2], s[3] + t1, s[4], s[5], s[6]};
    }
    for (size_t i = 0; i < 8; ++i) h[i] += s[i];
  }
  return h;
}

TEST(SuperBlocks, Sha256OfThreeLetters) {
  EXPECT_EQ(0xba7816bfu, Sha256({'a', 'b', 'c'})[0]);
  EXPECT_EQ(0xf20015adu, Sha256({'a', 'b', 'c'})[7]);
}

// The checksum of the codes as they are published, two bytes each.
TEST(SuperBlocks, TheGridIsTheOneOfTheFormat) {
  std::vector<uint8_t> bytes;
  for (const uint16_t code : kIq2xxsCodes) {
    bytes.push_back(static_cast<uint8_t>(code & 255));
    bytes.push_back(static_cast<uint8_t>(code >> 8));
  }
  const std::array<uint32_t, 8> expected = {
      0x915952ebu, 0xc4af8ddbu, 0xa8113583u, 0xca1316fcu,
      0x818843f7u, 0xb825bbf1u, 0xa25ae1c3u, 0x9bf0e16du};
  EXPECT_EQ(expected, Sha256(bytes));
}

TEST(SuperBlocks, InfiniteScalesMakeNoFiniteValue) {
  std::vector<Q2KBlock> q2(1);
  std::memset(q2.data(), 0x55, sizeof(Q2KBlock));
  q2[0].d = 0x7c00;
  std::vector<Q4KBlock> q4(1);
  std::memset(q4.data(), 0x55, sizeof(Q4KBlock));
  q4[0].dmin = 0x7e00;
  std::vector<Iq2xxsBlock> iq2(1);
  iq2[0].d = 0xfc00;
  for (const std::vector<float>& values :
       {Decode(DequantizeQ2K, q2), Decode(DequantizeQ4K, q4),
        Decode(DequantizeIq2xxs, iq2)}) {
    for (const float value : values) EXPECT_FALSE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace ecphory
