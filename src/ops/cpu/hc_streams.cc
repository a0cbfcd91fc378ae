// Hyper-connection streams: collapse to one, expand back. Bound by memory: each
// value of h is read once (and written once).
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/hc_streams.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <algorithm>
#include "hwy/highway.h"

#include "base/ceil_div.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/hc_streams-inl.h"
#include "ops/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// Columns [begin, end) of one token.
void CollapsePiece(const HcCollapseArgs& args, size_t token, size_t begin,
                   size_t end) {
  WithStreamMath(args.streams, args.h.format, [&](auto math) HWY_ATTR {
    const auto* const h =
        static_cast<const typename decltype(math)::Value*>(args.h.data);
    CollapseColumns(math, h + token * args.streams * args.dim,
                    args.pre + token * args.streams, args.dim, begin, end,
                    args.x + token * args.dim);
  });
}

void ExpandPiece(const HcExpandArgs& args, size_t token, size_t begin,
                 size_t end) {
  const size_t dim = args.dim;
  const float* const y = args.y + token * dim;
  const float* const post = args.post + token * args.streams;
  const float* const comb = args.comb + token * args.streams * args.streams;
  WithStreamMath(args.streams, args.h.format, [&](auto math) HWY_ATTR {
    auto* const h = static_cast<typename decltype(math)::Value*>(args.h.data) +
                    token * args.streams * dim;
    const auto mix = math.Broadcast(post, comb);
    ForVectors(begin, end, [&](auto vector, size_t i) HWY_ATTR {
      math.Store(
          vector,
          math.Expand(math.Load(vector, h + i, dim), vector.Load(y + i), mix),
          h + i, dim);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {

HWY_EXPORT(CollapsePiece);
HWY_EXPORT(ExpandPiece);

// A token is split among threads too, in pieces of so many columns: a whole
// number of vectors and cache lines.
constexpr size_t kPiece = 512;

// Calls body(token, begin, end) for all columns of all tokens, over threads.
template <class Body>
void ForColumns(size_t tokens, size_t dim, size_t streams_touched,
                ThreadPool& pool, const Body& body) {
  const size_t pieces = CeilDiv(dim, kPiece);
  const size_t piece_work = streams_touched * std::min(dim, kPiece);
  pool.ParallelFor(tokens * pieces, GrainFor(piece_work),
                   [&](size_t first, size_t last, size_t) {
                     for (size_t i = first; i < last;) {
                       const size_t token = i / pieces;
                       const size_t next = std::min(last, (token + 1) * pieces);
                       body(token, (i - token * pieces) * kPiece,
                            std::min(dim, (next - token * pieces) * kPiece));
                       i = next;
                     }
                   });
}

}  // namespace

void CpuHcCollapse(const HcCollapseArgs& args, ThreadPool& pool) {
  ForColumns(args.tokens, args.dim, args.streams + 1, pool,
             [&](size_t token, size_t begin, size_t end) {
               HWY_DYNAMIC_DISPATCH(CollapsePiece)(args, token, begin, end);
             });
}

void CpuHcExpand(const HcExpandArgs& args, ThreadPool& pool) {
  ForColumns(args.tokens, args.dim, 2 * args.streams + 1, pool,
             [&](size_t token, size_t begin, size_t end) {
               HWY_DYNAMIC_DISPATCH(ExpandPiece)(args, token, begin, end);
             });
}

}  // namespace ecphory
#endif
