// The parts of x lie side by side as columns of one tile, so that weights are
// read once, and a token's parts are added up at the end. Where there are not
// enough rows for all multiprocessors, blocks share the columns of 256 rows,
// and a second kernel adds up their sums in order. Bound by reading the
// weights: a piece of 64 or 128 columns of 256 rows is 16 to 32 KB of them and
// at most 32 of x.
#include "ops/cuda/matmul_side.cuh"

#include <algorithm>

#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/weight.cuh"
#include "ops/cuda/wide_products.cuh"
#include "ops/matmul.h"

namespace ecphory::cuda {

namespace {

struct SideProduct {
  Matrix weight;
  const float* x;
  size_t x_stride;
  SplitRows parts;  // rows of parts, pieces of one after the other
  bool own_parts;   // not those of a product before it
  float* y;
  size_t y_stride;
  bool round_bf16;
  int first_unit;
  int shares;   // of the columns
  float* sums;  // [shares, tokens, rows] where there is more than one
  // Of formats that have scales, set where those of a row are too far apart:
  // sums are then not right.
  int* refused;
};

constexpr unsigned kFinishThreads = 256;

// A unit is a share of the columns of 256 rows.
struct SideArgs {
  SideProduct of[kMostSideProducts];
  int count, tokens, units;
};

// Runs of columns of which one has kScalePieces pieces.
unsigned ScaleRuns(const TileArgs& a) {
  return Blocks(a.weight.cols, kScaleColumns);
}

// The pieces of a share of `runs` of them.
template <WeightFormat kFormat>
constexpr WideRange RangeOfShare(int pieces, int share, int shares) {
  constexpr int kPieces = kScalePieces<kFormat>;
  const int runs = (pieces + kPieces - 1) / kPieces;
  const int end = runs * (share + 1) / shares * kPieces;
  return {runs * share / shares * kPieces, end < pieces ? end : pieces};
}

// That shares are one after another and none is empty, whatever the columns.
template <WeightFormat kFormat>
constexpr bool SharesAreWhole() {
  for (int pieces = 1; pieces <= 40; ++pieces) {
    const int runs =
        (pieces + kScalePieces<kFormat> - 1) / kScalePieces<kFormat>;
    for (int shares = 1; shares <= runs; ++shares) {
      int at = 0;
      for (int share = 0; share < shares; ++share) {
        const WideRange range = RangeOfShare<kFormat>(pieces, share, shares);
        if (range.begin != at || range.end <= at) return false;
        if (range.begin % kScalePieces<kFormat> != 0) return false;
        at = range.end;
      }
      if (at != pieces) return false;
    }
  }
  return true;
}
static_assert(SharesAreWhole<WeightFormat::kFp8Tile32>());
static_assert(SharesAreWhole<WeightFormat::kFp4Row32>());
static_assert(SharesAreWhole<WeightFormat::kF16>());

template <WeightFormat kFormat>
struct SideUnit {
  __device__ SideUnit(const SideArgs& a, int unit) {
    int i = 0;
    while (i + 1 < a.count && a.of[i + 1].first_unit <= unit) ++i;
    product = &a.of[i];
    const int local = unit - product->first_unit;
    share = local % product->shares;
    row0 = static_cast<size_t>(local / product->shares) * kWideRows;
    range = RangeOfShare<kFormat>(WholeRows<kFormat>(product->weight).end,
                                  share, product->shares);
  }
  __device__ WideTile<false> Tile() const {
    return {&product->weight, &product->weight, row0, product->weight.rows};
  }
  const SideProduct* product;
  int share;
  size_t row0;
  WideRange range;
};

// Part p of token t is column p * kTokens + t: of bf16 values the one part.
template <WeightFormat kFormat, int kTokens, bool kOne>
struct SideShape {
  static constexpr int kParts = kOne ? 1 : WideFragment<kFormat>::kPieces;
  static constexpr int kColumns = kParts * kTokens;
  static constexpr int kWidth = kColumns == 48 ? 64 : kColumns;
};

template <WeightFormat kFormat>
__global__ void __launch_bounds__(kSplitThreads)
    SideSplitKernel(const __grid_constant__ SideArgs a) {
  LetNextStart();
  WaitForEarlier();
  const SideProduct& p = a.of[blockIdx.y];
  if (p.refused != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
    *p.refused = 0;
  }
  if (!p.own_parts) return;
  SplitRow<kFormat, WideFragment<kFormat>>(p.x + blockIdx.x * p.x_stride,
                                           static_cast<int>(p.weight.cols),
                                           blockIdx.x, p.parts);
}

template <WeightFormat kFormat, int kTokens, bool kOne>
__device__ void StoreSide(
    const SideArgs& a, const SideUnit<kFormat>& unit,
    const float (&sums)[2][SideShape<kFormat, kTokens, kOne>::kWidth / 2],
    const int (&power)[2][2]) {
  constexpr int kParts = SideShape<kFormat, kTokens, kOne>::kParts;
  const SideProduct& p = *unit.product;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const size_t rows = p.weight.rows;
  const bool round = p.round_bf16 && p.shares == 1;
  const size_t row0 = unit.row0 + static_cast<size_t>(warp / 4 * 128 +
                                                      warp % 4 * 16 + lane / 4);
  const RowPower powers[2][2] = {
      {RowPower(power[0][0]), RowPower(power[0][1])},
      {RowPower(power[1][0]), RowPower(power[1][1])}};
#pragma unroll
  for (int j = 0; j < kTokens / 8; ++j) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int token = 8 * j + lane % 4 * 2 + k;
      if (token >= a.tokens) continue;
      const float scale = __ldg(p.parts.scales + token);
      float* const y =
          p.shares > 1
              ? p.sums +
                    (static_cast<size_t>(unit.share) * a.tokens + token) * rows
              : p.y + token * p.y_stride;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float sum = 0;  // the smallest parts first
#pragma unroll
        for (int part = kParts - 1; part >= 0; --part) {
          sum += sums[i / 2][4 * (j + part * kTokens / 8) + i % 2 * 2 + k];
        }
        const size_t row = row0 + i / 2 * 64 + i % 2 * 8;
        if (row < rows) {
          y[row] = MaybeRound(powers[i / 2][i % 2].Times(sum, scale), round);
        }
      }
    }
  }
}

