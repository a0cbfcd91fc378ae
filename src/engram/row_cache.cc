#include "engram/row_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/checked_math.h"

namespace ecphory::engram {

namespace {

__extension__ using Uint128 = unsigned __int128;

constexpr size_t kMaxRowBytes = size_t{1} << 20;
constexpr size_t kCacheLine = 64;
constexpr size_t kPageBytes = 4096;
constexpr size_t kKeyBytes = sizeof(uint64_t);
// Rows between the prefetch of a set, that of its row and the copy: enough to
// cover a miss of all caches (some 100 ns) at 10 ns a row.
constexpr size_t kSetAhead = 16;
constexpr size_t kRowAhead = 8;

// Every bit of the result depends on every bit of x (the finaliser of
// splitmix64).
uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58'476d'1ce4'e5b9u;
  x ^= x >> 27;
  x *= 0x94d0'49bb'1331'11ebu;
  return x ^ x >> 31;
}

size_t RoundUp(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// The key lies in front of its row.
bool HasKey(const uint8_t* slot, uint64_t key) {
  uint64_t stored;
  std::memcpy(&stored, slot, kKeyBytes);
  return stored == key;
}

void Count(std::atomic<uint64_t>* counter, uint64_t n) {
  if (n != 0) counter->fetch_add(n, std::memory_order_relaxed);
}

}  // namespace

RowCache::Pool RowCache::MakePool(size_t row_bytes) {
  Pool pool{.row_bytes = row_bytes};
  pool.slot_bytes = RoundUp(kKeyBytes + row_bytes, kKeyBytes);
  pool.set_bytes = RoundUp(
      sizeof(RowCacheSet) + RowCacheSet::kWays * pool.slot_bytes, kCacheLine);
  return pool;
}

Result<std::unique_ptr<RowCache>> RowCache::Create(
    uint64_t bytes, std::span<const RowCacheTable> tables) {
  std::unique_ptr<RowCache> cache(new RowCache);
  // Key 0 is that of an empty slot.
  uint64_t next_key = 1;
  for (const RowCacheTable& table : tables) {
    if (table.row_bytes == 0 || table.row_bytes > kMaxRowBytes) {
      return InvalidArgument(
          "row cache: table %zu has rows of %zu bytes, expected 1 to %zu",
          cache->table_pool_.size(), table.row_bytes, kMaxRowBytes);
    }
    cache->table_first_.push_back(next_key);
    if (!CheckedAdd(next_key, table.rows, &next_key)) {
      return InvalidArgument("row cache: the tables have more than 2^64 rows");
    }
    const auto pool = std::find_if(
        cache->pools_.begin(), cache->pools_.end(),
        [&](const Pool& p) { return p.row_bytes == table.row_bytes; });
    cache->table_pool_.push_back(
        static_cast<size_t>(pool - cache->pools_.begin()));
    if (pool == cache->pools_.end()) {
      cache->pools_.push_back(MakePool(table.row_bytes));
    }
  }
  ECPHORY_RETURN_IF_ERROR(cache->Allocate(bytes));
  return cache;
}

RowCache::~RowCache() {
  if (memory_ != nullptr) munmap(memory_, memory_bytes_);
}

// Every table gets as many sets as any other; a pool has those of its tables.
Status RowCache::Allocate(uint64_t bytes) {
  const uint64_t own =
      sizeof(*this) + pools_.size() * sizeof(Pool) +
      table_pool_.size() * (sizeof(size_t) + sizeof(uint64_t)) + kPageBytes;
  if (bytes <= own || pools_.empty()) return {};
  const uint64_t budget = bytes - own;
  uint64_t round_bytes = 0;  // one set for every table
  for (const size_t pool : table_pool_) round_bytes += pools_[pool].set_bytes;
  for (size_t i = 0; i < pools_.size(); ++i) {
    const auto n = static_cast<uint64_t>(
        std::count(table_pool_.begin(), table_pool_.end(), i));
    // budget * n / round_bytes, without the product that may overflow.
    pools_[i].sets =
        budget / round_bytes * n + budget % round_bytes * n / round_bytes;
    memory_bytes_ += pools_[i].sets * pools_[i].set_bytes;
  }
  if (memory_bytes_ == 0) return {};
  memory_ = mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory_ == MAP_FAILED) {
    memory_ = nullptr;
    return ErrnoError(ENOMEM, "row cache of %llu bytes",
                      static_cast<unsigned long long>(bytes));
  }
  bytes_ = own + memory_bytes_;
  // Sets are visited at random: with small pages most visits would miss the
  // TLB. A host without huge pages does without.
  (void)madvise(memory_, memory_bytes_, MADV_HUGEPAGE);
  auto* next = static_cast<uint8_t*>(memory_);
  for (Pool& pool : pools_) {
    pool.memory = next;
    next += pool.sets * pool.set_bytes;
  }
  return {};
}

uint64_t RowCache::capacity(size_t table) const {
  return PoolOf(table).sets * RowCacheSet::kWays;
}

size_t RowCache::row_bytes(size_t table) const {
  return PoolOf(table).row_bytes;
}

RowCache::Place RowCache::PlaceOf(const Pool& pool, uint64_t key) {
  const uint64_t hash = Mix(key);
  const auto set =
      static_cast<uint64_t>((static_cast<Uint128>(hash) * pool.sets) >> 64);
  return {key,
          reinterpret_cast<RowCacheSet*>(pool.memory + set * pool.set_bytes),
          static_cast<uint16_t>(hash), RowCacheSet::kNone};
}

