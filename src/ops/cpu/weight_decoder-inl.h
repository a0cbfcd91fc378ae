// One row of a packed weight matrix as float vectors, for kernels that multiply
// in registers and for kernels that unpack panels; compiled once per Highway
// target.
//
// A WeightDecoder<format> hands out a row block by block:
//   static constexpr size_t kBlock;        values, a multiple of kLanes
//   static constexpr LaneOrder kOrder;     how a block lies in its vectors
//   WeightDecoder(const Matrix&, size_t row);
//   template <class Sink> void Block(size_t block, const Sink& sink);
//   bool exact() const;
// Block calls sink(i, w) for i = 0, kLanes, 2 kLanes, ... < kBlock in turn,
// with w the values at the places i, i + 1, ... of the block in kOrder, each
// exactly that of DequantizeRow (but for the sign of a zero). A code that would
// cost every other one time is left out: after the row's blocks exact() is
// false if there was one, and the row must be taken from DequantizeRow instead.
//
// Rows must be whole blocks (WholeBlocks); a format without a lane order is
// kNatural also where a row is not.
#if defined(ECPHORY_OPS_CPU_WEIGHT_DECODER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_WEIGHT_DECODER_INL_H_
#undef ECPHORY_OPS_CPU_WEIGHT_DECODER_INL_H_
#else
#define ECPHORY_OPS_CPU_WEIGHT_DECODER_INL_H_
#endif

#include <algorithm>

#include "ops/cpu/code_tables.h"
#include "ops/cpu/decode-inl.h"
#include "tensor/matrix.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

// In which order the vectors of a block hold its values. What is multiplied
// with them must lie alike (PackX).
enum class LaneOrder {
  kNatural,
  kEvenOdd  // of every 2 kLanes values the even ones, then the odd ones
};

// x in a lane order: x itself when that is the natural one, else `out`, which
// holds `n` values, a multiple of 32.
template <LaneOrder kOrder>
HWY_INLINE const float* PackX(const float* HWY_RESTRICT x, size_t n,
                              float* HWY_RESTRICT out) {
  if constexpr (kOrder == LaneOrder::kNatural) {
    return x;
  } else {
    for (size_t i = 0; i < n; i += 2 * kLanes) {
      VF even, odd;
      hn::LoadInterleaved2(kF, x + i, even, odd);
      Store(even, out + i);
      Store(odd, out + i + kLanes);
    }
    return out;
  }
}

// A sink that stores a block.
struct StoreSink {
  HWY_INLINE void operator()(size_t i, VF w) const { Store(w, out + i); }
  float* out;
};

template <WeightFormat kFormat>
class WeightDecoder;

template <class Decoder>
constexpr bool WholeBlocks(size_t cols) {
  return cols % Decoder::kBlock == 0;
}

HWY_INLINE const uint8_t* RowData(const Matrix& weight, size_t row) {
  return weight.data + (weight.first_row + row) * weight.row_bytes();
}

// The formats of one code after the other, whose value is the code's alone.
template <class Codec>
class PlainDecoder {
 public:
  static constexpr size_t kBlock = 32;
  static constexpr LaneOrder kOrder = LaneOrder::kNatural;
  PlainDecoder(const Matrix& weight, size_t row)
      : values_(RowData(weight, row)) {}
  template <class Sink>
  HWY_INLINE void Block(size_t block, const Sink& sink) const {
    const uint8_t* const p = values_ + block * 32 * Codec::kBytes;
#pragma GCC unroll 8
    for (size_t i = 0; i < 32; i += kLanes) {
      sink(i, Codec::Decode(p + i * Codec::kBytes));
    }
  }
  bool exact() const { return true; }

 private:
  const uint8_t* values_;
};

struct F32Codec {
  static constexpr size_t kBytes = 4;
  static HWY_INLINE VF Decode(const uint8_t* p) {
    return Load(reinterpret_cast<const float*>(p));
  }
};
struct F16Codec {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE VF Decode(const uint8_t* p) { return DecodeF16(p); }
};
struct Bf16Codec {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE VF Decode(const uint8_t* p) { return DecodeBf16(p); }
};

template <>
class WeightDecoder<WeightFormat::kF32> : public PlainDecoder<F32Codec> {
  using PlainDecoder::PlainDecoder;
};
template <>
class WeightDecoder<WeightFormat::kF16> : public PlainDecoder<F16Codec> {
  using PlainDecoder::PlainDecoder;
};
template <>
class WeightDecoder<WeightFormat::kBF16> : public PlainDecoder<Bf16Codec> {
  using PlainDecoder::PlainDecoder;
};

