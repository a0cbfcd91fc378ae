// Rows of the tables kept in memory, byte for byte as they are on disk.
//
// A set-associative cache: a row's hash picks a set of 16 places, and the set
// decides alone what to keep (row_cache_set.h). docs/engram-cache.md has the
// study that chose the policy and what a user gains per megabyte.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ecphory/status.h"
#include "engram/row_cache_set.h"

namespace ecphory::engram {

// What the cache must know of a table.
struct RowCacheTable {
  uint64_t rows = 0;
  size_t row_bytes = 0;  // as kept: codes and scales together
};

// Counters since the cache was made.
struct RowCacheStats {
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t inserted = 0;  // rows that got a place
  uint64_t evicted = 0;   // rows that gave their place to another
};

// Thread-safe. Nothing is allocated after Create(), and memory is touched when
// the first row comes that needs it.
class RowCache {
 public:
  // A cache that takes at most `bytes` of memory, bookkeeping included. Tables
  // share it; those of unequal row size get room for as many rows each. Below
  // some 5 KB a row size (one set) there is room for no row: every Find misses.
  // Refuses a table without bytes per row or with more than 1 MiB;
  // kResourceExhausted when the system refuses the address space.
  static Result<std::unique_ptr<RowCache>> Create(
      uint64_t bytes, std::span<const RowCacheTable> tables);
  ~RowCache();
  RowCache(const RowCache&) = delete;
  RowCache& operator=(const RowCache&) = delete;

  // Copies the row to out[row_bytes] if it is there. `table` and `row` exist.
  bool Find(size_t table, uint64_t row, uint8_t* out);
  // Many rows of a table at once, faster than one by one: row i to
  // out + i * row_bytes where found[i] becomes 1, else 0. Returns the hits.
  // `out` and `found` have room for all rows.
  size_t FindBatch(size_t table, std::span<const uint64_t> rows, uint8_t* out,
                   uint8_t* found);

  // Keeps a row that was read: bytes[row_bytes]. It may push out another one.
  // Only whole rows that decode may be given; a row that is there already is
  // left as it is.
  void Insert(size_t table, uint64_t row, const uint8_t* bytes);
  // Row i from bytes + i * row_bytes.
  void InsertBatch(size_t table, std::span<const uint64_t> rows,
                   const uint8_t* bytes);

  // Forgets every row and gives the memory back. No other call may be running.
  void Clear();

  uint64_t bytes() const { return bytes_; }  // taken, at most what was given
  uint64_t capacity(size_t table) const;     // rows that its size has room for
  size_t row_bytes(size_t table) const;
  RowCacheStats stats() const;

 private:
  // All tables of one row size.
  struct Pool {
    size_t row_bytes = 0;
    size_t slot_bytes = 0;      // a key and a row
    size_t set_bytes = 0;       // a RowCacheSet and its slots
    uint64_t sets = 0;          // 0: no room
    uint8_t* memory = nullptr;  // [sets, set_bytes]
  };
  // A row and where it belongs.
  struct Place {
    uint64_t key;
    RowCacheSet* set;
    uint16_t tag;
    size_t guess;  // of its place in the set, or kNone
  };
  enum class Outcome : uint8_t { kPresent, kInserted, kReplaced };
  struct Counters {
    std::atomic<uint64_t> hits{0}, misses{0}, inserted{0}, evicted{0};
  };

  RowCache() = default;
  static Pool MakePool(size_t row_bytes);
  Status Allocate(uint64_t bytes);
  const Pool& PoolOf(size_t table) const { return pools_[table_pool_[table]]; }
  static Place PlaceOf(const Pool& pool, uint64_t key);
  static uint8_t* Slot(const Pool& pool, const Place& place, size_t way);
  static size_t Way(const Pool& pool, const Place& place);
  static size_t PrefetchRow(const Pool& pool, const Place& place);
  static bool FindAt(const Pool& pool, const Place& place, uint8_t* out);
  static Outcome InsertAt(const Pool& pool, const Place& place,
                          const uint8_t* bytes);

  std::vector<Pool> pools_;
  std::vector<size_t> table_pool_;     // [tables]
  std::vector<uint64_t> table_first_;  // [tables] key of row 0
  void* memory_ = nullptr;             // of all pools
  uint64_t memory_bytes_ = 0;
  uint64_t bytes_ = 0;
  Counters counters_;
};

}  // namespace ecphory::engram
