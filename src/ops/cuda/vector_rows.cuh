// A block's part of a product of a few vectors with FP8, FP4 or Q8_0 weights:
// bound by reading the weights. It has some rows, and each of its warps every
// kVectorWarps-th piece of them (ops/cuda/vector_weights.cuh); a warp keeps
// several on their way into its own part of shared memory, and starts to before
// x is there. Each 128 columns of x have a power of two of their own, so that
// no step waits for all of x but the one barrier before the products.
#pragma once

#include "ops/cuda/operand.cuh"
#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/stream.cuh"
#include "ops/cuda/vector_weights.cuh"
#include "ops/cuda/weight.cuh"

namespace ecphory::cuda {

inline constexpr int kVectorWarps = 16;
inline constexpr int kVectorThreads = kVectorWarps * 32;

// Pieces of a warp that are on their way.
inline constexpr int kFewestSlots = 3, kMostSlots = 4;

__host__ __device__ inline int TilesOf(int rows) {
  return (rows + kVectorRows - 1) / kVectorRows;
}

// What blocks of a product have in common.
struct VectorShape {
  int cols;
  int rows;    // at most
  int tokens;  // at a time
  int slots;   // kFewestSlots or kMostSlots
};

// How shared memory is divided; offsets in bytes.
template <WeightFormat kFormat>
struct VectorLayout {
  using F = VectorFormat<kFormat>;
  static constexpr int kSlot = kVectorRows * F::kPitch;

  __host__ __device__ explicit VectorLayout(const VectorShape& shape) {
    pieces = shape.cols / F::kCols;
    spans = shape.cols / kSpan;
    pitch = shape.cols * F::kPartBytes + F::kPitchRest;
    tiles = TilesOf(shape.rows);
    // Warps that have sums of a tile.
    sharers = pieces < kVectorWarps ? pieces : kVectorWarps;
    // An odd number of words: the factors of 8 rows lie in different banks.
    factor_pitch = 4 * (spans | 1);
    int factor_rows = F::kFactor == FactorPlace::kBeside
                          ? TilesOf(shape.rows) * kVectorRows
                          : 0;
    if (kFormat == WeightFormat::kFp8Tile32) factor_rows = shape.rows / 32 + 2;
    parts = kVectorWarps * shape.slots * kSlot;
    factors = parts + shape.tokens * F::kParts * pitch;
    scales = factors + factor_rows * factor_pitch;
    sums = scales + 4 * shape.tokens * spans;
    bytes = sums + 4 * shape.tokens * tiles * sharers * kVectorRows;
    bytes = (bytes + 15) / 16 * 16;
  }
  int pieces, spans, pitch, tiles, sharers;
  int factor_pitch;
  int parts, factors, scales, sums, bytes;
};

// The e8m0 scales of a matrix's rows row0 .. row0 + rows - 1 in shared memory,
// four at a time.
template <WeightFormat kFormat>
struct VectorFactors {
  __device__ VectorFactors(const Matrix& m, size_t row0, int rows,
                           const VectorLayout<kFormat>& layout,
                           uint8_t* in_memory)
      : memory(in_memory), fours(layout.spans), pitch(layout.factor_pitch) {
    size_t first = m.first_row + row0, last = first + rows - 1;
    if (kFormat == WeightFormat::kFp8Tile32) first /= 32, last /= 32;
    from = m.scales + first * 4 * fours;
    count = static_cast<int>(last - first + 1) * fours;
  }
  __device__ uint8_t* Place(int i) const {
    return memory + i / fours * pitch + 4 * (i % fours);
  }
  // Begins to copy them; a thread's are there when its copies are. All
  // threads of the block call it, and synchronize before others' are read.
  __device__ void Copy() const {
    const bool words = reinterpret_cast<uintptr_t>(from) % 4 == 0;
    for (int i = threadIdx.x; i < count; i += kVectorThreads) {
      if (words) {
        CopyAsync<4>(Place(i), from + 4 * i);
      } else {
        for (int j = 0; j < 4; ++j) Place(i)[j] = __ldg(from + 4 * i + j);
      }
    }
    CommitCopies();
  }
  // Whether one of the thread's own is 0 or 255, whose values are no normal
  // floats.
  __device__ bool HasExtremes() const {
    uint32_t extremes = 0;
    for (int i = threadIdx.x; i < count; i += kVectorThreads) {
      extremes |= ExtremeBytes(Word(Place(i)));
    }
    return (extremes & 0x80808080u) != 0;
  }
  uint8_t* memory;
  int fours, pitch, count;
  const uint8_t* from;
};

// The parts of x, whose rows row_of(token) gives, in shared memory and the
// powers of two of its spans, kHeld spans of a warp at a time. All threads
// of the block call it and synchronize afterwards. bad[token] is set where
// digits cannot hold what is not finite.
template <WeightFormat kFormat, int kHeld, typename RowOf>
__device__ void SplitSpans(const RowOf& row_of, int tokens,
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
      held[j] = item < items
                    ? F::Load(row_of(token[j]), kSpan * span[j] + 4 * lane)
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

// A warp's pieces. Those of a block are in the order of its tiles and, in each,
// of the columns.
struct PieceOrder {
  __device__ explicit PieceOrder(int of_tile)
      : pieces(of_tile),
        step_tiles(kVectorWarps / of_tile),
        step_pieces(kVectorWarps % of_tile) {
    const int warp = static_cast<int>(threadIdx.x / 32);
    tile = warp / pieces, piece = warp % pieces;
  }
  // Returns whether it went on to a tile behind those it skips.
  __device__ bool Advance() {
    piece += step_pieces, tile += step_tiles;
    const bool behind = piece >= pieces;
    if (behind) piece -= pieces, ++tile;
    return behind;
  }
  int pieces, step_tiles, step_pieces;
  int tile, piece;
};

// The copies of a warp's pieces. (Of formats whose pieces are no multiple of 16
// bytes a warp has all odd ones or all even ones: rows are of an even number.)
template <WeightFormat kFormat>
struct PieceWalk {
  using F = VectorFormat<kFormat>;
  static constexpr int kAll = kVectorRows * F::kUnits;
  static constexpr int kCopies = (kAll + 31) / 32;

  __device__ PieceWalk(const Matrix& m, size_t row0, int rows, int pieces)
      : next(pieces),
        row_bytes(pieces * F::kPieceBytes),
        left(rows - kVectorRows * next.tile),
        from(m.data +
             (m.first_row + row0 + kVectorRows * next.tile) *
                 static_cast<size_t>(row_bytes) +
             (F::kPieceBytes * next.piece & ~15)) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int j = 0; j < kCopies; ++j) {
      const int i = lane + 32 * j;
      offset[j] = i / F::kUnits * row_bytes + 16 * (i % F::kUnits);
    }
  }
  // The next piece; nothing behind the last, nor rows behind the block's.
  __device__ void Fetch(uint8_t* slot) {
    if (left > 0) {
      const int lane = static_cast<int>(threadIdx.x % 32);
      const int units = min(left, kVectorRows) * F::kUnits;
#pragma unroll
      for (int j = 0; j < kCopies; ++j) {
        const int i = lane + 32 * j;
        if (i < units) {
          CopyAsync<16>(slot + i / F::kUnits * F::kPitch + 16 * (i % F::kUnits),
                        from + offset[j]);
        }
      }
      const bool behind = next.Advance();
      left -= kVectorRows * next.step_tiles;
      from += kVectorRows * next.step_tiles * row_bytes +
              next.step_pieces * F::kPieceBytes;
      if (behind) left -= kVectorRows, from += (kVectorRows - 1) * row_bytes;
    }
    CommitCopies();
  }

