// The rows that attention reads, as the release keeps them: 512 channels of
// e4m3 in the window, of e2m1 selected.
#pragma once

#include "ops/cuda/attention.cuh"
#include "ops/cuda/codec_bf16.cuh"
#include "ops/cuda/reduce.cuh"

namespace ecphory::cuda {

inline constexpr unsigned kAttentionDim = 512;

// A packed row: 16 values a lane.
struct PackedRow {
  uint4 codes;  // of a latent: the first half
  uint32_t scale;
};

// The rows of a token, window first.
struct RowSource {
  const AttentionArgs& a;
  const int32_t* selected;  // of the token
  unsigned window, rows;
  unsigned first_slot, capacity;  // of the window's ring

  __device__ RowSource(const AttentionArgs& args, size_t t, const Span& span)
      : a(args),
        selected(args.selected + t * args.topk),
        window(static_cast<unsigned>(span.window)),
        rows(static_cast<unsigned>(span.rows)),
        first_slot(static_cast<unsigned>(span.first % args.window_capacity)),
        capacity(static_cast<unsigned>(args.window_capacity)) {}
  __device__ bool IsWindow(unsigned row) const { return row < window; }
  // Where a row is in the latents. Loaded a tile before the row is, which would
  // wait for it.
  __device__ int32_t IdOf(unsigned row) const {
    return IsWindow(row) || row >= rows ? 0 : selected[row - window];
  }
  __device__ PackedRow Load(unsigned row, int32_t id) const {
    return IsWindow(row) ? LoadWindow(row) : LoadLatent(id);
  }
  __device__ PackedRow LoadWindow(unsigned row) const {
    const unsigned lane = threadIdx.x % kWarp;
    // Once around at most: the window fits into the ring.
    const unsigned slot = first_slot + row;
    const uint8_t* const from =
        a.window_rows + size_t{slot < capacity ? slot : slot - capacity} *
                            (kAttentionDim + kAttentionDim / 32);
    return {reinterpret_cast<const uint4*>(from)[lane],
            from[kAttentionDim + lane / 2]};
  }
  __device__ PackedRow LoadLatent(int32_t id) const {
    const unsigned lane = threadIdx.x % kWarp;
    const uint8_t* const from =
        a.latent_rows +
        static_cast<size_t>(id) * (kAttentionDim / 2 + kAttentionDim / 16);
    const uint2 codes = reinterpret_cast<const uint2*>(from)[lane];
    return {{codes.x, codes.y, 0, 0}, from[kAttentionDim / 2 + lane]};
  }
};

// The lane's 16 values of a row, in bf16.
__device__ inline void Decode(const PackedRow& row, bool window,
                              uint32_t (&values)[4][2]) {
  if (window) {
    const uint32_t words[4] = {row.codes.x, row.codes.y, row.codes.z,
                               row.codes.w};
    const float scale = E8M0ToF32(static_cast<uint8_t>(row.scale));
#pragma unroll
    for (int i = 0; i < 4; ++i) E4M3ToBF16(words[i], scale, values[i]);
    return;
  }
  const float scale = E4M3ToF32(static_cast<uint8_t>(row.scale));
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint32_t pairs[4];
    E2M1ToBF16(i == 0 ? row.codes.x : row.codes.y, scale, pairs);
#pragma unroll
    for (int j = 0; j < 4; ++j) values[2 * i + j / 2][j % 2] = pairs[j];
  }
}

}  // namespace ecphory::cuda
