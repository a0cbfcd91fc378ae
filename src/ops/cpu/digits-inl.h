// Products of 2-bit weights with inputs as they are, through integers: x as
// int8 digits; compiled once per Highway target, of x86 with VNNI.
//
// Unpacking 2-bit codes to bytes takes a fraction of the instructions that
// unpacking them to floats takes, and one instruction multiplies 64 bytes. So
// values of x that meet the same lanes, 32 or 256 of them, are written as
// integers times a power of two that they share,
//   x = 2^(e - 30) * (d0 + 2^8 d1 + 2^16 d2 + 2^24 d3), d0 to d3 int8,
// rounded to nearest: x is off by at most 2^-30.9 of the largest of these
// values, and exact unless it is smaller than 2^-6 of that. Where few values
// stand out d0 is left out, and x is off by at most 2^-22.9 of the largest: if
// then the root of the mean square of a product's error is no more than about
// 2^-23.5 of the sum of |w x|, one rounding of such a sum in fp32
// (DigitErrors).
//
// Sums over a lane are exact for each digit; then they are put together in
// fp32, and multiplied by the scales of the weights and of x. A lane's sum
// takes groups in ascending order, and StoreSums4 adds up the lanes: a result
// is the same bits from packed weights, for one token, and from unpacked ones,
// for many.
//
// Rows with an infinity, a NaN, values so small that scales would be subnormal
// or so large that sums of 16 might not be finite have no digits: they are
// multiplied in fp32, as on other targets.
#if defined(ECPHORY_OPS_CPU_DIGITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_DIGITS_INL_H_
#undef ECPHORY_OPS_CPU_DIGITS_INL_H_
#else
#define ECPHORY_OPS_CPU_DIGITS_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>

#include "base/ceil_div.h"
#include "ops/cpu/digits.h"
#include "ops/cpu/digits_q2_k-inl.h"
#include "ops/cpu/int8_dot-inl.h"
#include "ops/cpu/int8_iq2_xxs-inl.h"
#include "ops/cpu/int8_panel-inl.h"
#include "ops/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

constexpr size_t kDigits = 4;

// Vectors of mins, one for each 16 parts of a group.
template <class Shape>
constexpr size_t MinVectors() {
  if constexpr (requires { Shape::kMinVectors; }) return Shape::kMinVectors;
  return 0;
}

// A group of x in memory, all that a group of weights meets: for each vector of
// codes four of digits, the lowest first; minus the offset times the digits'
// sums in a lane, where codes have an offset; a scale for each lane; of parts
// with mins, the sum of each part's x.
template <class Shape>
struct DigitLayout {
  static constexpr size_t kOffsets = 64 * kDigits * Shape::kVectors;
  static constexpr size_t kScales =
      kOffsets + (Shape::kOffsetBits != 0 ? 64 * kDigits : 0);
  static constexpr size_t kSums = kScales + 64;
  static constexpr size_t kBytes = kSums + 64 * MinVectors<Shape>();
  static constexpr size_t RowBytes(size_t cols) {
    return CeilDiv(cols, Shape::kGroup) * kBytes;
  }
};

// The powers of two of a row, and the errors of its values without their lowest
// digits. These have a root of the mean square of 2^-22 / sqrt(12) of the power
// of two below the group's largest value. For weights whose sizes do not go
// with those of x that of the product is sqrt(n) as large, times 1.2 or so of
// their mean size; the sum of magnitudes is that times the sum of |x|.
class DigitErrors {
 public:
  HWY_INLINE DigitErrors()
      : sizes_(hn::Zero(kF)), squares_(_mm512_setzero_pd()) {}
  // The magnitudes of a vector of values as bits, which compare as values do:
  // infinity and NaN are larger than all others.
  HWY_INLINE __m512i SizesOf(const float* x) {
    const VF size = hn::Abs(Load(x));
    sizes_ = hn::Add(sizes_, size);
    return _mm512_castps_si512(size.raw);
  }
  // The units of digits, 2^(e - 30), 0 of zeros, from the largest size of the
  // 32 values that a lane stands for. Those of the first `parts` lanes count.
  HWY_INLINE VF UnitsOf(__m512i largest, size_t parts) {
    const __mmask16 some = _mm512_test_epi32_mask(largest, largest);
    const __mmask16 count = static_cast<__mmask16>(some & ((1u << parts) - 1));
    const __m512 size = _mm512_castsi512_ps(largest);
    // 2^31 / 1.0078125 is below 0x7f7f7f7f, the largest that has digits.
    const __m512 room = _mm512_mul_ps(size, _mm512_set1_ps(1.0078125f));
    // Weights' scales go down to 2^-27; mins are multiplied by sums of 16
    // values.
    const __mmask16 normal = _mm512_cmp_ps_mask(
        room, _mm512_set1_ps(0x1p-126f * 0x1p27f * 0x1p30f), _CMP_GE_OQ);
    const __mmask16 finite = _mm512_cmp_ps_mask(
        size, _mm512_set1_ps(std::numeric_limits<float>::max() / 16),
        _CMP_LE_OQ);
    usable_ &= (count & ~(normal & finite)) == 0;
    const __m512 counted = _mm512_maskz_mov_ps(count, size);
    AddSquares(_mm512_castps512_ps256(counted));
    AddSquares(_mm256_castsi256_ps(
        _mm512_extracti64x4_epi64(_mm512_castps_si512(counted), 1)));
    const __m512i power = _mm512_and_si512(_mm512_castps_si512(room),
                                           _mm512_set1_epi32(0x7f800000));
    return VF{_mm512_castsi512_ps(
        _mm512_maskz_sub_epi32(some, power, _mm512_set1_epi32(30 << 23)))};
  }
  // False where the values have no digits.
  bool usable() const { return usable_; }
  HWY_INLINE bool need_lowest() const {
    const double sizes = Sum(sizes_);
    const double squares = 32 * _mm512_reduce_add_pd(squares_);
    // A sum that overflowed says nothing.
    return !(squares <= sizes * sizes &&
             sizes <= std::numeric_limits<float>::max());
  }