  PieceOrder next;
  int row_bytes, left;  // rows from the tile's first on
  const uint8_t* from;
  int offset[kCopies];
};

// The rows row0 .. row0 + rows - 1 of a matrix times x.
template <WeightFormat kFormat, int kTokens>
struct VectorBlock {
  using F = VectorFormat<kFormat>;
  using Layout = VectorLayout<kFormat>;

  // Of the tokens, of the factors, and one that is never set.
  static constexpr int kFlags = kTokens + 2;

  // Has the first weights fetched, and the factors in front of them. All
  // threads of the block make it; `flags` holds kFlags ints. No other's last
  // steps may still use `shared`.
  __device__ VectorBlock(const Matrix& matrix, size_t first_row, int row_count,
                         const VectorShape& of_blocks, uint8_t* shared,
                         int* flags)
      : m(matrix),
        row0(first_row),
        rows(row_count),
        slots(of_blocks.slots),
        layout(of_blocks),
        memory(shared),
        ring(shared + threadIdx.x / 32 * of_blocks.slots * Layout::kSlot),
        bad(flags),
        walk(matrix, first_row, row_count, layout.pieces) {
    if (threadIdx.x < kFlags) bad[threadIdx.x] = 0;
    if constexpr (F::kFactor == FactorPlace::kBeside) {
      const VectorFactors<kFormat> factors(m, row0, rows, layout,
                                           memory + layout.factors);
      factors.Copy();
      FillRing();
      __syncthreads();
      WaitForSlot<1>();
      if (factors.HasExtremes()) bad[kTokens] = 1;
    } else {
      FillRing();
      __syncthreads();
    }
  }

  __device__ void FillRing() {
    for (int s = 0; s < slots; ++s) walk.Fetch(ring + s * Layout::kSlot);
  }
  // Waits for all of the thread's copies but those of the kSooner + slots - 1
  // latest pieces.
  template <int kSooner>
  __device__ void WaitForSlot() const {
    if (slots == kMostSlots) {
      WaitForCopies<kMostSlots - 1 + kSooner>();
    } else {
      WaitForCopies<kFewestSlots - 1 + kSooner>();
    }
  }

