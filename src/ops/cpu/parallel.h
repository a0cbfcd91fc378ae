// How finely work is split among threads.
#pragma once

#include <algorithm>
#include <cstddef>

namespace ecphory {

// A range must hold at least this much work, in multiply-adds. Handing a range
// to an awake worker and back costs 1.5 us (Zen 4); 32K multiply-adds take 2-4
// us on one core at the 8-16 per ns that the kernels reach for one token, so
// that a split always wins, if not by much. Smaller operators run on the
// calling thread.
inline constexpr size_t kMinRangeWork = 32 * 1024;

// The `grain` for ParallelFor over items of `item_work` multiply-adds each.
// Element-wise operators count one per value read or written: they are bound
// by loads and stores, not by arithmetic.
inline size_t GrainFor(size_t item_work) {
  return std::max<size_t>(1, kMinRangeWork / std::max<size_t>(1, item_work));
}

}  // namespace ecphory
