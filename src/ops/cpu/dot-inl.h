// Dot products of a few rows with many vectors, the core of matmul, attention
// and index scores; compiled once per Highway target.
//
// A block of 4 rows x kVectorBlock vectors keeps one accumulator per pair in
// registers. Every pair adds up its products in the same order: lanes along the
// row, one accumulator, the tail last, then StoreSums4. So a result depends
// neither on the block it is in nor on how many rows and vectors there are.
#if defined(ECPHORY_OPS_CPU_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_DOT_INL_H_
#undef ECPHORY_OPS_CPU_DOT_INL_H_
#else
#define ECPHORY_OPS_CPU_DOT_INL_H_
#endif

#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

constexpr size_t kRowBlock = 4;  // what StoreSums4 reduces at once

// 32 registers hold 24 accumulators, 4 rows and a vector; 16 hold 12, 3 vectors
// and a row.
constexpr size_t kVectorBlock = kManyRegisters ? 6 : 3;

// acc[v][r] += rows[r][kSpread * i ...] * x[v][i ...], lane by lane.
template <size_t kSpread, size_t kVectors, class Vector>
HWY_INLINE void AddProducts(const Vector& vector, size_t i,
                            const float* const* HWY_RESTRICT rows,
                            const float* const* HWY_RESTRICT x,
                            VF (&acc)[kVectors][kRowBlock]) {
  if constexpr (kManyRegisters) {
    const VF r0 = vector.Load(rows[0] + kSpread * i);
    const VF r1 = vector.Load(rows[1] + kSpread * i);
    const VF r2 = vector.Load(rows[2] + kSpread * i);
    const VF r3 = vector.Load(rows[3] + kSpread * i);
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
      VF xv = vector.Load(x[v] + i);
      KeepInRegister(xv);
      acc[v][0] = hn::MulAdd(r0, xv, acc[v][0]);
      acc[v][1] = hn::MulAdd(r1, xv, acc[v][1]);
      acc[v][2] = hn::MulAdd(r2, xv, acc[v][2]);
      acc[v][3] = hn::MulAdd(r3, xv, acc[v][3]);
    }
  } else {
    // Not an array, whose elements GCC stores each time as well.
    static_assert(kVectors <= 3);
    VF x0 = vector.Load(x[0] + i);
    VF x1 = kVectors > 1 ? vector.Load(x[kVectors > 1 ? 1 : 0] + i) : x0;
    VF x2 = kVectors > 2 ? vector.Load(x[kVectors > 2 ? 2 : 0] + i) : x0;
    KeepInRegister(x0);
    KeepInRegister(x1);
    KeepInRegister(x2);
#pragma GCC unroll 4
    for (size_t r = 0; r < kRowBlock; ++r) {
      VF row = vector.Load(rows[r] + kSpread * i);
      KeepInRegister(row);
      acc[0][r] = hn::MulAdd(row, x0, acc[0][r]);
      if constexpr (kVectors > 1) acc[1][r] = hn::MulAdd(row, x1, acc[1][r]);
      if constexpr (kVectors > 2) acc[2][r] = hn::MulAdd(row, x2, acc[2][r]);
    }
  }
}

// acc[v][r] += rows[r][i] * x[v][i], i in [begin, end), lane by lane. `begin`
// is a multiple of kLanes. Vectors of a row lie kSpread vectors apart.
template <size_t kSpread = 1, size_t kVectors>
HWY_INLINE void AddRange(const float* const* HWY_RESTRICT rows,
                         const float* const* HWY_RESTRICT x, size_t begin,
                         size_t end, VF (&acc)[kVectors][kRowBlock]) {
  size_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    AddProducts<kSpread>(WholeVector(), i, rows, x, acc);
  }
  if (i < end) AddProducts<kSpread>(PartialVector{end - i}, i, rows, x, acc);
}

// sums[v * 4 + r] = the lanes of acc[v][r], added up.
template <size_t kVectors>
HWY_INLINE void AddLanes(const VF (&acc)[kVectors][kRowBlock],
                         float* HWY_RESTRICT sums) {
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) {
    StoreSums4(acc[v][0], acc[v][1], acc[v][2], acc[v][3],
               sums + v * kRowBlock);
  }
}

// sums[v * 4 + r] = dot(rows[r], x[v]) over n values.
template <size_t kVectors>
HWY_INLINE void DotBlock(const float* const* HWY_RESTRICT rows,
                         const float* const* HWY_RESTRICT x, size_t n,
                         float* HWY_RESTRICT sums) {
  VF acc[kVectors][kRowBlock];
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) {
    acc[v][0] = acc[v][1] = acc[v][2] = acc[v][3] = hn::Zero(kF);
  }
  AddRange(rows, x, 0, n, acc);
  AddLanes(acc, sums);
}

// y[v][row + r] = sums[v * 4 + r], r < min(count, 4).
template <size_t kVectors>
HWY_INLINE void StoreSums(const float* sums, float* const* y, size_t row,
                          size_t count) {
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) {
    // The usual size is known to the compiler: no call.
    const size_t n = count >= kRowBlock ? kRowBlock : count;
    if (n == kRowBlock) {
      std::memcpy(y[v] + row, sums + v * kRowBlock, kRowBlock * sizeof(float));
    } else {
      std::memcpy(y[v] + row, sums + v * kRowBlock, n * sizeof(float));
    }
  }
}

// DotBlock for 1 <= vectors <= kVectors.
template <size_t kVectors = kVectorBlock>
HWY_INLINE void DotUpTo(size_t vectors, const float* const* rows,
                        const float* const* x, size_t n, float* sums) {
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) {
      return DotUpTo<kVectors - 1>(vectors, rows, x, n, sums);
    }
  }
  DotBlock<kVectors>(rows, x, n, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