  // Of a piece: bytes of a part of x, and spans.
  static constexpr int kPieceColumns = F::kCols * F::kPartBytes;
  static constexpr int kPieceSpans = F::kCols / kSpan;

  __device__ float* Floats(int offset) const {
    return reinterpret_cast<float*>(memory + offset);
  }

  // Spans of x that a warp reads at a time: all of a few tokens of 5,120
  // columns, as each wait for x is long while the next launch's weights arrive.
  static constexpr int kHeld = kTokens == 1 ? 4 : kTokens == 2 ? 5 : 10;
  // Reads x, whose rows row_of(token) gives.
  template <typename RowOf>
  __device__ void Split(int tokens, const RowOf& row_of) {
    SplitSpans<kFormat, kHeld>(row_of, tokens, layout, memory + layout.parts,
                               Floats(layout.scales), bad);
    __syncthreads();
  }

  // The factors of the lane's row of a tile, in its blocks of the first piece.
  // (Behind the last row they are any.)
  __device__ const uint8_t* LaneFactorsOf(int tile) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    int row = kVectorRows * tile + lane / 4;
    if (kFormat == WeightFormat::kFp8Tile32) {
      row = (static_cast<int>((m.first_row + row0) % 32) + row) / 32;
    }
    return memory + layout.factors + row * layout.factor_pitch + lane % 4 / 2;
  }

  // The sums of the warp's pieces into their place in shared memory. Pieces are
  // in the order of the tiles and, in each, of the columns; a stage has those
  // of all warps.
  __device__ void Multiply(int tokens) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32);
    const VectorParts x{.parts = memory + layout.parts,
                        .scales = Floats(layout.scales),
                        .pitch = layout.pitch,
                        .spans = layout.spans,
                        .last = tokens - 1};
    const typename F::Reader reader(bad + kTokens + 1);
    const uint8_t* const columns = F::Columns(x);
    const int token_step = layout.tiles * layout.sharers * kVectorRows;
    float* const lane_sums = Floats(layout.sums) + lane / 4;
    constexpr int kSums = F::kDigits ? kTokens : (kTokens + 1) / 2;
    constexpr int kOfSum = F::kDigits ? 1 : 2;  // tokens
    const int tiles = TilesOf(rows);
    int slot = 0;
    PieceOrder now(layout.pieces);
    const uint8_t* lane_factors = LaneFactorsOf(now.tile);
    const int into = F::kPieceBytes * now.piece % 16;  // a slot
    float sums[kSums] = {};
#pragma unroll 1
    while (now.tile < tiles) {
      WaitForSlot<0>();
      __syncwarp();
      uint8_t* const staged = ring + slot * Layout::kSlot;
      F::template Multiply<kTokens>(
          reader, staged + into, columns + now.piece * kPieceColumns,
          lane_factors + now.piece * F::kBlocks,
          x.scales + now.piece * kPieceSpans, x, sums);
      __syncwarp();
      walk.Fetch(staged);
      slot = slot + 1 == slots ? 0 : slot + 1;
      const int sharer = now.pieces < kVectorWarps ? now.piece : warp;
      const int ended = now.tile;
      now.Advance();
      if (now.tile == ended) continue;
      lane_factors = LaneFactorsOf(now.tile);
      float* const to =
          lane_sums + (ended * layout.sharers + sharer) * kVectorRows;
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        const float sum = F::OfRow(sums[i]);
        const int token = kOfSum * i + lane % 4;
        if (lane % 4 < kOfSum && token < tokens) to[token * token_step] = sum;
        sums[i] = 0;
      }
    }
    __syncthreads();
  }

  // store(token, row of the block, sum) by one thread each.
  template <typename RowOf, typename Store>
  __device__ void Finish(int tokens, const RowOf& row_of, const Store& store) {
    // Four lanes a row.
    const int count = TilesOf(rows) * kVectorRows;
    for (int i = threadIdx.x; i < 4 * tokens * count; i += kVectorThreads) {
      const int token = kTokens == 1 ? 0 : i / 4 / count;
      const int row = kTokens == 1 ? i / 4 : i / 4 % count;
      const int tile = token * layout.tiles + row / kVectorRows;
      const float* const from = Floats(layout.sums) +
                                tile * layout.sharers * kVectorRows +
                                row % kVectorRows;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kVectorWarps / 4; ++j) {
        const int sharer = i % 4 + 4 * j;
        if (sharer < layout.sharers) sum += from[sharer * kVectorRows];
      }
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      if (i % 4 == 0 && row < rows) store(token, row, sum * F::kPower);
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
  const int slots;
  const Layout layout;
  uint8_t* const memory;
  uint8_t* const ring;  // of the warp
  int* const bad;
  PieceWalk<kFormat> walk;
};

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
