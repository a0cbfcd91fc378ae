// Rows of packed weights times inputs rounded to int8; compiled once per
// Highway target, of x86 with vectors.
//
// A weight format is a class of codes (int8_codes-inl.h): unsigned bytes, equal
// to integers plus an offset, and a scale for each part of 16 or 32 of them.
// Four neighbouring codes times four of the input make an exact 32-bit sum in a
// lane; it becomes a float, and is multiplied by (scale of the part) * (scale
// of the input's block) and added to the row's sums. The offset goes out again
// exactly: the 32-bit sum starts with minus offset * (sum of the four inputs).
#if defined(ECPHORY_OPS_CPU_INT8_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_INT8_DOT_INL_H_
#undef ECPHORY_OPS_CPU_INT8_DOT_INL_H_
#else
#define ECPHORY_OPS_CPU_INT8_DOT_INL_H_
#endif

#include <type_traits>

#include "ops/cpu/int8_rows.h"
#include "ops/cpu/matmul_rows.h"
#include "ops/cpu/on_intel.h"
#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

using DU8 = hn::Repartition<uint8_t, DF>;
using VU8 = hn::Vec<DU8>;
using DI32 = hn::RebindToSigned<DF>;
using VI32 = hn::Vec<DI32>;
constexpr DU8 kU8;
constexpr DI32 kI32;

constexpr size_t kStep = 4 * kLanes;  // values whose products fill a vector
constexpr size_t kInt8Rows = kMatmulRowBlock;

// The lanes that hold sums of 4 products take 32-bit sums of pairs of products
// in 16 bits: 2 * 127 * 128 fits, so codes up to 128.
#if HWY_TARGET == HWY_AVX2
HWY_INLINE VI32 AddQuads(VI32 sums, VU8 codes, VU8 x) {
  const __m256i pairs = _mm256_maddubs_epi16(codes.raw, x.raw);
  const __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  return hn::Add(sums, VI32{quads});
}
// Of signed codes: |w| * (x with w's sign).
HWY_INLINE VI32 SignedQuads(VU8 w, VU8 x) {
  const VU8 size{_mm256_abs_epi8(w.raw)};
  return AddQuads(hn::Zero(kI32), size, VU8{_mm256_sign_epi8(x.raw, w.raw)});
}
#elif HWY_TARGET == HWY_AVX3
HWY_INLINE VI32 AddQuads(VI32 sums, VU8 codes, VU8 x) {
  const __m512i pairs = _mm512_maddubs_epi16(codes.raw, x.raw);
  const __m512i quads = _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
  return hn::Add(sums, VI32{quads});
}
HWY_INLINE VI32 SignedQuads(VU8 w, VU8 x) {
  const VU8 size{_mm512_abs_epi8(w.raw)};
  const __m512i zero = _mm512_setzero_si512();
  const VU8 signed_x{
      _mm512_mask_sub_epi8(x.raw, _mm512_movepi8_mask(w.raw), zero, x.raw)};
  return AddQuads(hn::Zero(kI32), size, signed_x);
}
#else
// Written out, for Highway 1.0.3 checks for this instruction at run time but
// does not tell the compiler.
template <class V32, class V8>
HWY_INLINE V32 AddQuads(V32 sums, V8 codes, V8 x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums.raw) : "v"(codes.raw), "v"(x.raw));
  return sums;
}
#endif

// acc += the products of codes that are 2^kOffsetBits too large, as exact sums
// of all that a lane takes; `lane_sums`: of x (Int8Row). kOffsetBits 0: there
// is no offset.
template <class Codes>
HWY_INLINE VI32 Products(const VU8 (&codes)[Codes::kVectors],
                         const VU8 (&x)[Codes::kVectors], VI32 lane_sums) {
#if HWY_TARGET != HWY_AVX3_DL
  if constexpr (Codes::kOffsetBits == 7) {
    return SignedQuads(hn::Xor(codes[0], hn::Set(kU8, uint8_t{0x80})), x[0]);
  }
#endif
  VI32 sums = hn::Zero(kI32);
  if constexpr (Codes::kOffsetBits != 0) {
    sums = hn::ShiftLeft<Codes::kOffsetBits>(lane_sums);
  }
  if constexpr (Codes::kVectors > 4) {
    // Two sums, for each waits for what was added before.
    VI32 others = hn::Zero(kI32);
#pragma GCC unroll 8
    for (size_t v = 0; v < Codes::kVectors; v += 2) {
      sums = AddQuads(sums, codes[v], x[v]);
      others = AddQuads(others, codes[v + 1], x[v + 1]);
    }
    return hn::Add(sums, others);
  }
#pragma GCC unroll 8
  for (size_t v = 0; v < Codes::kVectors; ++v) {
    sums = AddQuads(sums, codes[v], x[v]);
  }
  return sums;
}

