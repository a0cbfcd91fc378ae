// Opening a model: what it is, where its parts lie, what it will cost.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ecphory/config.h"
#include "ecphory/export.h"
#include "ecphory/status.h"
#include "ecphory/tokenizer.h"

namespace ecphory {

// One tensor of the file, as `ecphory info --tensors` lists it.
struct TensorFacts {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;  // outermost first
  std::string file;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool used = false;  // false: skipped by this engine
};

struct EngramTableFacts {
  uint32_t layer = 0;
  std::string tensor;
  std::string file;
  uint64_t offset = 0;
  std::string codec;  // "e4m3_e8m0_32_row264", "released pair"
  uint64_t rows = 0;
  uint64_t row_bytes = 0;  // read per row, scales included
  uint64_t bytes = 0;
  std::string scale_file;  // released pair only
  uint64_t scale_offset = 0;
};

// What a session will take, or a batch (ecphory/batch.h) with all its sessions,
// planned before anything large is touched. Bytes.
struct MemoryPlan {
  uint64_t mapped_weights = 0;  // file pages, evictable, tables excluded
  uint64_t copied_weights = 0;  // ModelOptions::weights "copy", in their place
  uint64_t resident_weights = 0;  // small tensors as fp32, places of the others
  uint64_t names = 0;             // tensor directory, tokenizer, token map
  uint64_t state_per_token = 0;   // compressed KV + index keys (exact in the
                                  // mean: fractions are rounded up per source)
  double state_per_token_exact = 0;  // 890 at released sizes
  uint64_t state_fixed = 0;          // windows, pending groups, history
  uint64_t state_context = 0;  // for `context` tokens, fixed part included
  uint64_t scratch = 0;        // activations of one chunk, and ids and logits
  // While a prompt skips layers (SessionOptions::prefill): the way back.
  uint64_t prefill_copy = 0;
  uint64_t operators = 0;       // what operators keep, over all threads
  uint64_t engram_tables = 0;   // ModelOptions::engram_place "host"
  uint64_t engram_cache = 0;    // rows that are kept, at most
  uint64_t engram_reading = 0;  // buffers of reads in flight: a page each until
                                // the model is opened, then as allocated
  uint32_t context = 0;
  uint32_t chunk = 0;
  uint32_t sequences = 1;  // whose states these are, one and the same scratch
  uint32_t threads = 0;
  // What the process allocates.
  uint64_t Total() const {
    return copied_weights + resident_weights + names + engram_tables +
           engram_cache + engram_reading + Session();
  }
  // Of that, what the session takes, or the batch.
  uint64_t Session() const {
    return sequences * state_context + scratch + prefill_copy + operators;
  }
};

struct ModelInfo {
  std::string path;
  std::string format;   // "gguf" or "safetensors"
  std::string dialect;  // GGUF: "ds4" / "llama.cpp"; else ""
  ModelConfig config;
  uint64_t parameters_backbone = 0;
  uint64_t parameters_active = 0;  // per token, Engram rows not counted
  uint64_t parameters_engram = 0;  // tables, projections and gate weights
  std::vector<TensorFacts> tensors;
  std::vector<EngramTableFacts> engram_tables;
  // Tensors the engine does not use, by group ("mtp.*", "vision.*"): count,
  // bytes.
  struct UnusedGroup {
    std::string group;
    uint64_t tensors = 0;
    uint64_t bytes = 0;
  };
  std::vector<UnusedGroup> unused;
  bool has_tokenizer = false;
  std::string tokenizer;  // "byte-level BPE, 8192 tokens, ..."
  uint32_t compressed_vocab = 0;
  MemoryPlan memory;
};

struct ModelOptions {
  uint32_t threads = 0;          // 0 = processors this process may run on
  std::string backend = "auto";  // "cpu", "ref", "cuda", "cuda:N"
  // Where the Engram tables lie: on "disk", from which rows are read as tokens
  // need them; whole in memory of the process, "host" (pinned for a GPU, which
  // takes the rows from there itself); or whole in the memory of the "gpu".
  // What has not the room is refused before anything is loaded.
  std::string engram_place = "disk";
  // How Engram rows come from disk: "auto" (measured, once, when the model is
  // opened), "uring", "pread", "buffered" or "mmap". What the system does not
  // allow is replaced by what it does: Model::engram_io().
  std::string engram_io = "auto";
  uint32_t engram_io_threads = 16;    // 1..256; readers of "pread"
  uint32_t engram_queue_depth = 256;  // 1..4096; reads in flight
  // Bytes of rows kept in memory, shared by all sessions; 0: none. Unset: 64
  // MiB, or none where "auto" finds that the page cache holds the tables.
  std::optional<uint64_t> engram_cache_bytes = std::nullopt;
  // Which processors compute: "none" (wherever the system puts the threads),
  // "auto" (one thread a processor, cores before their second threads) or a
  // list, "0-7,16-23", which also is the default of `threads`. A thread that
  // opens the model or appends to a session is bound to the first of them
  // meanwhile; threads that read Engram rows are not bound.
  std::string cpu_affinity = "none";
  // "map": weights are pages of the mapped files, which the system may take
  // back and which cost no time to open. "copy": they are read into memory of
  // the process, in large pages, each part by the thread that will use it.
  std::string weights = "map";
  // Of "copy", and of Engram tables that are not left on disk: bytes read and
  // in all; returning false cancels.
  std::function<bool(uint64_t done, uint64_t total)> on_load = {};
};

// Where Engram rows are, how they are read, and why so.
struct EngramIoFacts {
  std::string place;      // as in ModelOptions; "" without Engram
  std::string mode;       // likewise, never "auto"; "" unless they are on disk
  bool direct = false;    // past the page cache, which tables then never fill
  bool fallback = false;  // what was asked for, or is best, was not allowed
  uint64_t cache_bytes = 0;  // that kept rows may take; 0: none are kept
  std::string reason;        // one line for people
};

// Rows one token wakes in one Engram layer.
struct EngramTokenRows {
  uint32_t layer = 0;
  std::vector<uint64_t> rows;  // [columns], n-gram size major, head minor
};

struct SessionOptions;

// A loaded model: weights mapped, tables open but outside every mapping.
// Immutable and thread-safe; sessions share it.
class ECPHORY_EXPORT Model {
 public:
  // `path` is a .gguf file or a released-layout directory.
  static Result<std::shared_ptr<const Model>> Open(const std::string& path,
                                                   const ModelOptions& options);
  ~Model();

