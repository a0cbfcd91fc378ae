// The memory's rows for a pass: asked for as soon as token ids are known,
// handed to the layers block by block.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "ecphory/session.h"
#include "engram/hasher.h"
#include "engram/lookup.h"
#include "engram/store.h"
#include "model/resident_tables.h"
#include "ops/device_array.h"
#include "ops/table_rows.h"

namespace ecphory {

// Rows of up to two chunks are under way: those of the chunk being computed and
// those of the one after it. Which rows a chunk needs follows from its
// compressed ids and the history before them, so that rows read early are taken
// when both are the same, whatever happened in between, and dropped when not.
// A chunk may hold tokens of several sequences, each with a history of its own;
// their rows are asked for together, and each is read once.
//
// On a host device the store decodes the rows, to bf16; for another they stay
// as they are stored, and its operators decode them. Of tables that the device
// has whole (resident) only row numbers are handed out, and nothing is read.
//
// Bounded: the rows of two chunks. Allocates nothing per call. Not thread-safe.
class EngramFetch {
 public:
  // Tokens of one ticket: few enough that the first layer starts early, many
  // enough that the store's bookkeeping is noise.
  static constexpr size_t kBlock = 64;
  // The same of no more tokens than that whose rows are handed out together and
  // come from the page cache: threads share the work of a step of several
  // sequences, which nothing else hides, 16 of them that of 32.
  static constexpr size_t kSmallBlock = 2;
  // Tokens handed out together: on a host device those that are there, so that
  // work begins. Another device has work already, and its products gain by
  // many: it gets as many as there can be.
  static constexpr size_t kMaxTaken = 1024;
  static constexpr size_t kAllLayers = SIZE_MAX;

  // Bytes held for chunks of `chunk` tokens: rows, numbers and the store's
  // lookups of those in use and of those read ahead. A token has `columns` rows
  // in each of `layers` layers, which take `row_bytes` together, one of each
  // layer.
  static constexpr uint64_t BufferBytes(uint64_t layers, uint64_t columns,
                                        uint64_t row_bytes, uint64_t chunk) {
    return 2 * columns * chunk *
               (row_bytes + layers * engram::Lookup::kBytesPerRow) +
           layers * chunk * columns * sizeof(uint64_t) +
           3 * chunk * sizeof(int32_t);
  }
  // The same, of resident tables.
  static constexpr uint64_t NumberBytes(uint64_t layers, uint64_t columns,
                                        uint64_t chunk) {
    return 3 * layers * chunk * columns * sizeof(uint64_t) +
           3 * chunk * sizeof(int32_t);
  }

  // Tokens of a chunk that continue one sequence.
  struct Stretch {
    size_t tokens = 0;
    engram::History before;
  };

  // For chunks of at most `chunk` tokens. `resident`: null, or the store's
  // tables in memory that the device's operators reach. kResourceExhausted when
  // there is not so much memory that `device` shares. `pool`, which outlives
  // it, shares the work of rows that are in memory.
  static Result<std::unique_ptr<EngramFetch>> Create(
      const engram::Hasher& hasher, engram::Store& store,
      const ResidentTables* resident, size_t chunk, Device& device,
      ThreadPool& pool);
  ~EngramFetch();  // cancels
  EngramFetch(const EngramFetch&) = delete;
  EngramFetch& operator=(const EngramFetch&) = delete;

  // Asks for the rows of `tokens`, which are those of the stretches one after
  // the other, in the first `n_layers` Engram layers; what was asked for ahead
  // and not begun is dropped. `image`: [tokens], 1 = image position.
  Status Ahead(std::span<const int32_t> tokens, std::span<const uint8_t> image,
               std::span<const Stretch> stretches,
               size_t n_layers = kAllLayers);
  // The same tokens become the current chunk, from which Take() hands out.
  Status Begin(std::span<const int32_t> tokens, std::span<const uint8_t> image,
               std::span<const Stretch> stretches,
               size_t n_layers = kAllLayers);
  // History behind a stretch of the current chunk.
  const engram::History& after(size_t stretch) const {
    return current_->after[stretch];
  }

