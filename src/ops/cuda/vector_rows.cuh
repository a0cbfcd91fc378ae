// A block's part of a product of a few vectors with FP8, FP4 or Q8_0 weights:
// bound by reading the weights. It has some rows, and each of its warps a share
// of their columns; a warp keeps pieces of its rows (ops/cuda/
// vector_weights.cuh) on their way into its own part of shared memory, and
// starts to before x is there. Each 128 columns of x have a power of two of
// their own, so that no step waits for all of x but the one barrier before the
// products.
#pragma once

#include "ops/cuda/operand.cuh"
#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/stream.cuh"
#include "ops/cuda/vector_weights.cuh"
#include "ops/cuda/weight.cuh"

namespace ecphory::cuda {

inline constexpr int kVectorWarps = 16;
inline constexpr int kVectorThreads = kVectorWarps * 32;

// What blocks of a product have in common.
struct VectorShape {
  int cols;
  int rows;     // at most
  int tokens;   // at a time
  int sharers;  // warps of a block that share the columns of 16 rows
};

// How shared memory is divided behind the ring; offsets in bytes.
template <WeightFormat kFormat>
struct VectorLayout {
  using F = VectorFormat<kFormat>;
  static constexpr int kRingOfWarp = F::Walk::kSlots * F::Walk::kSlotBytes;
  static constexpr int kRing = kVectorWarps * kRingOfWarp;