template <WeightFormat kFormat, int kTokens, bool kOne>
__global__ void __launch_bounds__(kWideThreads, 1)
    SideKernel(const __grid_constant__ SideArgs a) {
#ifdef ECPHORY_WGMMA
  using Shape = SideShape<kFormat, kTokens, kOne>;
  extern __shared__ uint4 wide_memory[];
  uint8_t* const memory = reinterpret_cast<uint8_t*>(wide_memory);
  if (threadIdx.x == 0) WideStages::Init(memory, kWideFetchThreads);
  __syncthreads();
  LetNextStart();
  WideStages stages(memory);
  if (threadIdx.x >= kWideMultiplyThreads) {
    GiveRegisters<kWideFetchRegisters>();
    for (int i = static_cast<int>(blockIdx.x); i < a.units; i += gridDim.x) {
      const SideUnit<kFormat> unit(a, i);
      SplitRows columns = unit.product->parts;
      columns.pieces = 1;
      FetchWide<kFormat, false>(
          unit.Tile(), columns, Shape::kColumns,
          [&](int n) {
            const int token = min(n % kTokens, a.tokens - 1);
            return static_cast<uint32_t>(token * Shape::kParts + n / kTokens);
          },
          stages, unit.range, i == static_cast<int>(blockIdx.x));
    }
  } else {
    TakeRegisters<kWideMultiplyRegisters>();
    for (int i = static_cast<int>(blockIdx.x); i < a.units; i += gridDim.x) {
      const SideUnit<kFormat> unit(a, i);
      float sums[2][Shape::kWidth / 2];
      int power[2][2];
      const bool exact = MultiplyWide<kFormat, Shape::kWidth, false>(
          unit.Tile(), 1, stages, unit.range, sums, power);
      WaitForEarlier();
      if (!exact && unit.product->refused != nullptr) {
        *unit.product->refused = 1;
      }
      StoreSide<kFormat, kTokens, kOne>(a, unit, sums, power);
    }
  }
#endif
}

