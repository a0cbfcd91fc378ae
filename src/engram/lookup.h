// The rows of one lookup: which must be read, in which order, and to where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ecphory/status.h"
#include "engram/table_reader.h"
#include "io/cached_pages.h"
#include "io/file_view.h"

namespace ecphory::engram {

class RowCache;

// A table that can be looked at in place.
struct TableView {
  std::unique_ptr<FileView> part[kMaxParts];
};

// How reads of a table's parts must look.
struct ReadRules {
  struct Rule {
    uint32_t file = 0;             // of the queue
    uint32_t alignment = 1;        // of offsets and lengths, a power of two
    uint32_t max_bytes = 0;        // of one read; a row's aligned extent fits
    CachedPages* pages = nullptr;  // null: not known
  };
  Rule part[kMaxParts];
};

// Neighbouring distinct rows [begin, end) that one read of each part covers.
struct ReadRun {
  struct Extent {
    uint64_t offset = 0;  // aligned, as `bytes` is
    uint32_t bytes = 0;
    uint32_t needed = 0;  // up to the end of the last row
  };
  size_t begin = 0;
  size_t end = 0;
  Extent part[kMaxParts];
};

// Reused from lookup to lookup, so that its buffers are allocated once. One
// thread prepares; afterwards constant, and thread-safe for disjoint rows.
class Lookup {
 private:
  struct Request {
    uint64_t row;
    size_t place;  // in `out`, in rows
  };

 public:
  // Allocated for each row of the largest request, until Trim().
  static constexpr size_t kBytesPerRow = sizeof(Request) + sizeof(size_t);

  // Copies the request. kOutOfRange names the largest row if `table` does not
  // have it; nothing is left to read then.
  Status Prepare(const TableReader& table, const LookupRequest& request);
  // Delivers the rows that the cache has and takes them out; *hits counts them.
  Status TakeCached(RowCache* cache, size_t table_index, size_t* hits);
  // Delivers requests [begin, end) from `view`, duplicates and all. Of several
  // rows that fail, *failed is the lowest and tells the status.
  Status TakeViewed(const TableView& view, size_t begin, size_t end,
                    uint64_t* failed);
  // Sorts what is left by place on disk and finds the distinct rows.
  void Sort();
  // Then: delivers the distinct rows that the page cache has, of tables whose
  // rules know its pages, and takes them out; returns how many. Broken rows are
  // left.
  size_t TakePages(const ReadRules& rules);

  const TableReader& table() const { return *table_; }
  RowFormat format() const { return format_; }
  size_t requests() const { return requests_.size(); }
  // To read, in order. The rest of this is for an index of one of them.
  size_t distinct_rows() const { return groups_.size(); }
  uint64_t row(size_t index) const { return requests_[groups_[index]].row; }
  // The longest run from `begin` on, up to `limit`, whose rows' aligned extents
  // touch and that the rules allow; one row unless `merge`.
  ReadRun RunAt(size_t begin, size_t limit, const ReadRules& rules,
                bool merge) const;
  // Writes the row to all its places; false when it is broken.
  bool Deliver(size_t index, const uint8_t* codes, const uint8_t* scales) const;

  // Gives back what an unusually large lookup allocated.
  void Trim();

 private:
  Status VisitBatch(const TableView& view, size_t begin, size_t count,
                    uint64_t* failed);
  // Behind the last request of a distinct row.
  size_t EndOf(size_t index) const {
    return index + 1 < groups_.size() ? groups_[index + 1] : requests_.size();
  }
  uint8_t* Place(const Request& request) const {
    return out_ + request.place * out_bytes_;
  }

  const TableReader* table_ = nullptr;
  uint8_t* out_ = nullptr;
  size_t out_bytes_ = 0;  // per row
  RowFormat format_ = RowFormat::kF32;
  std::vector<Request> requests_;  // sorted by row
  std::vector<size_t> groups_;     // first request of each distinct row
  std::vector<uint8_t> bytes_;     // of rows on their way
};

}  // namespace ecphory::engram