// Blocks of an f16 scale and 32 int8.
template <>
class WeightDecoder<WeightFormat::kQ8_0> {
 public:
  static constexpr size_t kBlock = 32;
  static constexpr LaneOrder kOrder = LaneOrder::kNatural;
  WeightDecoder(const Matrix& weight, size_t row)
      : blocks_(RowData(weight, row)) {}
  template <class Sink>
  HWY_INLINE void Block(size_t block, const Sink& sink) const {
    const uint8_t* const p = blocks_ + block * 34;
    const int8_t* const codes = reinterpret_cast<const int8_t*>(p + 2);
    const VF scale = hn::Set(kF, DecodeOneF16(p));
#pragma GCC unroll 8
    for (size_t i = 0; i < 32; i += kLanes) {
      sink(i, hn::Mul(DecodeI8(codes + i), scale));
    }
  }
  bool exact() const { return true; }

 private:
  const uint8_t* blocks_;
};

// e4m3 codes, an e8m0 scale per tile of 32x32. Left out: the NaN codes, and
// scales that overflow when 2^8 is folded into them (DecodeFiniteE4M3).
template <>
class WeightDecoder<WeightFormat::kFp8Tile32> {
 public:
  static constexpr size_t kBlock = 32;
  static constexpr LaneOrder kOrder = LaneOrder::kNatural;
  WeightDecoder(const Matrix& weight, size_t row)
      : codes_(RowData(weight, row)),
        scales_(weight.scales +
                (weight.first_row + row) / 32 * (weight.cols / 32)),
        e8m0_(GetCodeTables().e8m0.data()) {}
  template <class Sink>
  HWY_INLINE void Block(size_t block, const Sink& sink) {
    const uint8_t* const p = codes_ + block * 32;
    const uint8_t code = scales_[block];
    largest_scale_ = std::max(largest_scale_, code);
    nan_.Look(p);
    const VF scale = hn::Set(kF, kE4M3HalfUnit * e8m0_[code]);
#pragma GCC unroll 8
    for (size_t i = 0; i < 32; i += kLanes) {
      sink(i, hn::Mul(DecodeFiniteE4M3(p + i), scale));
    }
  }
  bool exact() const {
    // 2^8 * 2^(246 - 127) is the largest power of two in fp32.
    return largest_scale_ <= 246 && !nan_.found();
  }

 private:
  const uint8_t* codes_;
  const uint8_t* scales_;
  const float* e8m0_;
  uint8_t largest_scale_ = 0;
  E4M3NanDetector nan_;
};

// Blocks of an e8m0 scale and 16 bytes of e2m1, low nibbles first.
template <>
class WeightDecoder<WeightFormat::kMXFP4> {
 public:
  static constexpr size_t kBlock = 32;
  static constexpr LaneOrder kOrder = LaneOrder::kNatural;
  WeightDecoder(const Matrix& weight, size_t row)
      : blocks_(RowData(weight, row)), e8m0_(GetCodeTables().e8m0.data()) {}
  template <class Sink>
  HWY_INLINE void Block(size_t block, const Sink& sink) const {
    const uint8_t* const p = blocks_ + block * 17;
    DecodeE2M1<NibbleOrder::kHalves>(p + 1, e8m0_[p[0]], sink);
  }
  bool exact() const { return true; }

 private:
  const uint8_t* blocks_;
  const float* e8m0_;
};

// e2m1 codes in pairs, an e8m0 scale per 32 columns of a row.
template <>
class WeightDecoder<WeightFormat::kFp4Row32> {
 public:
  static constexpr size_t kBlock = 32;
  static constexpr LaneOrder kOrder =
      kE2M1InTable ? LaneOrder::kEvenOdd : LaneOrder::kNatural;
  WeightDecoder(const Matrix& weight, size_t row)
      : codes_(RowData(weight, row)),
        scales_(weight.scales + (weight.first_row + row) * (weight.cols / 32)),
        e8m0_(GetCodeTables().e8m0.data()) {}
  template <class Sink>
  HWY_INLINE void Block(size_t block, const Sink& sink) const {
    DecodeE2M1<NibbleOrder::kPairs>(codes_ + block * 16, e8m0_[scales_[block]],
                                    sink);
  }
  bool exact() const { return true; }

 private:
  const uint8_t* codes_;
  const uint8_t* scales_;
  const float* e8m0_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
