// The rows of a hyper-connection's fn, a chunk of columns at a time: read where
// they lie, or from a packed panel; compiled once per Highway target.
#if defined(ECPHORY_OPS_CPU_HC_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_HC_ROWS_INL_H_
#undef ECPHORY_OPS_CPU_HC_ROWS_INL_H_
#else
#define ECPHORY_OPS_CPU_HC_ROWS_INL_H_
#endif

#include <algorithm>

#include "ops/cpu/hc_split.h"
#include "ops/cpu/weight_decoder-inl.h"
#include "ops/hyper_connection.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

constexpr size_t kLineBytes = 64;

// To L2, around the tiles in L1.
HWY_INLINE void PrefetchL2(const void* p) {
  __builtin_prefetch(p, /*write=*/0, /*locality=*/2);
}

// One chunk of columns of all streams.
struct Chunk {
  Chunk(const HcSplitArgs& args, size_t index)
      : begin(index * kHcChunk),
        end(std::min(args.dim, begin + kHcChunk)),
        vectors(CeilDiv(end - begin, kLanes)) {}
  size_t begin, end;
  size_t vectors;  // of a stream
};

// Calls body(codec) with the codec of a plain format (HcPlainMatrix).
template <class Body>
HWY_INLINE void WithCodec(WeightFormat format, const Body& body) {
  switch (format) {
    case WeightFormat::kF16: return body(F16Codec());
    case WeightFormat::kBF16: return body(Bf16Codec());
    default: return body(F32Codec());
  }
}

// A chunk of kHcRowTile rows of fn, vector by vector as a tile takes them; rows
// past the last repeat it. Whole vectors only. Asks for what lies `ahead`
// values on meanwhile.
template <class Codec>
class DirectRows {
 public:
  DirectRows(const HcSplitArgs& args, size_t tile, const Chunk& chunk,
             size_t ahead)
      : dim_(args.dim), begin_(chunk.begin), ahead_(ahead) {
    for (size_t r = 0; r < kHcRowTile; ++r) {
      const size_t row = std::min(tile * kHcRowTile + r, args.fn.rows - 1);
      rows_[r] = RowData(args.fn, row);
    }
  }
  HWY_INLINE VF Get(size_t r, size_t stream, size_t i) const {
    const uint8_t* const p =
        rows_[r] + (stream * dim_ + begin_ + i) * Codec::kBytes;
    PrefetchL2(p + ahead_ * Codec::kBytes);
    return Codec::Decode(p);
  }

 private:
  const uint8_t* rows_[kHcRowTile];
  size_t dim_, begin_, ahead_;
};

// The same from a panel, where it lies in this very order.
class PackedRows {
 public:
  PackedRows(const float* panel, size_t tiles, size_t tile, size_t streams,
             const Chunk& chunk)
      : stream_(chunk.vectors * kHcRowTile * kLanes) {
    // Chunks before this one are whole.
    panel_ = panel + tiles * kHcRowTile * streams * chunk.begin +
             tile * streams * stream_;
  }
  HWY_INLINE VF Get(size_t r, size_t stream, size_t i) const {
    return Load(panel_ + stream * stream_ + i * kHcRowTile + r * kLanes);
  }

 private:
  const float* panel_;
  size_t stream_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
