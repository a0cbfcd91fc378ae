// A sample of the scores gives a floor that a few more than `count` of them
// reach; one vectorised pass over all collects these, and the exact cut is made
// among them. A floor that turns out too high costs a second pass, never a
// different result.
#include "ops/cpu/pick_best.h"

#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/pick_best.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include "hwy/highway.h"

#include "base/ceil_div.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/scratch_plan.h"
#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

// Appends the finite scores of [begin, end) that are at least `floor`, with
// their indices; returns how many. Writes up to a vector past the last.
size_t CollectRun(const float* scores, size_t begin, size_t end, float floor,
                  float* values, int32_t* indices) {
  const hn::RebindToSigned<DF> di;
  const VF low = hn::Set(kF, floor);
  const VF high = hn::Set(kF, kLargest);
  size_t count = 0;
  size_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    const VF score = Load(scores + i);
    // NaN is in no order.
    const auto wanted = hn::And(hn::Ge(score, low), hn::Le(score, high));
    if (HWY_LIKELY(hn::AllFalse(kF, wanted))) continue;
    const auto index = hn::Iota(di, static_cast<int32_t>(i));
    hn::CompressStore(index, hn::RebindMask(di, wanted), di, indices + count);
    count += hn::CompressStore(score, wanted, kF, values + count);
  }
  for (; i < end; ++i) {
    if (!(scores[i] >= floor && scores[i] <= kLargest)) continue;
    values[count] = scores[i];
    indices[count++] = static_cast<int32_t>(i);
  }
  return count;
}

// The same for those that can be picked.
size_t Collect(const PickBest& pick, size_t begin, size_t end, float floor,
               float* values, int32_t* indices) {
  if (pick.mask == nullptr) {
    return CollectRun(pick.scores, begin, end, floor, values, indices);
  }
  size_t count = 0;
  for (size_t i = begin; i < end;) {
    const size_t block = i / pick.block_size;
    const size_t next = std::min(end, (block + 1) * pick.block_size);
    if (pick.mask[block] != 0) {
      count += CollectRun(pick.scores, i, next, floor, values + count,
                          indices + count);
    }
    i = next;
  }
  return count;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {

HWY_EXPORT(Collect);

constexpr float kLowest = std::numeric_limits<float>::lowest();
// How many scores are looked at for the floor.
constexpr size_t kSample = 1024;
// Entries that a thread collects at a time, in about 2 us.
constexpr size_t kChunk = 8192;
// What Collect() may write past its results: the widest vector.
constexpr size_t kSlack = 16;

bool CanBePicked(const PickBest& pick, size_t i) {
  const bool candidate =
      pick.mask == nullptr || pick.mask[i / pick.block_size] != 0;
  return candidate && std::isfinite(pick.scores[i]);
}

// A score that more than `count`, but not many more, are likely to reach.
float GuessFloor(const PickBest& pick) {
  if (pick.n < 4 * kSample || pick.n < 4 * pick.count) return kLowest;
  float sample[kSample];
  size_t size = 0;
  for (size_t i = 0; i < kSample; ++i) {
    const size_t at = i * pick.n / kSample;
    if (CanBePicked(pick, at)) sample[size++] = pick.scores[at];
  }
  // So many of the sample are expected among the best, and four standard
  // deviations more are taken.
  const double expected =
      static_cast<double>(pick.count) * kSample / static_cast<double>(pick.n);
  const size_t rank =
      static_cast<size_t>(expected + 4 * std::sqrt(expected)) + 4;
  if (size <= rank) return kLowest;
  std::nth_element(sample, sample + rank, sample + size, std::greater<float>());
  return sample[rank];
}

struct Collected {
  float* values = nullptr;
  int32_t* indices = nullptr;  // ascending
  size_t size = 0;
};

Collected CollectAll(const PickBest& pick, float floor, ThreadPool& pool) {
  struct Purpose;
  const size_t chunks = CeilDiv(pick.n, kChunk);
  constexpr size_t kRoom = kChunk + kSlack;
  Collected all;
  all.values = ThreadScratch<Purpose>(chunks * kRoom);
  all.indices = ThreadScratch<Purpose, int32_t>(chunks * kRoom);
  size_t* const sizes = ThreadScratch<Purpose, size_t>(chunks);
  pool.ParallelFor(chunks, 1, [&](size_t begin, size_t end, size_t) {
    for (size_t c = begin; c < end; ++c) {
      sizes[c] = HWY_DYNAMIC_DISPATCH(Collect)(
          pick, c * kChunk, std::min((c + 1) * kChunk, pick.n), floor,
          all.values + c * kRoom, all.indices + c * kRoom);
    }
  });
  for (size_t c = 0; c < chunks; ++c) {
    std::copy_n(all.values + c * kRoom, sizes[c], all.values + all.size);
    std::copy_n(all.indices + c * kRoom, sizes[c], all.indices + all.size);
    all.size += sizes[c];
  }
  return all;
}

// Picks the `count` best of more.
void Cut(const Collected& all, size_t count, int32_t* picked) {
  struct Order;
  float* const order = ThreadScratch<Order>(all.size);
  std::copy_n(all.values, all.size, order);
  float* const last = order + count - 1;
  std::nth_element(order, last, order + all.size, std::greater<float>());
  const float threshold = *last;
  const auto above = std::count_if(
      order, last, [&](float score) { return score > threshold; });
  size_t ties = count - static_cast<size_t>(above);
  for (size_t i = 0; i < all.size; ++i) {
    if (all.values[i] < threshold) continue;
    if (all.values[i] == threshold) {
      if (ties == 0) continue;
      --ties;
    }
    *picked++ = all.indices[i];
  }
}

}  // namespace

size_t Run(const PickBest& pick, ThreadPool& pool) {
  if (pick.count == 0) return 0;
  const float floor = GuessFloor(pick);
  Collected all = CollectAll(pick, floor, pool);
  if (all.size < pick.count && floor != kLowest) {
    all = CollectAll(pick, kLowest, pool);
  }
  if (all.size > pick.count) {
    Cut(all, pick.count, pick.picked);
    return pick.count;
  }
  std::copy_n(all.indices, all.size, pick.picked);
  return all.size;
}

// In each thread: room for what is collected and for putting it into order, and
// the best of each candidate block.
uint64_t SelectScratchBytes(const ScratchShape& shape) {
  if (shape.topk == 0 || shape.groups == 0) return 0;
  const uint64_t collected = CeilDiv(shape.groups, kChunk) *
                             ((kChunk + kSlack) * 2 * sizeof(float) + 8);
  const bool sampled =
      shape.groups >= 4 * kSample && shape.groups >= 4 * shape.topk;
  const uint64_t ordered = sampled ? 5 * shape.topk / 4 : shape.groups;
  const uint64_t blocks =
      shape.block_size == 0 ? 0 : CeilDiv(shape.groups, shape.block_size);
  // Below two tokens a thread, the caller does all.
  const size_t threads =
      shape.index_tokens < 2 * shape.threads ? 1 : shape.threads;
  return threads * (collected + sizeof(float) * (ordered + 2 * blocks));
}

}  // namespace ecphory
#endif