// y = the shares' sums, in order; or, where those are not right, of every
// weight as it is. blockIdx: rows, tokens, products.
__global__ void __launch_bounds__(kFinishThreads)
    SideFinishKernel(const __grid_constant__ SideArgs a) {
  LetNextStart();
  WaitForEarlier();
  const SideProduct& p = a.of[blockIdx.z];
  const bool refused = p.refused != nullptr && *p.refused != 0;
  if (p.shares == 1 && !refused) return;
  const size_t token = blockIdx.y, rows = p.weight.rows;
  const size_t of_share = rows * a.tokens;
  for (size_t row = blockIdx.x * size_t{kFinishThreads} + threadIdx.x;
       row < rows; row += size_t{gridDim.x} * kFinishThreads) {
    float sum = 0;
    // Whether they are right is not waited for first.
    if (p.shares > 1) {
      const float* const of = p.sums + token * rows + row;
#pragma unroll 8
      for (int s = 0; s < p.shares; ++s) sum += of[s * of_share];
    }
    if (refused) {
      const float* const x = p.x + token * p.x_stride;
      sum = 0;
      for (size_t k = 0; k < p.weight.cols; ++k) {
        sum = fmaf(WeightValue(p.weight, row, k), x[k], sum);
      }
    }
    p.y[token * p.y_stride + row] = MaybeRound(sum, p.round_bf16);
  }
}

template <WeightFormat kFormat, int kTokens, bool kOne = false>
void Launch(const SideArgs& args) {
  constexpr auto kKernel = SideKernel<kFormat, kTokens, kOne>;
  AllowSharedMemory(kKernel, kWideMemory, "matmul");
  LaunchOverlapped(
      kKernel,
      dim3(static_cast<unsigned>(std::min(args.units, Multiprocessors()))),
      kWideThreads, kWideMemory, "matmul", args);
}

// Shares of the columns, so that all units together are one on each
// multiprocessor where that can be, and take about as long. Where there are
// more tiles than multiprocessors, the columns of one product with few of them
// are shared as well: its tiles would keep some multiprocessors for as long as
// a second one of the others.
void Divide(std::span<const TileArgs> products, SideArgs& args) {
  const auto tiles_of = [](const TileArgs& a) {
    return Blocks(a.weight.rows, kWideRows);
  };
  const size_t blocks = static_cast<size_t>(Multiprocessors());
  size_t work = 0, tiles = 0;
  for (const TileArgs& a : products) {
    work += size_t{ScaleRuns(a)} * tiles_of(a);
    tiles += tiles_of(a);
  }
  bool even = tiles <= blocks;
  for (size_t i = 0; i < products.size(); ++i) {
    const unsigned runs = ScaleRuns(products[i]);
    const size_t own = tiles_of(products[i]);
    size_t most =
        tiles > blocks ? 1 : std::max<size_t>(runs * blocks / work, 1);
    if (!even && own >= tiles % blocks && 4 * own <= tiles) {
      most = std::max<size_t>(blocks / own, 1);
      even = true;
    }
    // Of whole runs.
    args.of[i].shares = static_cast<int>(
        Blocks(runs, Blocks(runs, std::min<size_t>(most, runs))));
    args.of[i].first_unit = args.units;
    args.units += static_cast<int>(own) * args.of[i].shares;
  }
}

// Room for `pieces` parts, each x's once, sums, and where a product is refused
// if that can be. False when there is none.
bool Allocate(std::span<const TileArgs> products, size_t pieces, bool refuses,
              SideArgs& args) {
  struct Parts;
  struct Scales;
  struct Sums;
  struct Refused;
  const size_t tokens = products[0].tokens;
  size_t parts = 0;
  bool shared = false;
  size_t part_at[kMostSideProducts], scale_at[kMostSideProducts];
  size_t inputs = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    const TileArgs& a = products[i];
    size_t same = 0;
    while (same < i &&
           (products[same].x != a.x || products[same].x_stride != a.x_stride ||
            products[same].weight.cols != a.weight.cols)) {
      ++same;
    }
    args.of[i].own_parts = same == i;
    part_at[i] = same == i ? parts : part_at[same];
    scale_at[i] = same == i ? tokens * inputs++ : scale_at[same];
    if (same == i) parts += tokens * pieces * SplitPitch(a.weight.cols);
    shared = shared || args.of[i].shares > 1;
  }
  uint16_t* const all_parts = Scratch<Parts, uint16_t>(parts);
  float* const all_scales = Scratch<Scales>(tokens * inputs);
  // Units that share columns are no more than multiprocessors (Divide).
  float* next_sums =
      shared ? Scratch<Sums>(static_cast<size_t>(Multiprocessors()) *
                             kWideRows * tokens)
             : nullptr;
  int* const refused = Scratch<Refused, int>(kMostSideProducts);
  if (all_parts == nullptr || all_scales == nullptr || refused == nullptr ||
      (shared && next_sums == nullptr)) {
    return false;  // noted
  }
  for (size_t i = 0; i < products.size(); ++i) {
    SideProduct& p = args.of[i];
    p.parts = {.parts = all_parts + part_at[i],
               .scales = all_scales + scale_at[i],
               .pieces = static_cast<int>(pieces),
               .pitch = SplitPitch(products[i].weight.cols)};
    p.refused = refuses ? refused + i : nullptr;
    p.sums = next_sums;
    if (p.shares > 1) next_sums += p.shares * tokens * p.weight.rows;
  }
  return true;
}

