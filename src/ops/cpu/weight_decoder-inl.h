// Rows of a packed weight matrix as float vectors, for kernels that multiply in
// registers and for kernels that unpack panels; compiled once per Highway
// target.
//
// A WeightDecoder<format> hands out up to kRowsAtOnce rows, `step` apart, block
// by block:
//   static constexpr size_t kBlock;        values, a multiple of kLanes
//   static constexpr size_t kBlockBytes;   stored in a row, scales apart not
//   static constexpr LaneOrder kOrder;     how a block lies in its vectors
//   WeightDecoder(const Matrix&, size_t row, size_t step = 1);
//   template <size_t kRow = 0, class Sink>
//   void Block(size_t block, const Sink& sink);    of row `row` + kRow * step
//   bool exact() const;
// Block calls sink(i, w) for i = 0, kLanes, 2 kLanes, ... < kBlock in turn,
// with w the values at the places i, i + 1, ... of the block in kOrder, each
// exactly that of DequantizeRow (but for the sign of a zero). A code that would
// cost every other one time is left out: after the last block exact() is false
// if there was one, and the rows must be taken from DequantizeRow instead.
//
// Rows must be whole blocks (WholeBlocks); a format that has others is
// kNatural. The rows of a decoder of kFp8Tile32 are of one tile.
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
  kNibblePairs,   // of 32 values of kFp4Row32, E2M1Decoder's order
  kNibbleHalves,  // of 32 values of kMXFP4, likewise
  kPartBlocks     // of every kLanes / 4 parts of kQ2_K with the same shift the
                  // values 4 j, then 4 j + 1, 4 j + 2, 4 j + 3
};

// x in a lane order: x itself when that is the natural one, else `out`. The `n`
// values are whole blocks.
template <LaneOrder kOrder>
HWY_INLINE const float* PackX(const float* HWY_RESTRICT x, size_t n,
                              float* HWY_RESTRICT out) {
  if constexpr (kOrder == LaneOrder::kNatural) {
    return x;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  } else if constexpr (kOrder == LaneOrder::kNibblePairs ||
                       kOrder == LaneOrder::kNibbleHalves) {
    const int32_t* const places =
        kOrder == LaneOrder::kNibblePairs
            ? E2M1Decoder<NibbleOrder::kPairs>::kPlaces.element
            : E2M1Decoder<NibbleOrder::kHalves>::kPlaces.element;
    const __m512i first = _mm512_load_si512(places);
    const __m512i second = _mm512_load_si512(places + kLanes);
    for (size_t i = 0; i < n; i += 32) {
      const __m512 low = Load(x + i).raw;
      const __m512 high = Load(x + i + kLanes).raw;
      Store(VF{_mm512_permutex2var_ps(low, first, high)}, out + i);
      Store(VF{_mm512_permutex2var_ps(low, second, high)}, out + i + kLanes);
    }
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  } else if constexpr (kOrder == LaneOrder::kNibblePairs) {
    const hn::Full128<float> d;
    for (size_t i = 0; i < n; i += 16) {
      hn::Vec<decltype(d)> v0, v1, v2, v3;
      hn::LoadInterleaved4(d, x + i, v0, v1, v2, v3);
      hn::Store(v0, d, out + i);
      hn::Store(v1, d, out + i + 4);
      hn::Store(v2, d, out + i + 8);
      hn::Store(v3, d, out + i + 12);
    }
  } else if constexpr (kOrder == LaneOrder::kNibbleHalves) {
    const hn::Full128<float> d;
    for (size_t i = 0; i < n; i += 32) {
      for (size_t half = 0; half < 2; ++half) {
        for (size_t k = 0; k < 16; k += 8) {
          hn::Vec<decltype(d)> even, odd;
          hn::LoadInterleaved2(d, x + i + 16 * half + k, even, odd);
          hn::Store(even, d, out + i + 2 * k + 4 * half);
          hn::Store(odd, d, out + i + 2 * k + kLanes + 4 * half);
        }
      }
    }
#endif
  } else if constexpr (kLanes >= 8) {
    const hn::CappedTag<float, 4> d;
    for (size_t i = 0; i < n; i += 16) {
      hn::Vec<decltype(d)> v0, v1, v2, v3;
      hn::LoadInterleaved4(d, x + i, v0, v1, v2, v3);
      // The number of the part among those of its shift.
      const size_t part = i % 256 / 128 * 2 + i / 16 % 2;
      float* const to = out + i / 256 * 256 + part * 4 / kLanes * 16 * kLanes +
                        i % 128 / 32 * 4 * kLanes + part * 4 % kLanes;
      hn::StoreU(v0, d, to);
      hn::StoreU(v1, d, to + kLanes);
      hn::StoreU(v2, d, to + 2 * kLanes);
      hn::StoreU(v3, d, to + 3 * kLanes);
    }
  }
  return out;
}

