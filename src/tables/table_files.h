// The files under a set of tables, opened for measuring.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ecphory/status.h"
#include "io/io_probe.h"
#include "io/table_file.h"
#include "tables/read_probe.h"
#include "tables/table_set.h"

namespace ecphory::tables {

struct TableFiles {
  std::vector<std::shared_ptr<const TableFile>> files;
  std::vector<ProbeRange> ranges;  // of every table and its scales

  std::vector<TableRange> TableRanges() const;
  uint64_t bytes() const;     // of all ranges
  uint64_t Resident() const;  // bytes of them in the page cache
  Status Drop() const;        // asks the kernel to forget them
};

Result<TableFiles> OpenTableFiles(const TableSet& set);

}  // namespace ecphory::tables
