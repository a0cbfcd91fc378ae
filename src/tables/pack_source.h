// What `pack` copies from: tables whose rows can be had in row264 form.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ecphory/engram_tables.h"
#include "ecphory/status.h"
#include "engram/store.h"
#include "tables/direct_reader.h"
#include "tables/layouts.h"

namespace ecphory::tables {

// Immutable after Open; ReadRows is thread-safe for different workers.
class PackSource {
 public:
  // Tables of options.input, or those of options.tables and options.scales laid
  // out as options.input.config says. Refuses row formats that row264 does not
  // hold bit for bit.
  static Result<std::unique_ptr<PackSource>> Open(const PackOptions& options,
                                                  size_t workers);

  const TableNumbers& numbers() const { return numbers_; }
  // Every file that is read.
  std::vector<std::string> files() const;
  // What is read, for telling whether it is still the same.
  std::string identity() const;

  // Rows [row, ...) of table `table` that fill `out`, codes and scales
  // together. A damaged row is kCorrupt and names table, row and offset.
  Status ReadRows(size_t table, uint64_t row, std::span<uint8_t> out,
                  size_t worker) const;

 private:
  PackSource() = default;
  Status OpenInput(const TableInput& input);
  Status OpenFiles(const PackOptions& options);
  Status OpenReaders(size_t workers);
  Status CheckRows(size_t table, uint64_t row,
                   std::span<const uint8_t> rows) const;

  TableNumbers numbers_;
  std::vector<engram::TableSource> tables_;
  std::map<std::string, std::unique_ptr<DirectReader>> readers_;
  struct Buffers {
    AlignedBuffer codes;
    AlignedBuffer scales;
  };
  std::vector<std::unique_ptr<Buffers>> buffers_;  // one for each worker
};

}  // namespace ecphory::tables