  __host__ __device__ explicit VectorLayout(const VectorShape& shape) {
    // Those of whole pieces.
    spans = (shape.cols + F::kCols - 1) / F::kCols * (F::kCols / kSpan);
    pitch = spans * kSpan * F::kPartBytes + F::kPitchRest;
    rows = (shape.rows + 15) / 16 * 16;
    // An odd number of words: the factors of 8 rows lie in different banks.
    factor_pitch = 4 * (spans | 1);
    int factor_rows = F::kFactor == FactorPlace::kBeside ? shape.rows : 0;
    if (kFormat == WeightFormat::kFp8Tile32) factor_rows = shape.rows / 32 + 2;
    zeros = shape.tokens * F::kParts * pitch;
    factors = zeros + kVectorZeros;
    scales = factors + factor_rows * factor_pitch;
    sums = scales + 4 * shape.tokens * spans;
    bytes = sums + 4 * shape.tokens * shape.sharers * rows;
    bytes = (bytes + 15) / 16 * 16;
  }
  int spans, pitch, rows, factor_pitch;
  int zeros, factors, scales, sums, bytes;
};

// The e8m0 scales of the block's rows as they are, four blocks at a time, zeros
// behind the last. *extreme is set where one is 0 or 255, whose values are no
// normal floats.
template <WeightFormat kFormat>
__device__ void LoadFactors(const Matrix& m, size_t row0, int rows,
                            const VectorLayout<kFormat>& layout,
                            uint8_t* factors, int* extreme) {
  const int blocks = static_cast<int>(m.cols / 32), fours = layout.spans;
  size_t first = m.first_row + row0, last = first + rows - 1;
  if (kFormat == WeightFormat::kFp8Tile32) first /= 32, last /= 32;
  const uint8_t* const from = m.scales + first * blocks;
  const bool words =
      blocks % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 4 == 0;
  const int count = static_cast<int>(last - first + 1) * fours;
#pragma unroll 4
  for (int i = threadIdx.x; i < count; i += kVectorThreads) {
    const int row = i / fours, four = i % fours;
    const uint8_t* const codes = from + row * blocks + 4 * four;
    const int valid = max(0, min(4, blocks - 4 * four));
    uint32_t word = 0;
    if (words && valid == 4) {
      word = __ldg(reinterpret_cast<const uint32_t*>(codes));
    } else {
      for (int j = 0; j < valid; ++j) word |= __ldg(codes + j) << (8 * j);
    }
    *reinterpret_cast<uint32_t*>(factors + row * layout.factor_pitch +
                                 4 * four) = word;
    if (valid > 0) {
      const uint32_t seen = 0x80808080u >> (8 * (4 - valid));
      if ((ExtremeBytes(word) & seen) != 0) *extreme = 1;
    }
  }
}

// The parts of x, whose rows row_of(token) gives, in shared memory and the
// powers of two of its spans, kHeld spans of a warp at a time. All threads of
// the block call it and synchronize afterwards. bad[token] is set where digits
// cannot hold what is not finite.
template <WeightFormat kFormat, int kHeld, typename RowOf>
__device__ void SplitSpans(const RowOf& row_of, int cols, int tokens,
                           const VectorLayout<kFormat>& layout, uint8_t* parts,
                           float* scales, int* bad) {
  using F = VectorFormat<kFormat>;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int items = tokens * layout.spans;
  for (int first = threadIdx.x / 32; first < items;
       first += kHeld * kVectorWarps) {
    float4 held[kHeld];
    int token[kHeld], span[kHeld];
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int item = first + j * kVectorWarps;
      token[j] = tokens == 1 ? 0 : item / layout.spans;
      span[j] = tokens == 1 ? item : item % layout.spans;
      held[j] = item < items ? F::Load(row_of(token[j]),
                                       kSpan * span[j] + 4 * lane, cols)
                             : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      if (first + j * kVectorWarps >= items) break;
      float4& v = held[j];
      const auto bits = [](float x) {
        return F::kDigits ? __float_as_uint(x) & 0x7fffffffu : FiniteBits(x);
      };
      const uint32_t largest = __reduce_max_sync(
          0xffffffffu,
          max(max(bits(v.x), bits(v.y)), max(bits(v.z), bits(v.w))));
      const OperandScale scale(largest, F::kTop);
      if (lane == 0) {
        scales[token[j] * layout.spans + span[j]] = scale.out;
        if (F::kDigits && largest >= 0x7f800000u) bad[token[j]] = 1;
      }
      uint8_t* const to = parts + token[j] * F::kParts * layout.pitch +
                          kSpan * F::kPartBytes * span[j];
      if constexpr (F::kDigits) {
        uint32_t digits[4];
        F::Split(v, scale.in, digits);
        const int at = 32 * (lane / 8) + 4 * F::WordAt(lane % 8);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          *reinterpret_cast<uint32_t*>(to + i * layout.pitch + at) = digits[i];
        }
      } else {
        v = {v.x * scale.in, v.y * scale.in, v.z * scale.in, v.w * scale.in};
#pragma unroll
        for (int i = 0; i < F::kParts; ++i) {
          const uint32_t a = TakeParts<false>(v.x, v.y);
          const uint32_t b = TakeParts<false>(v.z, v.w);
          *reinterpret_cast<uint2*>(to + i * layout.pitch + 8 * lane) =
              make_uint2(a, b);
        }
      }
    }
  }
}

// A block's rows times x where digits cannot hold x or scales are no normal
// floats; a function of its own so that what it needs is not kept from others.
template <typename Store>
__device__ __noinline__ void RowsByValue(const Matrix& m, size_t row0, int rows,
                                         int token, const float* x,
                                         const Store store) {
  for (int r = threadIdx.x / 32; r < rows; r += kVectorWarps) {
    float sum = 0;
    for (size_t k = threadIdx.x % 32; k < m.cols; k += 32) {
      sum = fmaf(WeightValue(m, row0 + r, k), x[k], sum);
    }
    sum = WarpSum(sum);
    if (threadIdx.x % 32 == 0) store(token, r, sum);
  }
}

// The rows row0 .. row0 + rows - 1 of a matrix.
template <WeightFormat kFormat, int kTokens>
struct VectorBlock {
  using F = VectorFormat<kFormat>;
  using Walk = typename F::Walk;
  using Layout = VectorLayout<kFormat>;

