// Rows of e4m3 codes with a power-of-two scale per 32; compiled once per
// Highway target that has vectors.
#if defined(ECPHORY_ENGRAM_ROW_DECODE_E4M3_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_ENGRAM_ROW_DECODE_E4M3_INL_H_
#undef ECPHORY_ENGRAM_ROW_DECODE_E4M3_INL_H_
#else
#define ECPHORY_ENGRAM_ROW_DECODE_E4M3_INL_H_
#endif

#include "engram/row_decode_tables.h"
#include "engram/row_decode_vector-inl.h"
#include "tensor/float_codec.h"
#include "tensor/table_codec.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory::engram {
namespace HWY_NAMESPACE {

// To bf16, codes become words in two bytes: those of scale kLowScale, where
// every value but zero is normal, so that another scale is an addition to the
// exponent of all words that are not zero.
//
// Words() takes the two bytes as Bytes() left them, interleaved.
#if HWY_TARGET == HWY_AVX3_DL

// The word's halves from two tables of 128; `high` has the sign.
constexpr uint8_t kNaNByte = kNaNHighByte;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Lookup(D d, const uint8_t* table, V codes) {
  return V{_mm512_permutex2var_epi8(hn::Load(d, table).raw, codes.raw,
                                    hn::Load(d, table + 64).raw)};
}
// Half a vector: bytes of the tables come from memory once more.
template <class D>
HWY_INLINE hn::Vec256<uint8_t> Lookup(D, const uint8_t* table,
                                      hn::Vec256<uint8_t> codes) {
  return hn::Vec256<uint8_t>{_mm512_castsi512_si256(_mm512_permutex2var_epi8(
      _mm512_load_si512(table), _mm512_castsi256_si512(codes.raw),
      _mm512_load_si512(table + 64)))};
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void Bytes(D d, V codes, V* low, V* high, V* largest) {
  *low = Lookup(d, kE4M3Words.low, codes);
  *high = Lookup(d, kE4M3Words.high, codes);
  *largest = hn::Max(*largest, *high);
  *high = hn::Or(*high, hn::And(codes, Kept(hn::Set(d, uint8_t{0x80}))));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Magnitude(D, V words, V signless) {
  return hn::And(words, signless);
}

#else

// `low` is exponent and mantissa in units of 2^4, of which a table knows those
// of codes with exponent 0 and 1; `high` is the sign alone.
constexpr uint8_t kNaNByte = 0x7f + kFieldOffset;

template <class D, class V = hn::Vec<D>>
HWY_INLINE void Bytes(D d, V codes, V* low, V* high, V* largest) {
  const V magnitude = hn::And(codes, Kept(hn::Set(d, uint8_t{0x7f})));
  const V looked_up =
      hn::TableLookupBytes(hn::LoadDup128(d, kLowFields), magnitude);
  const V added = hn::Add(magnitude, Kept(hn::Set(d, kFieldOffset)));
  // Signed: there is an instruction for that on every target.
  const hn::RebindToSigned<D> di;
  const auto is_low =
      hn::Lt(hn::BitCast(di, magnitude), Kept(hn::Set(di, int8_t{16})));
  *low = hn::IfThenElse(hn::RebindMask(d, is_low), looked_up, added);
  *largest = hn::Max(*largest, *low);
  *high = hn::Xor(codes, magnitude);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Magnitude(D, V words, V) {
  return hn::ShiftLeft<4>(words);
}

#endif

template <class V>
HWY_INLINE void StoreWords(V words, uint8_t scale, uint16_t* out) {
  const hn::DFromV<V> d;
  const hn::Repartition<uint32_t, decltype(d)> d32;
  const V bias = hn::BitCast(d, hn::Set(d32, kScaleBias.twice[scale]));
  const V signless = Kept(hn::Set(d, uint16_t{0x7fff}));
  const V magnitude = Magnitude(d, words, signless);
  const V scaled = hn::IfThenElseZero(hn::Ne(magnitude, hn::Zero(d)),
                                      hn::Add(magnitude, bias));
  hn::StoreU(hn::Or(scaled, hn::AndNot(signless, words)), d, out);
}

// One vector of codes; `scales` are those of its first block on.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void StoreE4M3(D d, const uint8_t* codes, const uint8_t* scales,
                          uint16_t* out, V* largest) {
  constexpr size_t kCodes = hn::MaxLanes(D());
  V loaded = hn::LoadU(d, codes);
  if constexpr (kCodes > 16) {
    // Interleaving works inside each 16 bytes: their lower halves must hold
    // the first half of the codes.
    const hn::Repartition<uint64_t, D> dq;
    const auto order = hn::SetTableIndices(dq, kInterleaveOrder[kCodes / 32]);
    loaded =
        hn::BitCast(d, hn::TableLookupLanes(hn::BitCast(dq, loaded), order));
  }
  V low, high;
  Bytes(d, loaded, &low, &high, largest);
  const hn::Repartition<uint16_t, D> dw;
  constexpr size_t kNext = kCodes / 2 / kTableBlock;  // block of the upper half
  StoreWords(hn::BitCast(dw, hn::InterleaveLower(d, low, high)), scales[0],
             out);
  StoreWords(hn::BitCast(dw, hn::InterleaveUpper(d, low, high)), scales[kNext],
             out + kCodes / 2);
}

// To fp32: shifted into place, a code's bits are a half that is 2^8 too small,
// subnormals included.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void StoreE4M3(D d, const uint8_t* codes, const uint8_t* scales,
                          float* out, V* largest) {
  constexpr size_t kCodes = hn::MaxLanes(D());
  const V loaded = hn::LoadU(d, codes);
  *largest = hn::Max(*largest, hn::And(loaded, hn::Set(d, uint8_t{0x7f})));
  const hn::Rebind<int8_t, DF> d8;
  const hn::Rebind<int16_t, DF> d16;
  const hn::Rebind<hwy::float16_t, DF> df16;
#pragma GCC unroll 8
  for (size_t i = 0; i < kCodes; i += kLanes) {
    const auto code = hn::PromoteTo(
        d16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(codes) + i));
    const auto half = hn::And(hn::ShiftLeft<7>(code),
                              hn::Set(d16, static_cast<int16_t>(0xbf80)));
    const VF factor =
        hn::Set(kF, F32FromBits((scales[i / kTableBlock] + 8u) << 23));
    hn::StoreU(hn::Mul(hn::PromoteTo(kF, hn::BitCast(df16, half)), factor), kF,
               out + i);
  }
}

// Whether `largest` of Store's passed over a NaN code.
template <class D, class V = hn::Vec<D>>
HWY_INLINE bool NoNaN(D d, V largest, uint8_t nan) {
  return hn::AllFalse(d, hn::Eq(largest, hn::Set(d, nan)));
}

// Every scale in [kLowScale, kHighScale].
template <typename T>
HWY_INLINE bool DecodeE4M3(const uint8_t* codes, const uint8_t* scales,
                           size_t width, T* out) {
  constexpr uint8_t kNaN = sizeof(T) == 2 ? kNaNByte : 0x7f;
  const hn::CappedTag<uint8_t, 2 * kTableBlock> d;
  constexpr size_t kCodes = hn::MaxLanes(decltype(d)());
  auto largest = hn::Zero(d);
  size_t i = 0;
  for (; i + kCodes <= width; i += kCodes) {
    StoreE4M3(d, codes + i, scales + i / kTableBlock, out + i, &largest);
  }
  bool ok = NoNaN(d, largest, kNaN);
  if (kCodes > kTableBlock && i < width) {
    const hn::CappedTag<uint8_t, kTableBlock> half;
    auto last = hn::Zero(half);
    StoreE4M3(half, codes + i, scales + i / kTableBlock, out + i, &last);
    ok &= NoNaN(half, last, kNaN);
  }
  return ok;
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory::engram
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