 private:
  HWY_INLINE void AddSquares(__m256 sizes) {
    const __m512d doubles = _mm512_cvtps_pd(sizes);
    squares_ = _mm512_fmadd_pd(doubles, doubles, squares_);
  }

  VF sizes_;         // of all values, added up
  __m512d squares_;  // of the largest of each lane
  bool usable_ = true;
};

// Lane i: the largest lane of v[i].
HWY_INLINE __m512i LargestLanes(const __m512i (&v)[16]) {
  const auto pair = [](__m512i a, __m512i b) HWY_ATTR {
    return _mm512_max_epi32(_mm512_unpacklo_epi32(a, b),
                            _mm512_unpackhi_epi32(a, b));
  };
  __m512i fours[4];  // of each 128 bits
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    const __m512i a = pair(v[4 * i], v[4 * i + 1]);
    const __m512i b = pair(v[4 * i + 2], v[4 * i + 3]);
    fours[i] = _mm512_max_epi32(_mm512_unpacklo_epi64(a, b),
                                _mm512_unpackhi_epi64(a, b));
  }
  const auto halves = [](__m512i a, __m512i b) HWY_ATTR {
    return _mm512_max_epi32(_mm512_shuffle_i32x4(a, b, 0x44),
                            _mm512_shuffle_i32x4(a, b, 0xee));
  };
  const __m512i low = halves(fours[0], fours[1]);
  const __m512i high = halves(fours[2], fours[3]);
  return _mm512_max_epi32(_mm512_shuffle_i32x4(low, high, 0x88),
                          _mm512_shuffle_i32x4(low, high, 0xdd));
}

// 16 values as integers, and the digits of these, a value's four side by side;
// without kLowest the lowest is 0.
template <bool kLowest>
struct DigitVector {
  // `factor`: 1 / unit of the lowest digit there is.
  HWY_INLINE DigitVector(const float* x, float factor) {
    // Of what fits: below 2^31 by the choice of units.
    integers =
        VI32{_mm512_cvtps_epi32(hn::Mul(Load(x), hn::Set(kF, factor)).raw)};
    // Adding 2^7 to each digit makes the carries of those above 127.
    const VI32 half = hn::Set(kI32, static_cast<int32_t>(0x80808080));
    const VI32 all = kLowest ? integers : hn::ShiftLeft<8>(integers);
    digits = hn::Xor(hn::Add(all, half), half).raw;
  }
  VI32 integers;
  __m512i digits;
};

// The units of a group's lowest digits, in their place from now on, and
// 1 / unit, 0 of zeros.
template <bool kLowest>
struct DigitUnits {
  explicit HWY_INLINE DigitUnits(uint8_t* place) {
    float* const in_place = reinterpret_cast<float*>(place);
    VF scaled = Load(in_place);
    if constexpr (!kLowest) {
      scaled = hn::Mul(scaled, hn::Set(kF, 0x1p8f));
      Store(scaled, in_place);
    }
    Store(scaled, units);
    // Of powers of two.
    const __m512i bits = _mm512_castps_si512(scaled.raw);
    _mm512_store_si512(
        factors, _mm512_maskz_sub_epi32(_mm512_test_epi32_mask(bits, bits),
                                        _mm512_set1_epi32(0x7f000000), bits));
  }
  alignas(64) float units[kLanes];
  alignas(64) float factors[kLanes];
};