  // Has the first weights fetched. All threads of the block make it; `flags`
  // holds kTokens + 1 ints. No other's last steps may still use `memory`.
  __device__ VectorBlock(const Matrix& matrix, size_t first_row, int row_count,
                         const VectorShape& of_blocks, uint8_t* shared,
                         int* flags)
      : m(matrix),
        row0(first_row),
        rows(row_count),
        shape(of_blocks),
        layout(of_blocks),
        ring(shared + threadIdx.x / 32 * Layout::kRingOfWarp),
        memory(shared + Layout::kRing),
        bad(flags),
        walk(Range()) {
    for (int s = 0; s < Walk::kSlots; ++s) {
      walk.Fetch(ring + s * Walk::kSlotBytes);
    }
    if (threadIdx.x <= kTokens) bad[threadIdx.x] = 0;
    __syncthreads();
    if constexpr (F::kFactor == FactorPlace::kBeside) {
      LoadFactors<kFormat>(m, row0, rows, layout, Factors(), bad + kTokens);
    }
    if (threadIdx.x < kVectorZeros / 4) {
      reinterpret_cast<uint32_t*>(memory + layout.zeros)[threadIdx.x] = 0;
    }
  }

  __device__ PieceRange Range() const {
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int tile_step = kVectorWarps / shape.sharers;
    const int tile = warp / shape.sharers;
    const size_t row_bytes =
        static_cast<size_t>(shape.cols / 32) * Fragment<kFormat>::kBlockBytes;
    return {.data = m.data + (m.first_row + row0) * row_bytes,
            .row_bytes = row_bytes,
            .rows = rows,
            // Warps that are too many are idle.
            .tiles = tile < tile_step ? (rows + 15) / 16 : 0,
            .tile = tile,
            .tile_step = tile_step,
            .piece = Share(),
            .step = shape.sharers,
            .pieces = (shape.cols + F::kCols - 1) / F::kCols};
  }
  __device__ int Share() const {
    return static_cast<int>(threadIdx.x / 32) % shape.sharers;
  }
  __device__ uint8_t* Factors() const { return memory + layout.factors; }
  __device__ float* Floats(int offset) const {
    return reinterpret_cast<float*>(memory + offset);
  }

  // Spans of x that a warp reads at a time: all of a few tokens of 5,120
  // columns, as each wait for x is long while the next launch's weights arrive.
  static constexpr int kHeld = kTokens == 1 ? 4 : kTokens == 2 ? 5 : 10;
  // Reads x, whose rows row_of(token) gives.
  template <typename RowOf>
  __device__ void Split(int tokens, const RowOf& row_of) {
    SplitSpans<kFormat, kHeld>(row_of, shape.cols, tokens, layout, memory,
                               Floats(layout.scales), bad);
    __syncthreads();
  }

  // Those of rows `row` and row + 8 of the block, at the warp's first piece.
  __device__ PieceFactors FactorsOf(int row) const {
    PieceFactors own{Factors(), 0};
    if constexpr (F::kFactor == FactorPlace::kBeside) {
      const auto at = [&](int in_block) {
        size_t of = static_cast<size_t>(min(in_block, rows - 1));
        if (kFormat == WeightFormat::kFp8Tile32) {
          const size_t first = m.first_row + row0;
          of = (first + of) / 32 - first / 32;
        }
        return static_cast<int>(of) * layout.factor_pitch;
      };
      own.low += at(row) + Share() * F::kBlocks;
      own.to_high = at(row + 8) - at(row);
    }
    return own;
  }

