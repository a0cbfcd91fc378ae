// Rows of a hyper-connection's fn times a few tokens, in registers; compiled
// once per Highway target.
#if defined(ECPHORY_OPS_CPU_HC_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_HC_TILE_INL_H_
#undef ECPHORY_OPS_CPU_HC_TILE_INL_H_
#else
#define ECPHORY_OPS_CPU_HC_TILE_INL_H_
#endif

#include "ops/cpu/dot-inl.h"
#include "ops/cpu/hc_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

static_assert(kHcChunk % kLanes == 0 && kHcSumLanes >= kLanes);

// A tile keeps kHcRowTile x kTokenTile sums in registers, with a vector of each
// token and one of fn: 24 + 4 + 1 of 32 registers, 12 + 2 + 1 of 16.
constexpr size_t kTokenTile = kManyRegisters ? 4 : 2;
// Tokens that are taken through a run together. Of several tiles the first one
// brings rows of fn to L1 for all; 8 tokens' columns and sums leave room for
// that beside tiles of two, but not where two threads share an L1 of 48 KB
// (Xeon: 8 tokens 1 to 5 % slower than 4).
constexpr size_t kGroupTokens = kManyRegisters ? 4 : 8;

// What is to be read next: as many values of the streams as a tile multiplies.
struct StreamsAhead {
  const uint8_t* h = nullptr;
  size_t value_bytes = 0;
};

// Nothing: what is in the cache.
HWY_INLINE StreamsAhead NoStreamsAhead(const float* cached) {
  return {reinterpret_cast<const uint8_t*>(cached), sizeof(float)};
}

// What becomes of the sums that a tile finds in memory.
enum class TileSums {
  kSet,      // overwritten
  kAdd,      // the products are summed up first and then added
  kContinue  // the products are added one by one
};

// A tile's share of a chunk: packed tokens, kHcChunk values from stream to
// stream, times its rows, for streams [first, last).
struct TileWork {
  const float* packed = nullptr;
  size_t token_stride = 0;
  size_t first = 0, last = 0;
  size_t vectors = 0;  // of a stream
  TileSums mode = TileSums::kSet;
  float* sums = nullptr;  // [token][kHcRowTile] vectors
  size_t sums_stride = 0;
  StreamsAhead ahead;
};

template <size_t kTokens, class Rows>
HWY_INLINE void MultiplyTile(const Rows& rows, const TileWork& work) {
  VF acc[kTokens][kHcRowTile];
#pragma GCC unroll 8
  for (size_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
    for (size_t r = 0; r < kHcRowTile; ++r) {
      const float* const p = work.sums + t * work.sums_stride + r * kHcSumLanes;
      acc[t][r] = work.mode == TileSums::kContinue ? Load(p) : hn::Zero(kF);
    }
  }
  for (size_t s = work.first; s < work.last; ++s) {
    const float* const h = work.packed + s * kHcChunk;
    const size_t step = kLanes * work.ahead.value_bytes;
    // Whole lines, of which a vector of values may be a part only.
    const size_t of_line =
        (kLineBytes / work.ahead.value_bytes - 1) / kLanes * kLanes;
    const uint8_t* next = work.ahead.h + (s - work.first) * work.vectors * step;
    for (size_t i = 0; i < work.vectors * kLanes; i += kLanes) {
      if ((i & of_line) == 0) PrefetchL2(next);
      next += step;
      VF hv[kTokens];
#pragma GCC unroll 8
      for (size_t t = 0; t < kTokens; ++t) {
        hv[t] = Load(h + t * work.token_stride + i);
      }
#pragma GCC unroll 8
      for (size_t r = 0; r < kHcRowTile; ++r) {
        VF w = rows.Get(r, s, i);
        KeepInRegister(w);
#pragma GCC unroll 8
        for (size_t t = 0; t < kTokens; ++t) {
          acc[t][r] = hn::MulAdd(w, hv[t], acc[t][r]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (size_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
    for (size_t r = 0; r < kHcRowTile; ++r) {
      float* const p = work.sums + t * work.sums_stride + r * kHcSumLanes;
      Store(
          work.mode == TileSums::kAdd ? hn::Add(Load(p), acc[t][r]) : acc[t][r],
          p);
    }
  }
}

// MultiplyTile for 1 <= tokens <= kTokenTile.
template <class Rows>
HWY_INLINE void MultiplyUpTo(size_t tokens, const Rows& rows,
                             const TileWork& work) {
  switch (tokens) {
    case 1: return MultiplyTile<1>(rows, work);
    case 2: return MultiplyTile<2>(rows, work);
    default: break;
  }
  if constexpr (kTokenTile > 2) {
    if (tokens == 3) return MultiplyTile<3>(rows, work);
    MultiplyTile<4>(rows, work);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
