// The memory's rows for a pass: asked for as soon as token ids are known,
// handed to the layers block by block.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ecphory/session.h"
#include "engram/hasher.h"
#include "engram/lookup.h"
#include "engram/store.h"
#include "ops/device_array.h"

namespace ecphory {

// Rows of up to two chunks are under way: those of the chunk being computed and
// those of the one after it. Which rows a chunk needs follows from its
// compressed ids and the history before them, so that rows read early are taken
// when both are the same, whatever happened in between, and dropped when not.
// A chunk may hold tokens of several sequences, each with a history of its own;
// their rows are asked for together, and each is read once.
//
// Bounded: two chunks of bf16 values. Allocates nothing
// per call. Not thread-safe.
class EngramFetch {
 public:
  // Tokens of one ticket: few enough that the first layer starts early, many
  // enough that the store's bookkeeping is noise.
  static constexpr size_t kBlock = 64;
  // Tokens handed out together when they are there: as many as one unpacking
  // of the projection's weights serves.
  static constexpr size_t kMaxTaken = 128;
  static constexpr size_t kAllLayers = SIZE_MAX;

  // Bytes held for chunks of `chunk` tokens: row values, numbers and the
  // store's lookups of those in use and of those read ahead. A token has
  // `columns` rows of `width` values in each of `layers` layers.
  static constexpr uint64_t BufferBytes(uint64_t layers, uint64_t columns,
                                        uint64_t width, uint64_t chunk) {
    const uint64_t values = columns * width;
    return 2 * layers * chunk *
               (values * sizeof(uint16_t) +
                columns * engram::Lookup::kBytesPerRow) +
           layers * chunk * columns * sizeof(uint64_t) +
           3 * chunk * sizeof(int32_t);
  }

  // Tokens of a chunk that continue one sequence.
  struct Stretch {
    size_t tokens = 0;
    engram::History before;
  };

  // For chunks of at most `chunk` tokens. kResourceExhausted when there is not
  // so much memory that `device` shares.
  static Result<std::unique_ptr<EngramFetch>> Create(
      const engram::Hasher& hasher, engram::Store& store, size_t chunk,
      Device& device);
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

  // Values of some tokens.
  struct Rows {
    // [tokens, columns * row values] bf16, in memory that the device shares
    const uint16_t* values = nullptr;
    size_t tokens = 0;
  };
  // Waits for the rows of the current chunk's token `first` in Engram layer
  // `index` and gives those of as many tokens as have come, 1 to kMaxTaken;
  // valid until the next Begin(). Calls go through a layer's tokens in order.
  // An error names table and row, and which of several sequences wanted it.
  Result<Rows> Take(size_t index, size_t first);

  // Where the rows of a token in Engram layer `index` lie: of the current
  // chunk, and of the one that Begin() makes current next.
  const uint16_t* RowsOf(size_t index, size_t token) const {
    return Values(*current_, index, token);
  }
  const uint16_t* NextRowsOf(size_t index, size_t token) const {
    return Values(*ahead_, index, token);
  }

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
    // bf16 [layers, chunk, columns * row values]
    DeviceArray<uint16_t> values;
    Clock::time_point submitted;
  };

  EngramFetch(const engram::Hasher& hasher, engram::Store& store, size_t chunk);
  size_t layers() const { return rows_.size(); }
  static size_t Blocks(const Chunk& chunk);
  uint16_t* Values(Chunk& chunk, size_t index, size_t token) const;
  bool IsFor(const Chunk& chunk, std::span<const Stretch> stretches,
             size_t n_layers) const;
  void Submit(std::span<const Stretch> stretches, size_t n_layers,
              Chunk* chunk);
  void Hash(Chunk* chunk);
  void CancelChunk(Chunk* chunk);
  Status Wait(size_t index, size_t block);
  Status NameSequence(size_t index, size_t block, Status status);
  void CountRead(const engram::LookupStats& lookup);

  const engram::Hasher& hasher_;
  engram::Store& store_;
  const size_t chunk_;
  const size_t columns_;
  size_t values_per_token_ = 0;  // of one layer

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