// Stores dword i of each of four vectors side by side at out + 64 * i.
HWY_INLINE void StoreColumns(const __m512i (&v)[4], uint8_t* out) {
  const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]);
  const __m512i b = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]);
  const __m512i d = _mm512_unpackhi_epi32(v[2], v[3]);
  const auto store = [&](size_t first, __m512i columns) HWY_ATTR {
    const auto to = [&](size_t i) HWY_ATTR {
      return reinterpret_cast<__m128i*>(out + 64 * (first + 4 * i));
    };
    _mm_store_si128(to(0), _mm512_castsi512_si128(columns));
    _mm_store_si128(to(1), _mm512_extracti32x4_epi32(columns, 1));
    _mm_store_si128(to(2), _mm512_extracti32x4_epi32(columns, 2));
    _mm_store_si128(to(3), _mm512_extracti32x4_epi32(columns, 3));
  };
  store(0, _mm512_unpacklo_epi64(a, c));
  store(1, _mm512_unpackhi_epi64(a, c));
  store(2, _mm512_unpacklo_epi64(b, d));
  store(3, _mm512_unpackhi_epi64(b, d));
}

// The largest sizes among `n` values of a group, in the lanes that they meet;
// of half a group in both halves.
HWY_INLINE __m512i LargestOf(Iq2xxsShape, const float* x, size_t n,
                             DigitErrors& errors) {
  __m512i parts[16];
#pragma GCC unroll 8
  for (size_t part = 0; part < 8; ++part) {
    parts[part] = _mm512_max_epi32(errors.SizesOf(x + 32 * part),
                                   errors.SizesOf(x + 32 * part + kLanes));
  }
#pragma GCC unroll 8
  for (size_t part = 8; part < 16; ++part) {
    parts[part] =
        n < Iq2xxsShape::kGroup
            ? parts[part - 8]
            : _mm512_max_epi32(errors.SizesOf(x + 32 * part),
                               errors.SizesOf(x + 32 * part + kLanes));
  }
  return LargestLanes(parts);
}

HWY_INLINE __m512i LargestOf(Q2KDigitShape, const float* x, size_t n,
                             DigitErrors& errors) {
  const auto block = [&](const float* values) HWY_ATTR {
    __m512i largest = errors.SizesOf(values);
#pragma GCC unroll 15
    for (size_t i = kLanes; i < kSuperBlock; i += kLanes) {
      largest = _mm512_max_epi32(largest, errors.SizesOf(values + i));
    }
    return _mm256_set1_epi32(_mm512_reduce_max_epi32(largest));
  };
  const __m256i first = block(x);
  const __m256i second =
      n < Q2KDigitShape::kGroup ? first : block(x + kSuperBlock);
  return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}

// The units of a group of `n` values, in its place.
template <class Shape>
HWY_INLINE void MeasureGroup(Shape shape, const float* x, size_t n,
                             DigitErrors& errors, uint8_t* out) {
  const __m512i largest = LargestOf(shape, x, n, errors);
  Store(errors.UnitsOf(largest, n / 32),
        reinterpret_cast<float*>(out + DigitLayout<Shape>::kScales));
}