  // The sums of the warp's share into its place in shared memory.
  __device__ void Multiply(int tokens) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int g = lane / 4, t = lane % 4;
    const VectorParts x{.parts = memory,
                        .zeros = memory + layout.zeros,
                        .scales = Floats(layout.scales),
                        .pitch = layout.pitch,
                        .spans = layout.spans,
                        .last = tokens - 1};
    const typename F::Reader reader(x.zeros);
    const PieceRange& range = walk.range;
    constexpr int kSums = F::kDigits ? kTokens : (kTokens + 3) / 4;
    int slot = 0;
    for (int tile = range.tile; tile < range.tiles; tile += range.tile_step) {
      float sums[kSums][2] = {};
      typename F::Columns columns(x, F::kCols, Share(), shape.sharers);
      const int row = 16 * tile + g;
      PieceFactors factors = FactorsOf(row);
      const float* scales = x.scales + Share() * (F::kCols / kSpan);
#pragma unroll 1
      for (int piece = range.piece; piece < range.pieces; piece += range.step) {
        WaitForCopies<Walk::kSlots - 1>();
        __syncwarp();
        uint8_t* const staged = ring + slot * Walk::kSlotBytes;
        F::template Multiply<kTokens>(reader, staged, piece, columns, scales,
                                      x.spans, factors, sums);
        columns.Advance();
        factors.low += shape.sharers * F::kBlocks;
        scales += shape.sharers * (F::kCols / kSpan);
        __syncwarp();
        walk.Fetch(staged);
        slot = (slot + 1) % Walk::kSlots;
      }
      float* const to = Floats(layout.sums) + Share() * layout.rows + row;
      const int token_step = shape.sharers * layout.rows;
      if constexpr (F::kDigits) {
        const float weight = t % 2 == 0 ? 0x1p-15f : 1.0f;
#pragma unroll
        for (int token = 0; token < kTokens; ++token) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float sum = weight * sums[token][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (t == 0 && token < tokens) {
              to[token * token_step + 8 * half] = sum;
            }
          }
        }
      } else {
#pragma unroll
        for (int j = 0; j < kSums; ++j) {
          if (4 * j + t >= tokens) continue;
          float* const of = to + (4 * j + t) * token_step;
          of[0] = sums[j][0], of[8] = sums[j][1];
        }
      }
    }
    __syncthreads();
  }

  // store(token, row of the block, sum) by one thread each.
  template <typename RowOf, typename Store>
  __device__ void Finish(int tokens, const RowOf& row_of, const Store& store) {
    for (int i = threadIdx.x; i < tokens * layout.rows; i += kVectorThreads) {
      const int token = kTokens == 1 ? 0 : i / layout.rows;
      const int row = kTokens == 1 ? i : i % layout.rows;
      if (row >= rows) continue;
      const float* const from =
          Floats(layout.sums) + token * shape.sharers * layout.rows + row;
      float sum = from[0];
      for (int s = 1; s < shape.sharers; ++s) sum += from[s * layout.rows];
      store(token, row, sum * F::kPower);
    }
    bool any = bad[kTokens] != 0;
    for (int token = 0; token < tokens; ++token) any |= bad[token] != 0;
    if (!any) return;
    __syncthreads();
    for (int token = 0; token < tokens; ++token) {
      if (bad[kTokens] == 0 && bad[token] == 0) continue;
      RowsByValue(m, row0, rows, token, row_of(token), store);
    }
  }

  const Matrix& m;
  const size_t row0;
  const int rows;
  const VectorShape shape;
  const Layout layout;
  uint8_t* const ring;
  uint8_t* const memory;
  int* const bad;
  Walk walk;
};

// How many warps share the columns of 16 rows: so that the busiest warp has the
// fewest pieces, by the shape alone.
template <WeightFormat kFormat>
int VectorSharers(size_t tiles, size_t cols) {
  const size_t pieces = CeilDiv(cols, size_t{VectorFormat<kFormat>::kCols});
  int best = kVectorWarps;
  size_t least = SIZE_MAX;
  for (int sharers = kVectorWarps; sharers >= 1; --sharers) {
    const size_t most =
        CeilDiv(tiles, static_cast<size_t>(kVectorWarps / sharers)) *
        CeilDiv(pieces, static_cast<size_t>(sharers));
    if (most < least) least = most, best = sharers;
  }
  return best;
}

// Shared memory of a block when two are to be on a multiprocessor.
inline size_t HalfSharedMemory() {
  int device = 0, most = 0;
  Note(cudaGetDevice(&device), "matmul");
  Note(cudaDeviceGetAttribute(
           &most, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
       "matmul");
  return static_cast<size_t>(most) / 2 - 2048;  // 1 KB of each is the system's
}

}  // namespace ecphory::cuda