// Which part of its group each lane of a step belongs to.
template <class Codes>
struct PartTable {
  static constexpr size_t kSteps = Codes::kGroup / Codes::kSpan;
  constexpr PartTable() : parts() {
    for (size_t i = 0; i < kSteps; ++i) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        parts[i][lane] = static_cast<int32_t>(Codes::PartOf(i, lane));
      }
    }
  }
  alignas(64) int32_t parts[kSteps][kLanes];
};
template <class Codes>
inline constexpr PartTable<Codes> kParts;

// Whether a group is one step of which each lane is a part, in order.
template <class Codes>
constexpr bool LanesAreParts() {
  if (Codes::kSpan != Codes::kGroup) return false;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    if (Codes::PartOf(0, lane) != lane) return false;
  }
  return true;
}

// The parts' scales, each in all lanes of its part.
template <class Codes>
HWY_INLINE VF Spread(VF scales, size_t step) {
  if constexpr (LanesAreParts<Codes>()) return scales;
  return hn::TableLookupLanes(
      scales,
      hn::IndicesFromVec(kF, hn::Load(kI32, kParts<Codes>.parts[step])));
}

// The products of one step: `n` values, all of it when kWhole.
template <bool kWhole, class Codes, size_t kRows>
HWY_INLINE void AddStep(const Codes (&rows)[kRows], const Int8Row& x, size_t c,
                        size_t step, size_t n, const VF (&scales)[kRows],
                        VF (&sums)[kRows]) {
  const size_t first = c + step * Codes::kSpan;
  const auto* const codes = reinterpret_cast<const uint8_t*>(x.codes) + first;
  VU8 xv[Codes::kVectors];
#pragma GCC unroll 8
  for (size_t v = 0; v < Codes::kVectors; ++v) {
    xv[v] = hn::Load(kU8, codes + v * kStep);
  }
  const VI32 lane_sums =
      hn::Load(kI32, x.lane_sums + first / Codes::kSpan * kLanes);
#pragma GCC unroll 4
  for (size_t r = 0; r < kRows; ++r) {
    VI32 products;
    if constexpr (requires { rows[r].Sums(step, xv); }) {
      products = rows[r].Sums(step, xv);
    } else {
      VU8 w[Codes::kVectors];
      rows[r].template Step<kWhole>(step, n, w);
      products = Products<Codes>(w, xv, lane_sums);
    }
    sums[r] = hn::MulAdd(hn::ConvertTo(kF, products),
                         Spread<Codes>(scales[r], step), sums[r]);
  }
}

template <size_t kSteps, class Codes, size_t kRows>
HWY_INLINE void AddSteps(const Codes (&rows)[kRows], const Int8Row& x, size_t c,
                         const VF (&scales)[kRows], VF (&sums)[kRows]) {
#pragma GCC unroll 8
  for (size_t i = 0; i < kSteps; ++i) {
    AddStep<true>(rows, x, c, i, Codes::kSpan, scales, sums);
  }
}

// How a format's kernel of one token asks for lines. Those that take long to
// decode ask late and into the first-level cache: an early line is in the way
// of the processor's own reading ahead. Fast ones ask early, into the
// second-level cache, where more can be under way; with blocks that lie across
// lines that slows Zen 4 by 10 % and speeds up Xeons by as much.
enum class Asks { kLate, kEarly, kEarlyOnIntel };

template <size_t kAhead>
HWY_INLINE void AskAhead(const uint8_t* p, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(p + kAhead + i), _MM_HINT_T0);
  }
}
template <Asks kAsks>
HWY_INLINE void Ask(const uint8_t* p, size_t bytes) {
  if constexpr (kAsks == Asks::kLate) return AskAhead<512>(p, bytes);
  if (kAsks == Asks::kEarlyOnIntel && !kOnIntel) return;
  for (size_t i = 0; i < bytes; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(p + 2048 + i), _MM_HINT_T1);
  }
}

// Whether each step is one vector of one part, in order.
template <class Codes>
constexpr bool StepsAreParts() {
  if (Codes::kVectors != 1) return false;
  for (size_t i = 0; i < Codes::kGroup / Codes::kSpan; ++i) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if (Codes::PartOf(i, lane) != i) return false;
    }
  }
  return true;
}