// A sink that stores values.
struct StoreSink {
  HWY_INLINE StoreSink At(size_t i) const { return {out + i}; }
  template <class V>
  HWY_INLINE void operator()(size_t i, V w) const {
    hn::StoreU(w, hn::DFromV<V>(), out + i);
  }
  float* out;
};

// Calls sink.At(step)(i, w) for all steps of an open block.
template <size_t kStep = 0, class Decoder, class Sink>
HWY_INLINE void DecodeSteps(Decoder& decoder, size_t block, const Sink& sink) {
  if constexpr (kStep < Decoder::kSteps) {
    constexpr size_t kValues = Decoder::kBlock / Decoder::kSteps;
    decoder.template Step<kStep>(block, sink.At(kStep * kValues));
    DecodeSteps<kStep + 1>(decoder, block, sink);
  }
}

template <class Decoder, class Sink>
HWY_INLINE void DecodeBlock(Decoder& decoder, size_t block, const Sink& sink) {
  decoder.Open(block);
  DecodeSteps(decoder, block, sink);
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
constexpr LaneOrder kFp4Order = LaneOrder::kNibblePairs;
constexpr LaneOrder kMxfp4Order = LaneOrder::kNibbleHalves;
#else
constexpr LaneOrder kFp4Order = LaneOrder::kNatural;
constexpr LaneOrder kMxfp4Order = LaneOrder::kNatural;
#endif

template <WeightFormat kFormat>
class WeightDecoder;

template <class Decoder>
constexpr bool WholeBlocks(size_t cols) {
  return cols % Decoder::kBlock == 0;
}

HWY_INLINE const uint8_t* RowData(const Matrix& weight, size_t row) {
  return weight.data + (weight.first_row + row) * weight.row_bytes();
}

constexpr size_t kRowsAtOnce = 4;

// Rows of bytes at equal distances: one pointer and a stride, because the
// kernels run out of registers before anything else.
class RowBytes {
 public:
  RowBytes(const uint8_t* first, size_t stride)
      : first_(first), stride_(stride) {}
  RowBytes(const Matrix& weight, size_t row, size_t step)
      : RowBytes(RowData(weight, row), step * weight.row_bytes()) {}
  template <size_t kRow>
  HWY_INLINE const uint8_t* At(size_t offset) const {
    return first_ + kRow * stride_ + offset;
  }

 private:
  const uint8_t* first_;
  size_t stride_;
};

// The formats of one code after the other, whose value is the code's alone.
template <class Codec>
class PlainDecoder {
 public:
  using Lanes = DF;
  static constexpr size_t kBlock = 32;
  static constexpr size_t kBlockBytes = kBlock * Codec::kBytes;
  static constexpr size_t kSteps = 1;
  static constexpr LaneOrder kOrder = LaneOrder::kNatural;
  PlainDecoder(const Matrix& weight, size_t row, size_t step = 1)
      : rows_(weight, row, step) {}
  template <size_t kRow = 0>
  HWY_INLINE void Open(size_t) {}
  template <size_t kStep, size_t kRow = 0, class Sink>
  HWY_INLINE void Step(size_t block, const Sink& sink) const {
    const uint8_t* const p = rows_.At<kRow>(block * kBlockBytes);
#pragma GCC unroll 8
    for (size_t i = 0; i < 32; i += kLanes) {
      sink(i, Codec::Decode(p + i * Codec::kBytes));
    }
  }
  bool exact() const { return true; }

 private:
  RowBytes rows_;
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
  using Lanes = DF;
  static constexpr size_t kBlock = 32;
  static constexpr size_t kBlockBytes = 34;
  static constexpr size_t kSteps = 1;
  static constexpr LaneOrder kOrder = LaneOrder::kNatural;
  WeightDecoder(const Matrix& weight, size_t row, size_t step = 1)
      : rows_(weight, row, step) {}
  template <size_t kRow = 0>
  HWY_INLINE void Open(size_t) {}
  template <size_t kStep, size_t kRow = 0, class Sink>
  HWY_INLINE void Step(size_t block, const Sink& sink) const {
    const uint8_t* const p = rows_.At<kRow>(block * kBlockBytes);
    const int8_t* const codes = reinterpret_cast<const int8_t*>(p + 2);
    const VF scale = hn::Set(kF, DecodeOneF16(p));
#pragma GCC unroll 8
    for (size_t i = 0; i < 32; i += kLanes) {
      sink(i, hn::Mul(DecodeI8(codes + i), scale));
    }
  }
  bool exact() const { return true; }

 private:
  RowBytes rows_;
};

// e4m3 codes, an e8m0 scale per tile of 32x32. Left out: the NaN codes, and
// scales that overflow when 2^8 is folded into them (DecodeFiniteE4M3).
template <>
class WeightDecoder<WeightFormat::kFp8Tile32> {
 public:
  using Lanes = DF;
  static constexpr size_t kBlock = 32;
  static constexpr size_t kBlockBytes = 32;
  static constexpr size_t kSteps = 1;
  static constexpr LaneOrder kOrder = LaneOrder::kNatural;
  WeightDecoder(const Matrix& weight, size_t row, size_t step = 1)
      : rows_(weight, row, step),
        scales_(weight.scales +
                (weight.first_row + row) / 32 * (weight.cols / 32)),
        e8m0_(GetCodeTables().e8m0_of_e4m3.data()) {}
  template <size_t kRow = 0>
  HWY_INLINE void Open(size_t) {}
  template <size_t kStep, size_t kRow = 0, class Sink>
  HWY_INLINE void Step(size_t block, const Sink& sink) {
    const uint8_t* const p = rows_.At<kRow>(block * kBlockBytes);
    const uint8_t code = scales_[block];
    if constexpr (kRow == 0) largest_scale_ = std::max(largest_scale_, code);
    nan_.Look(p);
    const VF scale = hn::Set(kF, e8m0_[code]);
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
  RowBytes rows_;
  const uint8_t* scales_;  // of the tiles that all of the rows lie in
  const float* e8m0_;
  uint8_t largest_scale_ = 0;
  E4M3NanDetector nan_;
};

// Blocks of an e8m0 scale and 16 bytes of e2m1, low nibbles first.
template <>
class WeightDecoder<WeightFormat::kMXFP4> {
 public:
  using Lanes = DF;
  static constexpr size_t kBlock = 32;
  static constexpr size_t kBlockBytes = 17;
  static constexpr size_t kSteps = 1;
  static constexpr LaneOrder kOrder = kMxfp4Order;
  WeightDecoder(const Matrix& weight, size_t row, size_t step = 1)
      : rows_(weight, row, step) {}
  template <size_t kRow = 0>
  HWY_INLINE void Open(size_t) {}
  template <size_t kStep, size_t kRow = 0, class Sink>
  HWY_INLINE void Step(size_t block, const Sink& sink) const {
    const uint8_t* const p = rows_.At<kRow>(block * kBlockBytes);
    decode_(p + 1, p[0], sink);
  }
  bool exact() const { return true; }

 private:
  RowBytes rows_;
  E2M1Decoder<NibbleOrder::kHalves> decode_;
};

// e2m1 codes in pairs, an e8m0 scale per 32 columns of a row.
template <>
class WeightDecoder<WeightFormat::kFp4Row32> {
 public:
  using Lanes = DF;
  static constexpr size_t kBlock = 32;
  static constexpr size_t kBlockBytes = 16;
  static constexpr size_t kSteps = 1;
  static constexpr LaneOrder kOrder = kFp4Order;
  // Which the rows' bytes do not hold.
  static constexpr size_t kScaleColumns = 32;
  WeightDecoder(const Matrix& weight, size_t row, size_t step = 1)
      : rows_(weight, row, step),
        scales_(weight.scales + (weight.first_row + row) * (weight.cols / 32),
                step * (weight.cols / 32)) {}
  template <size_t kRow = 0>
  HWY_INLINE void Open(size_t) {}
  template <size_t kStep, size_t kRow = 0, class Sink>
  HWY_INLINE void Step(size_t block, const Sink& sink) const {
    decode_(rows_.At<kRow>(block * kBlockBytes), *scales_.At<kRow>(block),
            sink);
  }
  bool exact() const { return true; }

 private:
  RowBytes rows_;
  RowBytes scales_;
  E2M1Decoder<NibbleOrder::kPairs> decode_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
