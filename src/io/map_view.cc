#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "io/bus_guard.h"
#include "io/errno_status.h"
#include "io/file_internal.h"
#include "io/file_view.h"
#include "io/view_range.h"

namespace ecphory {

namespace {

// 512-byte blocks that this thread had read from disk so far.
int64_t BlocksRead() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_inblock;
}

class MapView : public FileView {
 public:
  MapView(std::shared_ptr<const TableFile> file, uint64_t offset)
      : file_(std::move(file)), offset_(offset) {}
  ~MapView() override {
    if (base_ != nullptr) ::munmap(base_, lead_ + bytes_.size());
  }

  Status Map(uint64_t size);

 protected:
  Status VisitAll(std::span<const ViewRange> ranges, Call call, void* visitor,
                  size_t* failed) const override;

 private:
  void Prefetch(std::span<const ViewRange> ranges) const;
  const uint8_t* At(uint64_t offset) const {
    return bytes_.data() + (offset - offset_);
  }
  Status Lost(const ViewRange& range) const;

  const std::shared_ptr<const TableFile> file_;
  const uint64_t offset_;
  void* base_ = nullptr;
  size_t lead_ = 0;  // from the page boundary to `bytes_`
  std::span<const uint8_t> bytes_;
  // Whether the last batch had to read from disk. Asking for pages that are
  // there costs more than the rest of a batch.
  mutable std::atomic<bool> cold_{true};
};

Status MapView::Map(uint64_t size) {
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  lead_ = offset_ % page;
  if (size == 0) return Status::Ok();
  void* base = ::mmap(nullptr, lead_ + size, PROT_READ, MAP_SHARED,
                      file_->buffered(), static_cast<off_t>(offset_ - lead_));
  if (base == MAP_FAILED) {
    return FileError(errno, file_->path(), "map into memory");
  }
  base_ = base;
  bytes_ = {static_cast<const uint8_t*>(base) + lead_,
            static_cast<size_t>(size)};
  // Rows are scattered: pages around them would be read for nothing.
  ::madvise(base_, lead_ + size, MADV_RANDOM);
  return Status::Ok();
}

void MapView::Prefetch(std::span<const ViewRange> ranges) const {
  const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  uintptr_t asked_end = 0;
  for (const ViewRange& range : ranges) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(At(range.offset));
    const uintptr_t begin = std::max(at / page * page, asked_end);
    const uintptr_t end = (at + range.bytes + page - 1) / page * page;
    if (begin >= end) continue;
    // Starts the read and does not wait.
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
    if (at >= asked_end) asked_end = end;
  }
}

Status MapView::Lost(const ViewRange& range) const {
  ECPHORY_RETURN_IF_ERROR(file_->CheckSize());
  return IoError("%s: cannot read %u mapped bytes at offset %llu",
                 file_->path().c_str(), range.bytes,
                 static_cast<unsigned long long>(range.offset));
}

Status MapView::VisitAll(std::span<const ViewRange> ranges, Call call,
                         void* visitor, size_t* failed) const {
  *failed = 0;
  ECPHORY_RETURN_IF_ERROR(
      CheckViewRanges(file_->path(), ranges, offset_, bytes_.size(), failed));
  ECPHORY_RETURN_IF_ERROR(file_->CheckSize());
  const int64_t blocks = BlocksRead();
  if (cold_.load(std::memory_order_relaxed)) Prefetch(ranges);

  struct Batch {
    const MapView* view;
    std::span<const ViewRange> ranges;
    Call call;
    void* visitor;
    volatile size_t done;
  } batch{this, ranges, call, visitor, 0};
  const auto body = [](void* context) {
    Batch* b = static_cast<Batch*>(context);
    for (size_t i = 0; i < b->ranges.size(); ++i) {
      b->call(b->visitor, i, b->view->At(b->ranges[i].offset));
      b->done = i + 1;
    }
  };
  const bool whole = RunGuarded(bytes_, body, &batch);
  cold_.store(BlocksRead() != blocks, std::memory_order_relaxed);
  // Past the end of a file that was cut meanwhile the last page holds zeros.
  if (whole) return file_->CheckSize();
  *failed = batch.done;
  return Lost(ranges[batch.done]);
}

}  // namespace

Result<std::unique_ptr<FileView>> MakeMapView(
    std::shared_ptr<const TableFile> file, uint64_t offset, uint64_t size) {
  ECPHORY_RETURN_IF_ERROR(CheckRange(file->path(), file->size(), offset, size));
  if (file->buffered() < 0) {
    return Unsupported("%s: %s and cannot be mapped", file->path().c_str(),
                       file->direct_refusal().c_str());
  }
  ECPHORY_RETURN_IF_ERROR(InstallBusGuard());
  auto view = std::make_unique<MapView>(std::move(file), offset);
  ECPHORY_RETURN_IF_ERROR(view->Map(size));
  return std::unique_ptr<FileView>(std::move(view));
}

}  // namespace ecphory
