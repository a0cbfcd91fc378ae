// The memory as one object: hasher and store over the tables of a file, for
// whoever embeds it. docs/engram-library.md shows it at work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ecphory/status.h"
#include "engram/hasher.h"
#include "engram/source.h"
#include "engram/store.h"

namespace ecphory::engram {

struct MemoryOptions {
  SourceOptions source;
  StoreOptions store;
};

// Rows of a sequence's next tokens: rows is [layers, tokens, columns]. dead[i]
// != 0 marks an image position or padding; empty: none. On an error `history`
// is as before. Allocates nothing up to 16 layers.
Status HashTokens(const Hasher& hasher, std::span<const int32_t> tokens,
                  std::span<const uint8_t> dead, History* history,
                  std::span<uint64_t> rows);

// Thread-safe; a sequence is a History that its owner keeps.
class Memory {
 public:
  // `path`: a GGUF file, a released directory or raw rows (engram/source.h).
  static Result<std::unique_ptr<Memory>> Open(const std::string& path,
                                              const MemoryOptions& options);

  const Source& source() const { return source_; }
  const Hasher& hasher() const { return *hasher_; }
  // The same, for sequences that may outlive the memory.
  std::shared_ptr<const Hasher> shared_hasher() const { return hasher_; }
  const Layout& layout() const { return hasher_->layout(); }
  Store& store() { return *store_; }
  const Store& store() const { return *store_; }

  size_t tables() const { return layout().layers.size(); }
  uint32_t columns() const { return layout().columns(); }
  uint32_t width() const { return source_.config.head_dim; }
  // Bytes of one row in a lookup's output.
  size_t RowBytes(size_t table, RowFormat format) const;

  // HashTokens with this memory's hasher: rows is [tables, tokens, columns].
  Status Hash(std::span<const int32_t> tokens, std::span<const uint8_t> dead,
              History* history, std::span<uint64_t> rows) const {
    return HashTokens(*hasher_, tokens, dead, history, rows);
  }

  // Decodes rows that a lookup gave as kRaw: raw is [rows, RowBytes(kRaw)], out
  // [rows, RowBytes(format)]. kCorrupt names the first damaged one by its place
  // in `raw`.
  Status Decode(size_t table, std::span<const uint8_t> raw, RowFormat format,
                std::span<uint8_t> out) const;

 private:
  Memory() = default;

  Source source_;
  std::shared_ptr<const Hasher> hasher_;
  std::unique_ptr<Store> store_;
};

}  // namespace ecphory::engram