// Writes a group that was measured; its units are then those of the lowest
// digits there are. A block that has none to go with is in both halves of the
// lanes: kernels have the last blocks of two rows there, or take the first
// half.
template <bool kLowest>
HWY_INLINE void SplitGroup(Iq2xxsShape, const float* x, size_t n,
                           uint8_t* out) {
  using Layout = DigitLayout<Iq2xxsShape>;
  // Bytes of each digit of the values v and 8 + v side by side, in the lower
  // half of 128 bits of the first four v, in the upper half of the others; then
  // come those of 16 + v and 24 + v beside them.
  alignas(64) static constexpr uint8_t kFrom[64] = {
      0,  32, 1,  33, 2,  34, 3,  35, 16, 48, 17, 49, 18, 50, 19, 51,
      4,  36, 5,  37, 6,  38, 7,  39, 20, 52, 21, 53, 22, 54, 23, 55,
      8,  40, 9,  41, 10, 42, 11, 43, 24, 56, 25, 57, 26, 58, 27, 59,
      12, 44, 13, 45, 14, 46, 15, 47, 28, 60, 29, 61, 30, 62, 31, 63};
  const DigitUnits<kLowest> parts(out + Layout::kScales);
  const __m512i from = _mm512_load_si512(kFrom);
  for (size_t part = 0; part < n / 32; part += 4) {
    __m512i low[4], high[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      const float* const values = x + 32 * (part + i);
      const float factor = parts.factors[part + i];
      const DigitVector<kLowest> a(values, factor), b(values + 16, factor);
      const __m512i first = _mm512_permutexvar_epi8(from, a.digits);
      const __m512i second = _mm512_permutexvar_epi8(from, b.digits);
      low[i] = _mm512_unpacklo_epi16(first, second);
      high[i] = _mm512_unpackhi_epi16(first, second);
    }
    StoreColumns(low, out + 4 * part);
    StoreColumns(high, out + 4 * part + 64 * kLanes);
    if (n < Iq2xxsShape::kGroup) {
      StoreColumns(low, out + 4 * (part + 8));
      StoreColumns(high, out + 4 * (part + 8) + 64 * kLanes);
    }
  }
#pragma GCC unroll 4
  for (size_t k = 0; k < kDigits; ++k) {
    VI32 sum = hn::Zero(kI32);
#pragma GCC unroll 8
    for (size_t v = 0; v < Iq2xxsShape::kVectors; ++v) {
      sum = AddQuads(sum, hn::Set(kU8, uint8_t{1}),
                     hn::Load(kU8, out + 64 * (kDigits * v + k)));
    }
    hn::Store(hn::Neg(hn::ShiftLeft<Iq2xxsShape::kOffsetBits>(sum)), kI32,
              reinterpret_cast<int32_t*>(out + Layout::kOffsets + 64 * k));
  }
}

// Lane i: the sum of v[i].
HWY_INLINE __m512d SumsOfLanes(const __m512d (&v)[8]) {
  __m512d pairs[4];
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    pairs[i] = _mm512_add_pd(_mm512_unpacklo_pd(v[2 * i], v[2 * i + 1]),
                             _mm512_unpackhi_pd(v[2 * i], v[2 * i + 1]));
  }
  const auto halves = [](__m512d a, __m512d b) HWY_ATTR {
    return _mm512_add_pd(_mm512_shuffle_f64x2(a, b, 0x44),
                         _mm512_shuffle_f64x2(a, b, 0xee));
  };
  const __m512d low = halves(pairs[0], pairs[1]);
  const __m512d high = halves(pairs[2], pairs[3]);
  return _mm512_add_pd(_mm512_shuffle_f64x2(low, high, 0x88),
                       _mm512_shuffle_f64x2(low, high, 0xdd));
}

// Stores the 128 bits i of both side by side at out + 64 * i.
HWY_INLINE void StorePairs(__m512i a, __m512i b, uint8_t* out) {
  const auto to = [&](size_t i) HWY_ATTR {
    return reinterpret_cast<__m256i*>(out + 64 * i);
  };
  const auto store = [&](size_t i, __m512i pairs) HWY_ATTR {
    _mm256_store_si256(to(i), _mm512_castsi512_si256(pairs));
    _mm256_store_si256(to(i + 1), _mm512_extracti64x4_epi64(pairs, 1));
  };
  store(0, _mm512_permutex2var_epi64(
               a, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), b));
  store(2, _mm512_permutex2var_epi64(
               a, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), b));
}

template <bool kLowest>
HWY_INLINE void SplitGroup(Q2KDigitShape, const float* x, size_t n,
                           uint8_t* out) {
  using Layout = DigitLayout<Q2KDigitShape>;
  // Bytes of each digit side by side.
  alignas(64) static constexpr uint8_t kFrom[64] = {
      0, 4, 8,  12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60,
      1, 5, 9,  13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61,
      2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 62,
      3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63};
  float* const sums = reinterpret_cast<float*>(out + Layout::kSums);
  const DigitUnits<kLowest> parts(out + Layout::kScales);
  const __m512i from = _mm512_load_si512(kFrom);
  for (size_t half = 0; half < n / 128; ++half) {  // of a block
    const size_t b = half / 2;
    const float factor = parts.factors[8 * b];
    __m512d doubles[8];  // of 16 values each, where sums have no rounding
#pragma GCC unroll 4
    for (size_t i = 0; i < 8; i += 2) {
      __m512i planes[2];
#pragma GCC unroll 2
      for (size_t part = 0; part < 2; ++part) {
        const DigitVector<kLowest> v(x + 128 * half + 16 * (i + part), factor);
        doubles[i + part] = _mm512_add_pd(
            _mm512_cvtepi32_pd(_mm512_castsi512_si256(v.integers.raw)),
            _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(v.integers.raw, 1)));
        planes[part] = _mm512_permutexvar_epi8(from, v.digits);
      }
      // Two parts are half of a vector.
      StorePairs(planes[0], planes[1],
                 out + 64 * kDigits * (half % 2 * 4 + i / 2) + 32 * b);
    }
    const __m512d unit = _mm512_set1_pd(parts.units[8 * b]);
    _mm256_store_ps(sums + 8 * half,
                    _mm512_cvtpd_ps(_mm512_mul_pd(SumsOfLanes(doubles), unit)));
  }
  if (n < Q2KDigitShape::kGroup) {
    for (uint8_t* to = out; to < out + Layout::kOffsets; to += 64) {
      std::memcpy(to + 32, to, 32);
    }
  }
}