template <WeightFormat kFormat>
void Run(std::span<const TileArgs> products) {
  using F = WideFragment<kFormat>;
  SideArgs args{};
  args.count = static_cast<int>(products.size());
  args.tokens = static_cast<int>(products[0].tokens);
  for (int i = 0; i < args.count; ++i) {
    const TileArgs& a = products[static_cast<size_t>(i)];
    SideProduct& p = args.of[i];
    p.weight = a.weight;
    p.x = a.x, p.x_stride = a.x_stride;
    p.y = a.y, p.y_stride = a.y_stride;
    p.round_bf16 = a.round_bf16;
  }
  Divide(products, args);
  // bf16 values, which have one part.
  const bool one = std::all_of(products.begin(), products.end(),
                               [](const TileArgs& a) { return a.bf16; });
  constexpr bool kScales = F::kFactor == FactorPlace::kBeside;
  if (!Allocate(products, one ? 1 : F::kPieces, kScales, args)) return;
  LaunchOverlapped(SideSplitKernel<kFormat>,
                   dim3(static_cast<unsigned>(args.tokens),
                        static_cast<unsigned>(args.count)),
                   kSplitThreads, 0, "matmul: split", args);
  if (one) {
    args.tokens <= 32 ? Launch<kFormat, 32, true>(args)
                      : Launch<kFormat, 64, true>(args);
  } else if constexpr (F::kPieces == 3) {
    args.tokens <= 16 ? Launch<kFormat, 16>(args) : Launch<kFormat, 32>(args);
  } else {
    args.tokens <= 32 ? Launch<kFormat, 32>(args) : Launch<kFormat, 64>(args);
  }
  size_t added = 0;
  for (int i = 0; i < args.count; ++i) {
    if (args.of[i].shares > 1) added = std::max(added, args.of[i].weight.rows);
  }
  if (added == 0 && !kScales) return;
  const unsigned tokens = static_cast<unsigned>(args.tokens);
  const unsigned blocks =
      added > 0 ? Blocks(added, kFinishThreads)
                : Blocks(static_cast<size_t>(Multiprocessors()), tokens);
  LaunchOverlapped(SideFinishKernel,
                   dim3(blocks, tokens, static_cast<unsigned>(args.count)),
                   kFinishThreads, 0, "matmul: add", args);
}

template <WeightFormat kFormat>
bool Takes(const TileArgs& a) {
  const uintptr_t bits =
      reinterpret_cast<uintptr_t>(a.weight.data) |
      a.weight.cols / 32 * WideFragment<kFormat>::kBlockBytes;
  return a.weight.cols % 32 == 0 && bits % 16 == 0 &&
         a.tokens <= (WideFragment<kFormat>::kPieces == 3 ? 32 : 64);
}

}  // namespace

bool CanSide(const TileArgs& a) {
  if (!HasWgmmaCode() || a.tokens < kFewestSideTokens ||
      a.tokens > kMostSideTokens || a.weight.rows == 0 ||
      a.weight.rows >= size_t{1} << 31 ||
      reinterpret_cast<uintptr_t>(a.x) % 16 != 0 || a.x_stride % 4 != 0) {
    return false;
  }
  switch (a.weight.format) {
    case WeightFormat::kF16: return Takes<WeightFormat::kF16>(a);
    case WeightFormat::kBF16: return Takes<WeightFormat::kBF16>(a);
    case WeightFormat::kFp8Tile32: return Takes<WeightFormat::kFp8Tile32>(a);
    case WeightFormat::kFp4Row32: return Takes<WeightFormat::kFp4Row32>(a);
    default: return false;
  }
}

void RunSide(std::span<const TileArgs> products) {
  switch (products[0].weight.format) {
    case WeightFormat::kF16: return Run<WeightFormat::kF16>(products);
    case WeightFormat::kBF16: return Run<WeightFormat::kBF16>(products);
    case WeightFormat::kFp8Tile32:
      return Run<WeightFormat::kFp8Tile32>(products);
    default: return Run<WeightFormat::kFp4Row32>(products);
  }
}

}  // namespace ecphory::cuda
