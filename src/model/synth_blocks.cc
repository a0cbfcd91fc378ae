#include "model/synth_blocks.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/counter_random.h"
#include "tensor/float_codec.h"

namespace ecphory {

namespace {

uint64_t AnyBits(uint64_t bits) { return bits; }

// int8 codes -127 to 127: -128, which no encoder makes, becomes 0.
uint64_t RandomQ8(uint64_t bits) {
  const uint64_t rest = bits ^ EightOf(0x80);
  const uint64_t nonzero =
      (((rest & EightOf(0x7f)) + EightOf(0x7f)) | rest) & EightOf(0x80);
  return bits ^ (nonzero ^ EightOf(0x80));
}

// Four bits 8..15 twice, as scale and as offset of a sub-block.
uint64_t RandomQ2Scales(uint64_t bits) {
  const uint64_t s = (bits & EightOf(0x07)) | EightOf(0x08);
  return s | s << 4;
}

double MeanSquareOfRange(int low, int high, double centre) {
  double sum = 0;
  for (int i = low; i <= high; ++i) sum += (i - centre) * (i - centre);
  return sum / (high - low + 1);
}

// Of a block's values where its own scale is 1, given the codes below.
double UnitMeanSquare(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:  // 256 codes, one of them turned into 0
      return MeanSquareOfRange(-127, 127, 0) * 255 / 256;
    case DType::kQ4_K:  // s * (q - 7.5)
      return MeanSquareOfRange(32, 63, 0) * MeanSquareOfRange(0, 15, 7.5);
    case DType::kQ2_K:  // s * (q - 1.5)
      return MeanSquareOfRange(8, 15, 0) * MeanSquareOfRange(0, 3, 1.5);
    case DType::kIQ2_XXS:
      // (s + 0.5) / 4 * entry; over the 256 entries of eight values the mean
      // square is 1094513 / 2048.
      return MeanSquareOfRange(0, 15, -0.5) / 16 * 1094513 / 2048;
    default: return MeanSquareE2M1();
  }
}

// What a block's offset takes back for each unit of scale.
double OffsetOf(DType dtype) {
  return dtype == DType::kQ4_K ? 7.5 : dtype == DType::kQ2_K ? 1.5 : 0;
}

// The i-th of 64 scales around 1.
double ScaleShare(size_t i) { return 0.75 + static_cast<double>(i) / 128; }

template <typename T>
void Store(T value, uint8_t* out) {
  std::memcpy(out, &value, sizeof(value));
}

template <typename Map>
void PutWords(RandomWords* words, size_t count, const Map& map, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) Store(map(words->Next()), out + 8 * i);
}

}  // namespace

uint64_t RandomE4M3(uint64_t bits) {
  bits |= EightOf(0x40);
  const uint64_t nan = ((bits & EightOf(0x7f)) + EightOf(1)) & EightOf(0x80);
  return bits ^ nan >> 7;  // 0x7f becomes 0x7e
}

double MeanSquareE4M3() {
  double sum = 0;
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const double x{E4M3ToF32(static_cast<uint8_t>(RandomE4M3(bits)))};
    sum += x * x;
  }
  return sum / 256;
}

double MeanSquareE2M1() {
  double sum = 0;
  for (uint8_t code = 0; code < 16; ++code) {
    const double x{E2M1ToF32(code)};
    sum += x * x;
  }
  return sum / 16;
}

PowerScales::PowerScales(double rms) {
  int power = 0;
  while (std::ldexp(1.0, power) > rms) --power;
  while (std::ldexp(1.0, power + 1) <= rms) ++power;
  ECPHORY_CHECK(power > -127 && power < 127);
  const double below = std::ldexp(1.0, power);
  const double share = (rms * rms / (below * below) - 1) / 3;
  power_ = static_cast<uint8_t>(power + 127);
  larger_of_256_ = static_cast<uint32_t>(share * 256 + 0.5);
}

SynthBlocks::SynthBlocks(DType dtype, double deviation)
    : dtype_(dtype),
      power_scales_(deviation / std::sqrt(UnitMeanSquare(dtype))) {
  ECPHORY_CHECK(Makes(dtype));
  double squares = 0;
  for (size_t i = 0; i < scales_.size(); ++i) {
    squares += ScaleShare(i) * ScaleShare(i);
  }
  const double middle =
      deviation / std::sqrt(UnitMeanSquare(dtype) * squares / 64);
  for (size_t i = 0; i < scales_.size(); ++i) {
    scales_[i] = F32ToF16(static_cast<float>(middle * ScaleShare(i)));
    const double scale{F16ToF32(scales_[i])};
    offsets_[i] = F32ToF16(static_cast<float>(OffsetOf(dtype) * scale));
  }
}

bool SynthBlocks::Makes(DType dtype) {
  return dtype == DType::kQ8_0 || dtype == DType::kQ4_K ||
         dtype == DType::kQ2_K || dtype == DType::kIQ2_XXS ||
         dtype == DType::kMXFP4;
}

void SynthBlocks::Make(RandomWords* words, uint8_t* out) const {
  const uint64_t head = words->Next();
  const size_t scale = head % scales_.size();
  switch (dtype_) {
    case DType::kQ4_K: return MakeQ4K(scale, words, out);
    case DType::kQ2_K: return MakeQ2K(scale, words, out);
    case DType::kMXFP4:
      out[0] = power_scales_.Pick(static_cast<uint8_t>(head));
      return PutWords(words, 2, AnyBits, out + 1);
    case DType::kQ8_0:
      Store(scales_[scale], out);
      return PutWords(words, 4, RandomQ8, out + 2);
    default:  // IQ2_XXS: every choice of entries, signs and scales is valid
      Store(scales_[scale], out);
      return PutWords(words, 8, AnyBits, out + 2);
  }
}

// The six-bit scales of the eight sub-blocks, 32 or more, are their offsets as
// well.
void SynthBlocks::MakeQ4K(size_t scale, RandomWords* words,
                          uint8_t* out) const {
  Store(scales_[scale], out);
  Store(offsets_[scale], out + 2);
  const uint64_t random = words->Next();
  const auto sub = [random](int i) {
    return static_cast<uint8_t>(32 | (random >> (8 * i) & 31));
  };
  uint8_t* const packed = out + 4;
  for (int i = 0; i < 4; ++i) {
    packed[i] = packed[i + 4] =
        static_cast<uint8_t>(sub(i) | sub(i + 4) >> 4 << 6);
    packed[i + 8] = static_cast<uint8_t>((sub(i + 4) & 15) * 0x11);
  }
  PutWords(words, 16, AnyBits, out + 16);
}

void SynthBlocks::MakeQ2K(size_t scale, RandomWords* words,
                          uint8_t* out) const {
  PutWords(words, 2, RandomQ2Scales, out);
  PutWords(words, 8, AnyBits, out + 16);
  Store(scales_[scale], out + 80);
  Store(offsets_[scale], out + 82);
}

}  // namespace ecphory
