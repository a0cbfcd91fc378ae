// A range of a file that can be looked at in place: mapped, or copied to RAM.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>

#include "ecphory/status.h"
#include "io/table_file.h"

namespace ecphory {

// Bytes of the file, at an offset of the file.
struct ViewRange {
  uint64_t offset = 0;
  uint32_t bytes = 0;
};

// Thread-safe; any number of Visit calls may run at once. None allocates.
class FileView {
 public:
  virtual ~FileView() = default;
  FileView(const FileView&) = delete;
  FileView& operator=(const FileView&) = delete;

  // Calls visit(i, bytes) for each range in order, with its bytes in place.
  // `visit` copies or decodes; it must own, lock and allocate nothing, since a
  // page that cannot be had leaves it in its middle. Fails with kOutOfRange (a
  // range outside the view), kCorrupt (a file that was cut) or kIoError; then
  // *failed is the index of the range at fault, and of the others some may have
  // been visited.
  template <typename Visitor>
  Status Visit(std::span<const ViewRange> ranges, Visitor&& visit,
               size_t* failed) const {
    using Bare = std::remove_reference_t<Visitor>;
    return VisitAll(
        ranges,
        [](void* visitor, size_t i, const uint8_t* bytes) {
          (*static_cast<Bare*>(visitor))(i, bytes);
        },
        const_cast<void*>(static_cast<const void*>(&visit)), failed);
  }

 protected:
  using Call = void (*)(void* visitor, size_t index, const uint8_t* bytes);

  FileView() = default;
  virtual Status VisitAll(std::span<const ViewRange> ranges, Call call,
                          void* visitor, size_t* failed) const = 0;
};

// Maps [offset, offset + size) and nothing else; pages come as they are
// touched, and before that together where a batch is not in the page cache.
// Needs a file with a descriptor (kUnsupported). The page cache holds what was
// touched.
Result<std::unique_ptr<FileView>> MakeMapView(
    std::shared_ptr<const TableFile> file, uint64_t offset, uint64_t size);

// Bytes copied so far, of how many; false stops (kCancelled). May be null.
using RamProgress = std::function<bool(uint64_t done, uint64_t size)>;

// Copies [offset, offset + size) to memory of huge pages, past the page cache
// where O_DIRECT is allowed. kResourceExhausted names what is needed and what
// is there. The file is not needed afterwards.
Result<std::unique_ptr<FileView>> MakeRamView(const TableFile& file,
                                              uint64_t offset, uint64_t size,
                                              const RamProgress& progress);

}  // namespace ecphory