// x [cols] to DigitLayout::RowBytes(cols) bytes, aligned to 64; `groups` is
// null where it has no digits.
template <class Shape>
DigitRow SplitRow(const float* x, size_t cols, uint8_t* out) {
  DigitErrors errors;
  const auto for_groups = [&](const auto& body) HWY_ATTR {
    for (size_t c = 0; c < cols; c += Shape::kGroup) {
      body(x + c, std::min(Shape::kGroup, cols - c),
           out + c / Shape::kGroup * DigitLayout<Shape>::kBytes);
    }
  };
  for_groups([&](const float* values, size_t n, uint8_t* group)
                 HWY_ATTR { MeasureGroup(Shape(), values, n, errors, group); });
  if (!errors.usable()) return {};
  const bool lowest = errors.need_lowest();
  for_groups([&](const float* values, size_t n, uint8_t* group) HWY_ATTR {
    lowest ? SplitGroup<true>(Shape(), values, n, group)
           : SplitGroup<false>(Shape(), values, n, group);
  });
  return {out, lowest};
}

// The lanes of v that D has: all, or the first half.
template <class D, class V>
HWY_INLINE hn::Vec<D> FirstLanes(D d, V v) {
  if constexpr (std::is_same_v<hn::Vec<D>, V>) {
    return v;
  } else {
    return hn::LowerHalf(d, v);
  }
}

// Integers of D's lanes.
template <class D, size_t kRows>
using DigitSums = hn::Vec<hn::RebindToSigned<D>>[kRows][kDigits];

// Four rows' vector kVector of codes, and those that come after it, times the
// digits from kFirst on.
template <size_t kFirst, size_t kVector = 0, class D, class Codes, size_t kRows>
HWY_INLINE void AddDigits(D d, const Codes (&rows)[kRows], const uint8_t* x,
                          DigitSums<D, kRows>& sums) {
  if constexpr (kVector < Codes::Shape::kVectors) {
    const hn::Repartition<uint8_t, D> d8;
    hn::Vec<decltype(d8)> codes[kRows];
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r) {
      codes[r] = FirstLanes(d8, rows[r].template Vector<kVector>());
      KeepInRegister(codes[r]);
    }
#pragma GCC unroll 4
    for (size_t k = kFirst; k < kDigits; ++k) {
      auto digits = hn::Load(d8, x + 64 * (kDigits * kVector + k));
      KeepInRegister(digits);
#pragma GCC unroll 4
      for (size_t r = 0; r < kRows; ++r) {
        sums[r][k] = AddQuads(sums[r][k], codes[r], digits);
      }
    }
    AddDigits<kFirst, kVector + 1>(d, rows, x, sums);
  }
}

// Sums of digits are below 2^20: two of them fit in 32 bits.
template <size_t kFirst, class D, class V32>
HWY_INLINE hn::Vec<D> JoinDigits(D d, const V32 (&sums)[kDigits]) {
  const V32 high = hn::Add(hn::ShiftLeft<8>(sums[3]), sums[2]);
  const V32 low =
      kFirst == 0 ? hn::Add(hn::ShiftLeft<8>(sums[1]), sums[0]) : sums[1];
  return hn::MulAdd(hn::ConvertTo(d, high),
                    hn::Set(d, kFirst == 0 ? 0x1p16f : 0x1p8f),
                    hn::ConvertTo(d, low));
}