  // Rows of some tokens, [tokens, columns].
  struct Rows {
    TableRows from;
    size_t tokens = 0;
  };
  // Waits for the rows of the current chunk's token `first` in Engram layer
  // `index` and gives those of as many tokens as have come, 1 to kMaxTaken, or
  // of the next kMaxTaken where the device is none of the host's;
  // valid until the next Begin(). Calls go through a layer's tokens in order,
  // and may do so again.
  // An error names table and row, and which of several sequences wanted it.
  Result<Rows> Take(size_t index, size_t first);

  // Rows need no waiting for: the device has the tables.
  bool resident() const { return resident_ != nullptr; }
  // They are read through the page cache, which as a rule has them: they come
  // in less time than asking for them takes.
  bool through_page_cache() const { return !resident() && !store_.io().direct; }
  // Where the rows lie of the chunk that Begin() makes current next, from its
  // token `first` on, in Engram layer `index`.
  TableRows NextRows(size_t index, size_t first) const {
    return RowsAt(*ahead_, index, first);
  }
  // Which of two places those of the current chunk are in, and of that one.
  size_t place() const { return static_cast<size_t>(current_ - chunks_); }
  size_t next_place() const { return 1 - place(); }

  // Of rows that were found broken when they were decoded: names the first
  // table and row of the current chunk that still is, as Take() does. Waits for
  // reads.
  Status BrokenRows();
  // The device itself waited for rows of the current chunk, for so long: what
  // the host waited was not in its way.
  void NoteWait(double seconds) { chunk_wait_ = seconds; }
  // The current chunk is done: its times are counted.
  void End();
  // Drops everything under way.
  void Cancel();

  // The Engram part of a session's counters.
  const SessionStats& stats() const { return stats_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Chunk {
    std::vector<int32_t> ids;  // compressed
    std::vector<Stretch> stretches;
    std::vector<engram::History> after;   // [stretches]
    std::vector<engram::Ticket> tickets;  // [layers, blocks]; 0 = none
    DeviceArray<uint8_t> rows;            // [layers, chunk, columns]
    DeviceArray<uint64_t> numbers;        // instead, of resident tables
    Clock::time_point submitted;
  };
  // How a layer's rows lie in a chunk.
  struct Layer {
    TableCodec codec = TableCodec::kBf16;
    size_t row_bytes = 0;
    size_t begin = 0;  // of the chunk's rows
  };

  EngramFetch(const engram::Hasher& hasher, engram::Store& store,
              const ResidentTables* resident, size_t chunk, bool decoded,
              ThreadPool& pool);
  Status Allocate(Device& device);
  size_t layers() const { return rows_.size(); }
  size_t BlockOf(const Chunk& chunk) const;
  size_t Blocks(const Chunk& chunk) const;
  uint64_t* Numbers(Chunk& chunk, size_t index);
  uint8_t* Place(Chunk& chunk, size_t index, size_t token) const;
  TableRows RowsAt(Chunk& chunk, size_t index, size_t token) const;
  bool IsFor(const Chunk& chunk, std::span<const Stretch> stretches,
             size_t n_layers) const;
  void Submit(std::span<const Stretch> stretches, size_t n_layers,
              Chunk* chunk);
  void Hash(Chunk* chunk);
  void CancelChunk(Chunk* chunk);
  Status Wait(size_t index, size_t block);
  bool Ready(engram::Ticket ticket) const {
    return ticket == 0 || store_.Ready(ticket);  // 0: taken before
  }
  Status ReadAgain(size_t index, size_t begin, size_t end);
  void CountRead(const engram::LookupStats& lookup);

  const engram::Hasher& hasher_;
  engram::Store& store_;
  const ResidentTables* const resident_;
  ThreadPool& pool_;
  const size_t chunk_;
  const size_t columns_;
  const engram::RowFormat format_;  // of the rows in chunks
  std::vector<Layer> places_;       // [layers]

  Chunk chunks_[2];
  Chunk* current_ = &chunks_[0];
  Chunk* ahead_ = &chunks_[1];

  std::vector<int32_t> ids_;                     // [chunk]
  std::vector<std::vector<uint64_t>> rows_;      // [layers][chunk, columns]
  std::vector<std::span<uint64_t>> rows_views_;  // of rows_
  std::vector<engram::LookupRequest> requests_;  // [layers, blocks]

  SessionStats stats_;
  double chunk_wait_ = 0;  // of the current chunk, seconds
  double chunk_read_ = 0;  // submission to last row
  Clock::time_point read_until_;
};

}  // namespace ecphory
