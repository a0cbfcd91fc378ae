// Reading table rows from disk: submit early, wait late.
//
// The tables are never mapped and never kept: a lookup is a batch of row
// numbers and a place for their values. Whoever embeds the store needs nothing
// else of the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ecphory/status.h"
#include "io/file.h"
#include "io/io_mode.h"
#include "tensor/table_codec.h"

namespace ecphory {
class ThreadPool;
}

namespace ecphory::engram {

// One table: where it lies and how its rows are packed.
struct TableSource {
  std::string name;  // tensor name, for errors
  TableCodec codec = TableCodec::kRow264;
  uint64_t rows = 0;
  uint32_t width = 0;  // values per row, a multiple of 32
  std::shared_ptr<RandomAccessFile> file;
  uint64_t offset = 0;                           // of row 0 in `file`
  std::shared_ptr<RandomAccessFile> scale_file;  // kReleasedPair only
  uint64_t scale_offset = 0;
};

// What a lookup writes for each row.
enum class RowFormat : uint8_t {
  kF32,   // width floats, exact in bf16
  kBf16,  // width bf16 values
  kRaw,   // the row as it is on disk, scales last: row_bytes, undecoded
};

// Holds the rows of some 5,000 tokens of the released layout.
inline constexpr uint64_t kDefaultCacheBytes = uint64_t{64} << 20;

struct StoreOptions {
  IoMode io = IoMode::kAuto;
  // kPread and what falls back to it: readers beside the caller, 1..256. Random
  // reads of a few hundred bytes need many in flight to reach a disk's rate.
  uint32_t io_threads = 16;
  // Reads in flight, 1..4096.
  uint32_t queue_depth = 256;
  // Bytes of rows kept in memory, bookkeeping included; touched as rows come,
  // in huge pages, so soon all of them. 0: none. Unset: kDefaultCacheBytes, or
  // none where kAuto finds that the page cache holds the tables, a memory copy
  // away. Rows that are mapped or in memory are never kept twice.
  std::optional<uint64_t> cache_bytes = std::nullopt;
  // kAuto: the longest that measuring may take.
  double probe_seconds = 1.0;
};

// How a store reads, and why so.
struct IoReport {
  IoMode mode = IoMode::kPread;  // never kAuto
  bool direct = false;           // O_DIRECT: the page cache is left alone
  // What was asked for, or would have been best, was denied: worth a line of
  // its own to whoever runs this.
  bool fallback = false;
  uint64_t cache_bytes = 0;  // that kept rows may take; 0: none are kept
  // One line for people: "io_uring, O_DIRECT, depth 256: 74,000 rows/s measured
  // (pread 52,000)", or what was denied and what is used instead.
  std::string reason;
};

// Counters since the store was opened (or since ResetStats), of one table or
// of all of them.
struct StoreStats {
  uint64_t lookups = 0;     // tickets
  uint64_t rows = 0;        // rows asked for
  uint64_t cache_hits = 0;  // of these: rows that the cache had
  uint64_t rows_read = 0;   // distinct rows that were read
  uint64_t reads = 0;       // read requests: rows that touch share one
  uint64_t bytes_read = 0;  // as the disk sees it: whole sectors when direct
  double read_seconds = 0;  // sum over tickets, submit to last row
  double wait_seconds = 0;  // time callers spent in Wait()
};

// What one lookup cost; the counters above for a caller that shares the store.
struct LookupStats {
  uint64_t cache_hits = 0;
  uint64_t rows_read = 0;
  uint64_t bytes_read = 0;
  double read_seconds = 0;  // Submit to last row
};

// One table's part of a submission.
struct LookupRequest {
  size_t table = 0;
  std::span<const uint64_t> rows;  // copied by Submit
  // [rows, width] in `format` ([rows, row_bytes] for kRaw), in the order of
  // `rows`. Any memory the CPU can write, pinned device-visible memory too.
  void* out = nullptr;
  RowFormat format = RowFormat::kF32;
};

// A submitted lookup. 0 is no ticket.
using Ticket = uint64_t;

// Thread-safe; several lookups may be under way and are served in the order of
// Submit, but that calls for few rows overtake calls for many. No thread is
// created and nothing is allocated per lookup once the buffers have grown to
// the size in use; nobody polls.
class Store {
 public:
  // Refuses: a table that ends outside its file, a width that is no multiple of
  // 32, and a table whose sampled rows are all zero bytes or broken (a missing
  // table must never run as another model). kResourceExhausted when the system
  // has not the memory, threads or descriptors that the options ask for.
  static Result<std::unique_ptr<Store>> Open(std::vector<TableSource> tables,
                                             const StoreOptions& options);
  // Lookups may be open: their reads under way end first, the rest is dropped.
  // Every `out` must stay valid until then; no call may be running.
  ~Store();

  size_t tables() const;
  const TableSource& table(size_t index) const;

  // Starts reading: tickets[i] stands for requests[i], all in one submission to
  // the kernel. Each `out` must stay valid until Wait or Cancel of its ticket
  // returned. A row or table that does not exist is reported by Wait. Rows that
  // are in memory or the page cache are there when it returns; `pool`, where
  // given, shares that work, request by request.
  void Submit(std::span<const LookupRequest> requests,
              std::span<Ticket> tickets, ThreadPool* pool = nullptr);
  Ticket Submit(const LookupRequest& request);
  // Whether Wait would return at once. Takes in what has been read so far.
  bool Ready(Ticket ticket) const;
  // Returns when the lookup is done and forgets the ticket; meanwhile the
  // calling thread decodes what comes in, for others too. Errors name table and
  // row (of several broken rows, the lowest); `out` is then unspecified. Every
  // ticket needs exactly one Wait or Cancel. Fills `stats` unless it is null.
  Status Wait(Ticket ticket, LookupStats* stats = nullptr);
  // Forgets the ticket and drops its rows. Does not wait for the disk, only for
  // rows that are being decoded right now: then `out` is the caller's again.
  void Cancel(Ticket ticket);

  const IoReport& io() const;
  StoreStats stats() const;                    // all tables
  StoreStats table_stats(size_t index) const;  // one
  // Seconds from Submit to the last row that a share `q` (0..1) of the table's
  // lookups did not exceed, at most a sixteenth too high.
  double LatencyQuantile(size_t index, double q) const;
  void ResetStats();

 private:
  friend class StoreAccess;
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ecphory::engram