// Adds to `acc` the products of one group of some rows, which have begun it:
// two blocks, or in the first half of all lanes, D's, the last one of a row.
// `acc` of the other lanes stays.
template <size_t kFirst, class D, class Codes, size_t kRows>
HWY_INLINE void AddProducts(D d, const Codes (&rows)[kRows], const uint8_t* x,
                            VF (&acc)[kRows]) {
  using Shape = typename Codes::Shape;
  using Layout = DigitLayout<Shape>;
  const hn::RebindToSigned<D> d32;
  constexpr bool kWhole = hn::MaxLanes(D()) == kLanes;
  DigitSums<D, kRows> products;
#pragma GCC unroll 4
  for (size_t k = kFirst; k < kDigits; ++k) {
    auto first = hn::Zero(d32);
    if constexpr (Shape::kOffsetBits != 0) {
      first = hn::Load(
          d32, reinterpret_cast<const int32_t*>(x + Layout::kOffsets + 64 * k));
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r) products[r][k] = first;
  }
  AddDigits<kFirst>(d, rows, x, products);
  const auto scale =
      hn::Load(d, reinterpret_cast<const float*>(x + Layout::kScales));
#pragma GCC unroll 4
  for (size_t r = 0; r < kRows; ++r) {
    const auto factor = hn::Mul(FirstLanes(d, rows[r].Scales()), scale);
    const auto sum = hn::MulAdd(JoinDigits<kFirst>(d, products[r]), factor,
                                FirstLanes(d, acc[r]));
    if constexpr (kWhole) {
      acc[r] = sum;
    } else {
      acc[r] = hn::Combine(kF, hn::UpperHalf(d, acc[r]), sum);
    }
  }
}

// acc minus the mins of block kBlock of `row` times the sums of x's parts in
// block kOfX.
template <size_t kBlock, size_t kOfX, class Codes>
HWY_INLINE void SubtractMins(const Codes& row, const uint8_t* x, VF& acc) {
  if constexpr (MinVectors<typename Codes::Shape>() != 0) {
    const uint8_t* const sums =
        x + DigitLayout<typename Codes::Shape>::kSums + 64 * kOfX;
    acc =
        hn::NegMulAdd(row.template Mins<kBlock>(),
                      hn::Load(kF, reinterpret_cast<const float*>(sums)), acc);
  }
}

// Whole groups of some rows from value c on; `x` moves with c.
template <size_t kFirst, class Codes, size_t kRows>
HWY_INLINE void AddWholeGroups(Codes (&rows)[kRows], const uint8_t*& x,
                               size_t& c, size_t end, VF (&acc)[kRows]) {
  using Shape = typename Codes::Shape;
  for (; c + Shape::kGroup <= end; c += Shape::kGroup) {
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r) {
      rows[r].Begin(c, Shape::kGroup);
      AskAhead<kAheadOfTwo>(rows[r].group, Codes::kAskedBytes);
    }
    AddProducts<kFirst>(kF, rows, x, acc);
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r) {
      SubtractMins<0, 0>(rows[r], x, acc[r]);
      SubtractMins<1, 1>(rows[r], x, acc[r]);
    }
    x += DigitLayout<Shape>::kBytes;
  }
}

// y[row] of four rows, from their lanes' sums.
HWY_INLINE void StoreRows(const float* sums, const Int8Group& group, float* y) {
  float rows[kInt8Rows];
  StoreSums4(Load(sums), Load(sums + kLanes), Load(sums + 2 * kLanes),
             Load(sums + 3 * kLanes), rows);
  group.StoreSums(rows, y);
}

// The last blocks of two rows, which have no other to go with, as one group:
// of x both halves of the lanes have the same.
template <size_t kFirst, class Codes>
HWY_INLINE void AddLastBlocks(const Codes (&rows)[2], const uint8_t* x,
                              size_t c, VF (&acc)[2]) {
  Codes both[1] = {rows[0]};
  both[0].BeginBlocks(rows[0].Block(c), rows[1].Block(c));
  VF sums[1] = {FirstHalves(acc[0], acc[1])};
  AddProducts<kFirst>(kF, both, x, sums);
  StoreFirstHalves(sums[0], acc[0], acc[1]);
  SubtractMins<0, 0>(both[0], x, acc[0]);
  SubtractMins<1, 0>(both[0], x, acc[1]);
}

// Four rows, two at a time: what two need stays in registers, and the decoding
// of the next two overlaps with their products.
template <size_t kFirst, class Codes>
HWY_INLINE void DigitRows(const PackedRows& packed, size_t cols,
                          const Int8Group& group, const uint8_t* x, float* y) {
  alignas(64) float sums[kInt8Rows * kLanes];
  for (size_t r = 0; r < kInt8Rows; r += 2) {
    Codes rows[2] = {Codes(packed.row(group.row(r))),
                     Codes(packed.row(group.row(r + 1)))};
    VF acc[2] = {hn::Zero(kF), hn::Zero(kF)};
    size_t c = 0;
    const uint8_t* groups = x;
    AddWholeGroups<kFirst>(rows, groups, c, cols, acc);
    if (c < cols) AddLastBlocks<kFirst>(rows, groups, c, acc);
    Store(acc[0], sums + r * kLanes);
    Store(acc[1], sums + (r + 1) * kLanes);
  }
  StoreRows(sums, group, y);
}

