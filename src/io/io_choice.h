// Which way into the tables: what is allowed, what is fastest, and why.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ecphory/status.h"
#include "io/io_mode.h"
#include "io/io_probe.h"
#include "io/make_queue.h"
#include "io/read_queue.h"
#include "io/table_file.h"

namespace ecphory {

struct IoRequest {
  IoMode mode = IoMode::kAuto;
  std::span<const std::shared_ptr<const TableFile>> files;
  std::span<const TableRange> tables;  // each lies within its file
  uint32_t row_bytes = 264;
  QueueOptions queue = {};
  // kAuto: the longest that measuring may take. 0: no measuring.
  double probe_seconds = 1.0;
};

struct IoChoice {
  IoMode mode = IoMode::kPread;  // never kAuto
  bool direct = false;           // the page cache is left alone
  // Something was denied that was asked for or would have been better.
  bool fallback = false;
  // kAuto chose the page cache because it holds all of the tables.
  bool page_cache_holds = false;
  std::unique_ptr<ReadQueue> queue;  // null for kMmap and kRam
  // One line for people: what is used and why, or what was denied and what is
  // used instead.
  std::string reason;
};

// A way that is denied is no error: the next best one is used and `reason`
// says so. kAuto: small tables go through the page cache, and so do those on a
// file system that refuses O_DIRECT; all others by the faster of the ways that
// leave the page cache alone, measured in turns until the order is clear. Fails
// only when threads are refused. Whether a table fits into memory (kRam) is
// checked when it is copied, not here.
Result<IoChoice> ChooseIo(const IoRequest& request);

// Whether the page cache will hold tables of `table_bytes`, so that nothing
// need be measured: at most 1 GiB and an eighth of the available memory.
bool TablesAreSmall(uint64_t table_bytes, uint64_t available_bytes);

}  // namespace ecphory
