// Reading every byte of a set of tables once: damaged rows and checksums.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ecphory/engram_tables.h"
#include "ecphory/status.h"
#include "tables/chunks.h"
#include "tables/direct_reader.h"
#include "tables/journal.h"
#include "tables/row_scan.h"
#include "tables/table_set.h"

namespace ecphory::tables {

struct ChunkResult {
  uint64_t digest = 0;
  RowScan scan;  // empty for a header and padding
};

class Verifier {
 public:
  // `set` and `options` must outlive this.
  Verifier(const TableSet& set, std::vector<SourceRange> ranges,
           const VerifyOptions& options);

  // Reads what the state file does not have yet.
  Status Run();

  const std::vector<Region>& regions() const { return regions_; }
  const std::vector<Chunk>& chunks() const { return chunks_; }
  const std::vector<SourceRange>& ranges() const { return ranges_; }
  // Of every chunk, by number, after Run.
  const std::map<size_t, ChunkResult>& results() const { return results_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t resumed_bytes() const { return resumed_bytes_; }
  bool direct() const { return files_.begin()->second->direct(); }
  Status RemoveState() { return state_ ? state_->Remove() : Status(); }

 private:
  Status OpenFiles();
  std::string Signature() const;
  Status OpenState();
  Status Scan();
  Status Keep(size_t chunk, ChunkResult result);
  std::optional<RowScanner> ScannerOf(const SourceRange& range) const;
  Result<ChunkResult> ScanChunk(const Chunk& chunk, const AlignedBuffer& buffer,
                                ProgressMeter* meter);
  // Rows of the pair whose scales alone do not tell: read whole and decoded.
  Status SettleUnsure(const SourceRange& range, RowScanner* scanner) const;

  const TableSet& set_;
  const std::vector<SourceRange> ranges_;
  const VerifyOptions& options_;
  std::vector<Region> regions_;
  std::vector<Chunk> chunks_;
  uint64_t bytes_ = 0;
  uint64_t resumed_bytes_ = 0;
  std::map<std::string, std::unique_ptr<DirectReader>> files_;
  std::unique_ptr<Journal> state_;
  std::map<size_t, ChunkResult> results_;
  std::mutex mutex_;
  std::mutex meter_mutex_;
};

}  // namespace ecphory::tables