// One token. A function of its own with and without lowest digits: inlined, GCC
// moves what they have in common above the choice between them, and runs out of
// registers.
template <bool kLowest, class Codes>
HWY_NOINLINE void DigitMatvecRows(const Matrix& weight, const uint8_t* x,
                                  float* y, size_t begin, size_t end,
                                  size_t apart) {
  const PackedRows rows(weight);
  ForFourRows(begin, end, apart, [&](const Int8Group& group) HWY_ATTR {
    DigitRows<kLowest ? 0 : 1, Codes>(rows, weight.cols, group, x, y);
  });
}

template <class Codes>
void DigitMatvec(const Matrix& weight, const DigitRow& x, float* y,
                 size_t begin, size_t end, size_t apart) {
  x.lowest
      ? DigitMatvecRows<true, Codes>(weight, x.groups, y, begin, end, apart)
      : DigitMatvecRows<false, Codes>(weight, x.groups, y, begin, end, apart);
}

// Several tokens, from unpacked rows: a part of the second-level cache (320 of
// 1,024 KB) has rows, another the inputs of 12 tokens, and in the first-level
// cache are 1,024 values of 16 rows and of one token.
constexpr size_t kDigitTileRows = 16;
constexpr size_t kDigitTileTokens = 12;
constexpr size_t kDigitChunk = 1024;

// A row that was unpacked: of each group the vectors of codes, then scales and
// mins.
template <class Codes>
struct DigitPanelRow : Codes::Shape {
  using Shape = typename Codes::Shape;
  static constexpr size_t kAskedBytes = 0;  // lies in a cache
  static constexpr size_t kFloats = 64 * Shape::kVectors;
  static constexpr size_t kBytes = kFloats + 64 * (1 + MinVectors<Shape>());
  static size_t RowBytes(size_t cols) {
    return CeilDiv(cols, Shape::kGroup) * kBytes;
  }

  HWY_INLINE void Begin(size_t c, size_t) {
    group = bytes + c / Shape::kGroup * kBytes;
  }
  template <size_t kVector>
  HWY_INLINE VU8 Vector() const {
    return hn::Load(kU8, group + 64 * kVector);
  }
  HWY_INLINE VF Scales() const { return hn::Load(kF, Floats(0)); }
  template <size_t kIndex>
  HWY_INLINE VF Mins() const {
    return hn::Load(kF, Floats(1 + kIndex));
  }

  void Fill(Codes row, size_t cols) {
    for (size_t c = 0; c < cols; c += Shape::kGroup) {
      row.Begin(c, std::min(Shape::kGroup, cols - c));
      Begin(c, 0);
      FillVectors(row);
      hn::Store(row.Scales(), kF, Floats(0));
      if constexpr (MinVectors<Shape>() != 0) {
        hn::Store(row.template Mins<0>(), kF, Floats(1));
        hn::Store(row.template Mins<1>(), kF, Floats(2));
      }
    }
  }
  template <size_t kVector = 0>
  HWY_INLINE void FillVectors(const Codes& row) {
    if constexpr (kVector < Shape::kVectors) {
      hn::Store(row.template Vector<kVector>(), kU8, group + 64 * kVector);
      FillVectors<kVector + 1>(row);
    }
  }
  HWY_INLINE float* Floats(size_t vector) const {
    return reinterpret_cast<float*>(group + kFloats) + vector * kLanes;
  }

  uint8_t* bytes = nullptr;
  uint8_t* group = nullptr;
};

template <class Codes>
struct DigitPanel {
  using Row = DigitPanelRow<Codes>;
  static size_t Rows(size_t cols) {
    const size_t tiles =
        (size_t{320} << 10) / Row::RowBytes(cols) / kDigitTileRows;
    return kDigitTileRows * std::clamp<size_t>(tiles, 1, 8);
  }
  static size_t Bytes(size_t cols) { return Rows(cols) * Row::RowBytes(cols); }

  // Four rows from the `row`-th on.
  struct Four {
    Four(uint8_t* bytes, size_t row, size_t cols) {
      for (size_t r = 0; r < kInt8Rows; ++r) {
        rows[r].bytes = bytes + (row + r) * Row::RowBytes(cols);
      }
    }
    Row rows[kInt8Rows];
  };
};