uint8_t* RowCache::Slot(const Pool& pool, const Place& place, size_t way) {
  return reinterpret_cast<uint8_t*>(place.set + 1) + way * pool.slot_bytes;
}

size_t RowCache::Way(const Pool& pool, const Place& place) {
  for (uint32_t mask = place.set->Match(place.tag); mask != 0;
       mask &= mask - 1) {
    const auto way = static_cast<size_t>(std::countr_zero(mask));
    if (place.set->Holds(way) && HasKey(Slot(pool, place, way), place.key)) {
      return way;
    }
  }
  return RowCacheSet::kNone;
}

// Guesses the place of a row without the lock, right nearly always, and fetches
// the row there.
size_t RowCache::PrefetchRow(const Pool& pool, const Place& place) {
  const uint32_t mask = place.set->Match(place.tag);
  if (mask == 0) return RowCacheSet::kNone;
  const auto way = static_cast<size_t>(std::countr_zero(mask));
  const uint8_t* slot = Slot(pool, place, way);
  for (size_t i = 0; i < pool.slot_bytes; i += kCacheLine) {
    __builtin_prefetch(slot + i);
  }
  return way;
}

bool RowCache::FindAt(const Pool& pool, const Place& place, uint8_t* out) {
  place.set->Lock();
  size_t way = place.guess;
  if (way == RowCacheSet::kNone || !place.set->Holds(way) ||
      !HasKey(Slot(pool, place, way), place.key)) {
    way = Way(pool, place);
  }
  const bool hit = way != RowCacheSet::kNone;
  if (hit) {
    place.set->Hit(way);
    std::memcpy(out, Slot(pool, place, way) + kKeyBytes, pool.row_bytes);
  }
  place.set->Unlock();
  return hit;
}

RowCache::Outcome RowCache::InsertAt(const Pool& pool, const Place& place,
                                     const uint8_t* bytes) {
  place.set->Lock();
  Outcome outcome = Outcome::kPresent;
  if (Way(pool, place) == RowCacheSet::kNone) {
    bool evicted;
    const size_t way = place.set->Admit(place.tag, &evicted);
    outcome = evicted ? Outcome::kReplaced : Outcome::kInserted;
    uint8_t* slot = Slot(pool, place, way);
    std::memcpy(slot, &place.key, kKeyBytes);
    std::memcpy(slot + kKeyBytes, bytes, pool.row_bytes);
  }
  place.set->Unlock();
  return outcome;
}

bool RowCache::Find(size_t table, uint64_t row, uint8_t* out) {
  uint8_t found;
  FindBatch(table, {&row, 1}, out, &found);
  return found != 0;
}

size_t RowCache::FindBatch(size_t table, std::span<const uint64_t> rows,
                           uint8_t* out, uint8_t* found) {
  const Pool& pool = PoolOf(table);
  size_t hits = 0;
  if (pool.sets == 0) {
    std::fill_n(found, rows.size(), uint8_t{0});
  } else {
    const uint64_t first = table_first_[table];
    std::array<Place, kSetAhead> ring;
    const size_t n = rows.size();
    for (size_t i = 0; i < n + kSetAhead; ++i) {
      // The ring's place i holds row i - kSetAhead until row i takes it.
      if (i >= kSetAhead) {
        const size_t at = i - kSetAhead;
        found[at] =
            FindAt(pool, ring[i % kSetAhead], out + at * pool.row_bytes);
        hits += found[at];
      }
      if (i < n) {
        ring[i % kSetAhead] = PlaceOf(pool, first + rows[i]);
        __builtin_prefetch(ring[i % kSetAhead].set);
      }
      const size_t at = i - kRowAhead;
      if (i < kRowAhead || at >= n) continue;
      Place& place = ring[at % kSetAhead];
      place.guess = PrefetchRow(pool, place);
    }
  }
  Count(&counters_.hits, hits);
  Count(&counters_.misses, rows.size() - hits);
  return hits;
}

void RowCache::Insert(size_t table, uint64_t row, const uint8_t* bytes) {
  InsertBatch(table, {&row, 1}, bytes);
}

void RowCache::InsertBatch(size_t table, std::span<const uint64_t> rows,
                           const uint8_t* bytes) {
  const Pool& pool = PoolOf(table);
  if (pool.sets == 0) return;
  uint64_t inserted = 0, evicted = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Place place = PlaceOf(pool, table_first_[table] + rows[i]);
    const Outcome outcome = InsertAt(pool, place, bytes + i * pool.row_bytes);
    inserted += outcome != Outcome::kPresent ? 1 : 0;
    evicted += outcome == Outcome::kReplaced ? 1 : 0;
  }
  Count(&counters_.inserted, inserted);
  Count(&counters_.evicted, evicted);
}

// Fresh pages are zero bytes: empty sets.
void RowCache::Clear() {
  if (memory_ != nullptr) madvise(memory_, memory_bytes_, MADV_DONTNEED);
}

RowCacheStats RowCache::stats() const {
  const auto value = [](const std::atomic<uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  return {value(counters_.hits), value(counters_.misses),
          value(counters_.inserted), value(counters_.evicted)};
}

}  // namespace ecphory::engram
