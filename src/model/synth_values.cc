#include "model/synth_values.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/check.h"
#include "base/counter_random.h"
#include "engram/synth_rows.h"
#include "tensor/float_codec.h"

namespace ecphory {

namespace {

using Kind = SynthValues::Kind;

constexpr size_t kSteps = 4096;

// Step `i` of a triangular distribution of deviation 1, whose quantile function
// needs a square root only.
double Triangular(size_t i) {
  const double half = kSteps / 2;
  const double u = (static_cast<double>(i % (kSteps / 2)) + 0.5) / half;
  const double magnitude = std::sqrt(6.0) * (1 - std::sqrt(1 - u));
  return i < kSteps / 2 ? magnitude : -magnitude;
}

uint32_t StoredCode(DType dtype, double x) {
  const float value = static_cast<float>(x);
  if (dtype == DType::kF16) return F32ToF16(value);
  if (dtype == DType::kBF16) return F32ToBF16(value);
  return F32Bits(value);
}

}  // namespace

uint64_t SynthTensor::rows() const {
  return std::accumulate(shape.begin(), shape.end() - 1, uint64_t{1},
                         std::multiplies<uint64_t>());
}

uint64_t SynthTensor::row_bytes() const {
  const DTypeInfo& info = GetDTypeInfo(dtype);
  return cols() / info.block_values * info.block_bytes;
}

double SynthTableRms() {
  // Every code once, as the rows' codes map them, and every scale.
  double codes = 0, scales = 0;
  for (uint32_t code = 0; code < 256; ++code) {
    const uint32_t used = (code & 127) == 127 ? code - 1 : code;
    const double x{E4M3ToF32(static_cast<uint8_t>(used))};
    codes += x * x / 256;
  }
  for (uint8_t scale = 112; scale < 120; ++scale) {
    const double x{E8M0ToF32(scale)};
    scales += x * x / 8;
  }
  return std::sqrt(codes * scales);
}

SynthRowFiller::SynthRowFiller(const SynthTensor& tensor, uint64_t seed)
    : tensor_(tensor),
      seed_(seed),
      key_(NamedKey(seed, tensor.name)),
      row_bytes_(tensor.row_bytes()) {
  const SynthValues& values = tensor_.values;
  if (values.kind == Kind::kTileScales) {
    scales_.emplace(values.deviation / std::sqrt(MeanSquareE4M3()));
  } else if (values.kind == Kind::kFp4Scales) {
    scales_.emplace(values.deviation / std::sqrt(MeanSquareE2M1()));
  } else if (SynthBlocks::Makes(tensor.dtype)) {
    blocks_.emplace(tensor.dtype, values.deviation);
  } else if (values.kind == Kind::kNumbers && values.mean.size() <= 1) {
    PlanNumbers();
  }
}

void SynthRowFiller::PlanNumbers() {
  const SynthValues& values = tensor_.values;
  const double mean{values.mean.empty() ? 0 : values.mean[0]};
  codes_.resize(kSteps);
  for (size_t i = 0; i < kSteps; ++i) {
    codes_[i] =
        StoredCode(tensor_.dtype, mean + values.deviation * Triangular(i));
  }
}

void SynthRowFiller::Fill(uint64_t first, std::span<uint8_t> out) const {
  if (tensor_.values.IsTable()) return FillTable(first, out);
  for (uint64_t row = first; !out.empty(); ++row) {
    FillRow(MixBits(key_ + row * kRandomStep), out.first(row_bytes_));
    out = out.subspan(row_bytes_);
  }
}

void SynthRowFiller::FillTable(uint64_t first, std::span<uint8_t> out) const {
  engram::SynthTable table;
  table.seed = seed_;
  table.table = tensor_.values.table;
  table.width = static_cast<uint32_t>(tensor_.cols());
  table.codec = engram::SynthCodec::kE4M3Codes;
  if (tensor_.values.kind == Kind::kTableScales) {
    table.codec = engram::SynthCodec::kScales;
    table.width *= 32;
  }
  if (tensor_.values.kind == Kind::kTableRows) {
    table.codec = engram::SynthCodec::kRow264;
    table.width = table.width / 33 * 32;
  }
  engram::SynthRows(table, first, out);
}

void SynthRowFiller::FillRow(uint64_t key, std::span<uint8_t> out) const {
  if (blocks_) return FillBlocks(key, out);
  if (scales_) return FillScales(key, out);
  if (tensor_.values.kind == Kind::kExpertIds) return FillExpertIds(key, out);
  switch (tensor_.dtype) {
    case DType::kF8E4M3: return FillRandom(key, out, RandomE4M3);
    case DType::kI8:  // packed FP4: every byte is valid
      return FillRandom(key, out, [](uint64_t x) { return x; });
    default:
      return codes_.empty() ? FillShifted(key, out) : FillNumbers(key, out);
  }
}

void SynthRowFiller::FillNumbers(uint64_t key, std::span<uint8_t> out) const {
  const auto code = [this](uint64_t x) -> uint64_t {
    return codes_[x % kSteps];
  };
  if (tensor_.dtype == DType::kF32) {
    return FillRandom(
        key, out, [&](uint64_t x) { return code(x) | code(x >> 32) << 32; });
  }
  FillRandom(key, out, [&](uint64_t x) {
    return code(x) | code(x >> 16) << 16 | code(x >> 32) << 32 |
           code(x >> 48) << 48;
  });
}

// A short row whose columns have means of their own.
void SynthRowFiller::FillShifted(uint64_t key, std::span<uint8_t> out) const {
  const SynthValues& values = tensor_.values;
  ECPHORY_CHECK(values.mean.size() == tensor_.cols());
  const size_t bytes = GetDTypeInfo(tensor_.dtype).block_bytes;
  RandomWords words(key);
  for (size_t i = 0; i < tensor_.cols(); ++i) {
    const double shift = values.deviation * Triangular(words.Next() % kSteps);
    const uint32_t code =
        StoredCode(tensor_.dtype, double{values.mean[i]} + shift);
    std::memcpy(out.data() + i * bytes, &code, bytes);
  }
}

void SynthRowFiller::FillBlocks(uint64_t key, std::span<uint8_t> out) const {
  RandomWords words(key);
  const size_t block_bytes = GetDTypeInfo(tensor_.dtype).block_bytes;
  for (size_t at = 0; at < out.size(); at += block_bytes) {
    blocks_->Make(&words, out.data() + at);
  }
}

void SynthRowFiller::FillScales(uint64_t key, std::span<uint8_t> out) const {
  FillRandom(key, out, [this](uint64_t x) {
    uint64_t scales = 0;
    for (int i = 0; i < 64; i += 8) {
      scales |= uint64_t{scales_->Pick(static_cast<uint8_t>(x >> i))} << i;
    }
    return scales;
  });
}

// An arithmetic progression with a step that visits every number, so that none
// comes twice.
void SynthRowFiller::FillExpertIds(uint64_t key, std::span<uint8_t> out) const {
  RandomWords words(key);
  const uint64_t limit = tensor_.values.limit;
  const uint64_t first = words.Next() % limit;
  uint64_t step = 1 + words.Next() % limit;
  while (std::gcd(step, limit) != 1) ++step;
  for (size_t i = 0; i < tensor_.cols(); ++i) {
    const int32_t id = static_cast<int32_t>((first + i * step) % limit);
    std::memcpy(out.data() + i * sizeof(id), &id, sizeof(id));
  }
}

}  // namespace ecphory