  const ModelConfig& config() const;
  const ModelInfo& info() const;
  // Null when the model carries none.
  const Tokenizer* tokenizer() const;
  const char* backend() const;  // "cpu (AVX3_DL)", "ref"
  uint32_t threads() const;
  const EngramIoFacts& engram_io() const;
  // What a session of these options takes, or a batch of so many sequences,
  // beside this model as it was opened.
  MemoryPlan PlanMemory(const SessionOptions& options,
                        uint32_t sequences = 1) const;

  // Raw id -> compressed id; empty when the model has no Engram.
  std::span<const int32_t> token_map() const;
  // Rows of every token of a fresh sequence, [tokens][layers]. Image positions
  // are those of `image_mask`, which may be empty, and every image token.
  Result<std::vector<std::vector<EngramTokenRows>>> EngramRows(
      std::span<const int32_t> tokens,
      std::span<const uint8_t> image_mask) const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Reads headers only: nothing is mapped and no table is touched. `context`,
// `chunk` (0 = the session defaults) and `sequences` size the memory plan;
// `options` says how the model would be opened (threads, weights, Engram
// cache).
ECPHORY_EXPORT Result<ModelInfo> InspectModel(const std::string& path,
                                              uint32_t context, uint32_t chunk,
                                              const ModelOptions& options = {},
                                              uint32_t sequences = 1);

}  // namespace ecphory