// Adds to the sums of four rows [kInt8Rows, kLanes] their products with the
// values [c, end) of x, whose groups from c on are at `x`. A function of its
// own with and without lowest digits, as DigitMatvecRows().
template <bool kLowest, class Row>
HWY_NOINLINE void AddGroups(Row (&rows)[kInt8Rows], const uint8_t* x, size_t c,
                            size_t end, float* sums) {
  constexpr size_t kFirst = kLowest ? 0 : 1;
  VF acc[kInt8Rows];
#pragma GCC unroll 4
  for (size_t r = 0; r < kInt8Rows; ++r) acc[r] = Load(sums + r * kLanes);
  AddWholeGroups<kFirst>(rows, x, c, end, acc);
  if (c < end) {
#pragma GCC unroll 4
    for (size_t r = 0; r < kInt8Rows; ++r) rows[r].Begin(c, end - c);
    AddProducts<kFirst>(hn::Half<DF>(), rows, x, acc);
#pragma GCC unroll 4
    for (size_t r = 0; r < kInt8Rows; ++r) {
      SubtractMins<0, 0>(rows[r], x, acc[r]);
    }
  }
#pragma GCC unroll 4
  for (size_t r = 0; r < kInt8Rows; ++r) Store(acc[r], sums + r * kLanes);
}

template <class Row>
HWY_INLINE void AddRange(Row (&rows)[kInt8Rows], const DigitRow& x, size_t c,
                         size_t end, float* sums) {
  using Layout = DigitLayout<typename Row::Shape>;
  const uint8_t* const groups =
      x.groups + c / Row::Shape::kGroup * Layout::kBytes;
  x.lowest ? AddGroups<true>(rows, groups, c, end, sums)
           : AddGroups<false>(rows, groups, c, end, sums);
}

// Some tokens times up to kDigitTileRows unpacked rows, of which the first is
// the weight's row `row`.
template <class Codes>
void DigitTile(uint8_t* panel, size_t panel_row, size_t cols, const DigitRow* x,
               float* const* y, size_t tokens, size_t row, size_t end) {
  constexpr size_t kFour = kInt8Rows * kLanes;  // sums of four rows
  using Four = typename DigitPanel<Codes>::Four;
  Four fours[] = {{panel, panel_row, cols},
                  {panel, panel_row + kInt8Rows, cols},
                  {panel, panel_row + 2 * kInt8Rows, cols},
                  {panel, panel_row + 3 * kInt8Rows, cols}};
  static_assert(std::size(fours) * kInt8Rows == kDigitTileRows);
  const size_t count =
      std::min(std::size(fours), CeilDiv(end - row, kInt8Rows));
  alignas(64) float sums[kDigitTileTokens * kDigitTileRows * kLanes];
  std::fill_n(sums, tokens * count * kFour, 0.0f);
  for (size_t c = 0; c < cols; c += kDigitChunk) {
    for (size_t i = 0; i < tokens * count; ++i) {
      AddRange(fours[i % count].rows, x[i / count], c,
               std::min(cols, c + kDigitChunk), sums + i * kFour);
    }
  }
  for (size_t i = 0; i < tokens * count; ++i) {
    StoreRows(sums + i * kFour, Int8Group(row + i % count * kInt8Rows, end),
              y[i / count]);
  }
}

// The formats share it.
struct DigitPanelScratch;

template <class Codes>
void DigitMatmul(const Matrix& weight, const DigitRow* x, float* const* y,
                 size_t tokens, size_t begin, size_t end) {
  const size_t cols = weight.cols;
  uint8_t* const panel =
      ThreadScratch<DigitPanelScratch, uint8_t>(DigitPanel<Codes>::Bytes(cols));
  const size_t step = DigitPanel<Codes>::Rows(cols);
  for (size_t first = begin; first < end; first += step) {
    const size_t last = std::min(end, first + step);
    for (size_t row = first; row < last; row += kInt8Rows) {
      typename DigitPanel<Codes>::Four four(panel, row - first, cols);
      for (size_t r = 0; r < kInt8Rows; ++r) {
        four.rows[r].Fill(Codes(weight, Int8Group(row, last).row(r)), cols);
      }
    }
    for (size_t t = 0; t < tokens; t += kDigitTileTokens) {
      for (size_t row = first; row < last; row += kDigitTileRows) {
        DigitTile<Codes>(panel, row - first, cols, x + t, y + t,
                         std::min(kDigitTileTokens, tokens - t), row, last);
      }
    }
  }
}

// DigitMatmulRows() of a format.
template <class Codes>
HWY_INLINE void DigitRowRange(const Matrix& weight, const TokenRows& tokens,
                              size_t begin, size_t end) {
  DigitRow x[kMaxDigitTokens];
  float* y[kMaxDigitTokens];
  size_t count = 0;
  for (size_t t = 0; t < tokens.tokens; ++t) {
    if (tokens.digits[t].groups == nullptr) continue;
    x[count] = tokens.digits[t];
    y[count++] = tokens.y[t];
  }
  if (count == 1) {
    DigitMatvec<Codes>(weight, x[0], y[0], begin, end, tokens.apart);
  } else if (count > 1) {
    DigitMatmul<Codes>(weight, x, y, count, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
