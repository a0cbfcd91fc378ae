// Everything one sequence remembers: windows, compressed entries, open groups,
// the n-gram history, and what is needed to step back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ecphory/config.h"
#include "ecphory/session.h"
#include "engram/hasher.h"
#include "ops/device_array.h"
#include "tensor/row_codec.h"

namespace ecphory {

// The packed formats a session keeps its rows in; fp32 when the model's
// rounding steps are switched off.
struct CacheFormats {
  RowFormat window = RowFormat::kFp8Block32;
  RowFormat latent = RowFormat::kFp4Block16;
  RowFormat index_key = RowFormat::kFp4Block32;
  static CacheFormats For(bool state_rounding);
};

// Packed rows of one width in a device's memory. Used as a ring (position p in
// row p % capacity) or as an array.
struct RowCache {
  RowFormat format = RowFormat::kF32;
  size_t dim = 0;
  size_t row_bytes = 0;
  uint64_t capacity = 0;
  DeviceArray<uint8_t> bytes;  // [capacity, row_bytes]

  static Result<RowCache> Create(Device& device, RowFormat format, size_t dim,
                                 uint64_t capacity);
  // Copies of rows first .. first + count of the ring, `count` at most its
  // capacity, while no queue uses them; `rows`: [count, row_bytes].
  Status Read(uint64_t first, uint64_t count, uint8_t* rows) const;
  Status Write(uint64_t first, uint64_t count, const uint8_t* rows);
};

// What one KV source publishes.
struct SourceCache {
  uint32_t layer = 0;
  uint32_t ratio = 0;
  RowCache latents;     // [context / ratio]
  RowCache index_keys;  // [context / ratio]
  // fp32 kv and gate rows of recent tokens (ratio >= 2): groups still open, and
  // `chunk` tokens back so that Truncate can reopen one. Empty at ratio 1.
  RowCache open_kv;  // ring [chunk + ratio]
  RowCache open_gate;
};

// A sequence's logits in the memory of the passes that made them (Forward),
// which has them fetched before another pass takes their place.
struct DeviceLogits {
  const float* at = nullptr;  // [vocab] of the device, null: no longer
  bool fetched = false;       // they are, or have been, on the host
  std::vector<float> host;    // where the sequence has not taken them since
};

class SequenceState {
 public:
  // kResourceExhausted names the bytes when the caches do not fit.
  static Result<SequenceState> Create(const ModelConfig& config,
                                      const SessionOptions& options,
                                      Device& device);

  // Rows of a window ring: W for attention, `chunk` more so that a whole chunk
  // can be written before it is read, and for stepping back.
  static uint64_t WindowCapacity(const ModelConfig& config, uint32_t chunk) {
    return uint64_t{config.sliding_window} + chunk;
  }

  // Rows of a ring of open groups: one capacity for all sources, so that they
  // reach back equally far. Sources of ratio 1 have none.
  static uint64_t OpenRows(const ModelConfig& config, uint32_t chunk) {
    return uint64_t{chunk} + *std::max_element(config.compress_ratios.begin(),
                                               config.compress_ratios.end());
  }

  // Which of `sources` the layer reads: the last KV source up to it.
  static size_t SourceIndex(const ModelConfig& config, uint32_t layer);
  SourceCache& SourceOf(const ModelConfig& config, uint32_t layer) {
    return sources[SourceIndex(config, layer)];
  }

  // Rings hold `chunk` tokens more than a step needs, so that is how far back a
  // sequence can go.
  uint64_t EarliestTruncation() const;
  // `position` must be allowed (EarliestTruncation() or more, or 0).
  void TruncateTo(uint64_t position);
  // Marks `count` positions from `position` on as written in the rings.
  void NoteWritten(uint64_t count);
  // From now on nothing before `earliest` may be gone back to (but 0).
  void ForgetBefore(uint64_t earliest);

  // What continuing at a position needs and later passes overwrite: a window of
  // every layer, the open groups, and the small parts. 2.7 MB in the release.
  struct Checkpoint {
    uint64_t position = 0;
    int32_t published_keys = -1;
    engram::History history;
    std::vector<float> logits;  // as the host has them
    std::vector<uint8_t> rows;
  };
  Result<Checkpoint> Save() const;
  // Of the one that a session of such options saves at a position.
  static uint64_t CheckpointBytes(const ModelConfig& config,
                                  const SessionOptions& options,
                                  uint64_t position);
  // Back to the checkpoint's position from any later one; EarliestTruncation()
  // is that position then. No step back to before it may lie in between.
  Status Return(Checkpoint checkpoint);

  uint64_t bytes() const;

  // Of this process, never given again.
  uint64_t id = 0;
  uint64_t context = 0;
  uint32_t chunk = 0;
  bool state_rounding = true;
  uint64_t position = 0;
  // Highest position ever written since the last reset: what lies `capacity`
  // rows behind it is gone from the rings.
  uint64_t written = 0;
  std::vector<int32_t> tokens;    // [position]
  std::vector<uint8_t> image;     // [position] 1 = image position
  std::vector<RowCache> windows;  // [n_layers]
  std::vector<SourceCache> sources;
  // Index of the source whose keys were published last (IndexKeys::kVendor),
  // -1 before the first.
  int32_t published_keys = -1;
  engram::History history;
  // [vocab] of the last token, or null and empty: where a device that is none
  // of the host has them, and, once they have been fetched, on the host.
  std::shared_ptr<DeviceLogits> device_logits;
  std::vector<float> logits;
};

}  // namespace ecphory
