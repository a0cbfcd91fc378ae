// A file as the read queues see it: one of a table file's descriptors.
#pragma once

#include <cstdint>
#include <memory>

#include "io/table_file.h"

namespace ecphory {

struct QueueFile {
  std::shared_ptr<const TableFile> file;
  // Reads past the page cache; only when file->direct() is a descriptor.
  bool direct = false;

  // -1: the file is read by ReadExact.
  int descriptor() const { return direct ? file->direct() : file->buffered(); }
  uint32_t alignment() const { return direct ? file->alignment() : 1; }
};

}  // namespace ecphory