// sums[t][r] = row r . x[t] for 4 unpacked rows of StepsAreParts() and several
// tokens, as Int8DotRows() has them. A row's codes are loaded once for all
// tokens, and a part's scale is loaded into all lanes, which leaves the units
// that permute to the products.
template <size_t kTokens, class Codes>
HWY_INLINE void Int8DotTokens(Codes (&rows)[kInt8Rows],
                              const Int8Row (&x)[kTokens], size_t cols,
                              float (&sums)[kTokens][kInt8Rows]) {
  static_assert(StepsAreParts<Codes>());
  constexpr size_t kGroup = Codes::kGroup;
  constexpr size_t kSpan = Codes::kSpan;
  VF acc[kTokens][kInt8Rows];
  for (auto& token : acc) {
    for (VF& sum : token) sum = hn::Zero(kF);
  }
  alignas(64) float scales[kTokens][kInt8Rows][kLanes];
  const auto begin = [&](size_t c, size_t n) HWY_ATTR {
#pragma GCC unroll 4
    for (size_t r = 0; r < kInt8Rows; ++r) {
      rows[r].Begin(c, n);
#pragma GCC unroll 4
      for (size_t t = 0; t < kTokens; ++t) {
        Store(hn::Mul(rows[r].Scales(), Load(Codes::XScales(x[t], c))),
              scales[t][r]);
        if constexpr (Codes::kMins) {
          acc[t][r] = hn::NegMulAdd(rows[r].Mins(), Codes::LoadXSums(x[t], c),
                                    acc[t][r]);
        }
      }
    }
  };
  const auto step = [&](size_t c, size_t i) HWY_ATTR {
    const size_t first = c + i * kSpan;
#pragma GCC unroll 4
    for (size_t r = 0; r < kInt8Rows; ++r) {
      VU8 w[1];
      rows[r].template Step<true>(i, kSpan, w);
#pragma GCC unroll 4
      for (size_t t = 0; t < kTokens; ++t) {
        const VU8 codes[1] = {hn::Load(
            kU8, reinterpret_cast<const uint8_t*>(x[t].codes) + first)};
        const VI32 lane_sums =
            hn::Load(kI32, x[t].lane_sums + first / kSpan * kLanes);
        const VF products =
            hn::ConvertTo(kF, Products<Codes>(w, codes, lane_sums));
        acc[t][r] =
            hn::MulAdd(products, hn::Set(kF, scales[t][r][i]), acc[t][r]);
      }
    }
  };
  size_t c = 0;
  for (; c + kGroup <= cols; c += kGroup) {
    begin(c, kGroup);
#pragma GCC unroll 8
    for (size_t i = 0; i < kGroup / kSpan; ++i) step(c, i);
  }
  if (c < cols) {
    begin(c, cols - c);
    for (size_t i = 0; i < (cols - c) / kSpan; ++i) step(c, i);
  }
  for (size_t t = 0; t < kTokens; ++t) {
    StoreSums4(acc[t][0], acc[t][1], acc[t][2], acc[t][3], sums[t]);
  }
}

// sums[r] = row r . x for 4 rows.
template <class Codes>
HWY_INLINE void Int8DotRows(Codes (&rows)[kInt8Rows], const Int8Row& x,
                            size_t cols, float* sums) {
  VF acc[kInt8Rows];
  for (VF& sum : acc) sum = hn::Zero(kF);
  VF scales[kInt8Rows];
  const auto begin = [&](size_t c, auto n) HWY_ATTR {
#pragma GCC unroll 4
    for (size_t r = 0; r < kInt8Rows; ++r) {
      rows[r].Begin(c, n);
      Ask<Codes::kAsks>(rows[r].group, Codes::kAskedBytes);
      scales[r] = hn::Mul(rows[r].Scales(), Load(Codes::XScales(x, c)));
      if constexpr (Codes::kMins) {
        acc[r] = hn::NegMulAdd(rows[r].Mins(), Codes::LoadXSums(x, c), acc[r]);
      }
    }
  };
  constexpr size_t kGroup = Codes::kGroup;
  constexpr size_t kSteps = kGroup / Codes::kSpan;
  size_t c = 0;
  for (; c + kGroup <= cols; c += kGroup) {
    begin(c, std::integral_constant<size_t, kGroup>());
    AddSteps<kSteps>(rows, x, c, scales, acc);
  }
  const size_t n = cols - c;  // that are left
  if (kSteps % 2 == 0 && n == kGroup / 2) {
    begin(c, std::integral_constant<size_t, kGroup / 2>());
    AddSteps<kSteps / 2>(rows, x, c, scales, acc);
  } else if (n != 0) {
    begin(c, n);
    const size_t steps = n / Codes::kSpan;
    for (size_t i = 0; i < steps; ++i) {
      AddStep<true>(rows, x, c, i, Codes::kSpan, scales, acc);
    }
    if (n % Codes::kSpan != 0) {
      AddStep<false>(rows, x, c, steps, n % Codes::kSpan, scales, acc);
    }
  }
  StoreSums4(acc[0], acc[1], acc[2], acc[3], sums);
}

#if HWY_TARGET == HWY_AVX3_DL

// The first halves of two vectors as one, and back.
HWY_INLINE VF FirstHalves(VF a, VF b) {
  const hn::Half<DF> half;
  return hn::Combine(kF, hn::LowerHalf(half, b), hn::LowerHalf(half, a));
}
HWY_INLINE void StoreFirstHalves(VF both, VF& a, VF& b) {
  const hn::Half<DF> half;
  a = hn::Combine(kF, hn::UpperHalf(half, a), hn::LowerHalf(half, both));
  b = hn::Combine(kF, hn::UpperHalf(half, b), hn::UpperHalf(half, both));
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
