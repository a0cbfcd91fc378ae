#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/checked_math.h"
#include "io/errno_status.h"
#include "io/file_internal.h"
#include "io/file_view.h"
#include "io/memory_facts.h"
#include "io/view_range.h"

namespace ecphory {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// Large enough for a disk's full rate, small enough for progress to be seen.
constexpr size_t kPiece = size_t{16} << 20;
// Left to everybody else.
constexpr uint64_t kSpareBytes = uint64_t{256} << 20;

class RamView : public FileView {
 public:
  RamView(std::string path, uint64_t offset, uint64_t size)
      : path_(std::move(path)), offset_(offset), size_(size) {}
  ~RamView() override {
    if (base_ != nullptr) ::munmap(base_, mapped_);
  }

  Status Allocate(uint32_t alignment);
  Status Fill(const TableFile& file, const RamProgress& progress);

 protected:
  Status VisitAll(std::span<const ViewRange> ranges, Call call, void* visitor,
                  size_t* failed) const override {
    *failed = 0;
    ECPHORY_RETURN_IF_ERROR(
        CheckViewRanges(path_, ranges, offset_, size_, failed));
    for (size_t i = 0; i < ranges.size(); ++i) {
      call(visitor, i, bytes_ + lead_ + (ranges[i].offset - offset_));
    }
    return Status::Ok();
  }

 private:
  // Fills memory [at, at + bytes) of what starts at file offset `offset_ -
  // lead_`; bytes past the end of the file stay 0.
  Status ReadPiece(const TableFile& file, size_t at, size_t bytes);

  const std::string path_;
  const uint64_t offset_;
  const uint64_t size_;
  void* base_ = nullptr;
  size_t mapped_ = 0;
  uint8_t* bytes_ = nullptr;  // at a huge page's boundary
  size_t lead_ = 0;           // from there to the byte at `offset_`
};

Status CheckMemory(const std::string& path, uint64_t bytes) {
  const auto available = AvailableMemory();
  if (!available ||
      (bytes <= *available && *available - bytes >= kSpareBytes)) {
    return Status::Ok();
  }
  return ResourceExhausted(
      "%s: a copy in memory takes %.1f GiB, and %.1f GiB are available",
      path.c_str(), static_cast<double>(bytes) / (1 << 30),
      static_cast<double>(*available) / (1 << 30));
}

Status RamView::Allocate(uint32_t alignment) {
  lead_ = offset_ % alignment;
  uint64_t bytes = 0;
  // Direct reads end at a multiple of the alignment.
  if (!CheckedAlignUp(size_ + lead_, std::max<size_t>(alignment, 4096),
                      &bytes) ||
      !CheckedAdd(bytes, kHugePage, &bytes)) {
    return OutOfRange("%s: no memory is that large", path_.c_str());
  }
  ECPHORY_RETURN_IF_ERROR(CheckMemory(path_, bytes));
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return FileError(errno, path_, "allocate memory");
  base_ = base;
  mapped_ = bytes;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(base);
  bytes_ = reinterpret_cast<uint8_t*>((begin + kHugePage - 1) / kHugePage *
                                      kHugePage);
  // Scattered rows miss the TLB half as long with huge pages. May be refused.
  ::madvise(base, bytes, MADV_HUGEPAGE);
  return Status::Ok();
}

Status RamView::ReadPiece(const TableFile& file, size_t at, size_t bytes) {
  const uint64_t from = offset_ - lead_ + at;
  const size_t wanted = std::min<uint64_t>(bytes, file.size() - from);
  const std::span<uint8_t> out(bytes_ + at, wanted);
  if (file.direct() < 0) return file.file().ReadExact(from, out);
  // Past a short count the next read would no longer be aligned.
  const ssize_t got =
      ::pread(file.direct(), out.data(), bytes, static_cast<off_t>(from));
  if (got >= 0 && static_cast<size_t>(got) >= wanted) return Status::Ok();
  return file.file().ReadExact(from, out);
}

Status RamView::Fill(const TableFile& file, const RamProgress& progress) {
  const size_t end = lead_ + size_;
  const size_t align = file.alignment();
  for (size_t at = 0; at < end; at += kPiece) {
    const size_t bytes =
        (std::min(kPiece, end - at) + align - 1) / align * align;
    ECPHORY_RETURN_IF_ERROR(ReadPiece(file, at, bytes));
    const uint64_t done = std::min<uint64_t>(at + bytes, end);
    if (progress && !progress(done - std::min<uint64_t>(done, lead_), size_)) {
      return Cancelled("%s: copying to memory was stopped", path_.c_str());
    }
  }
  ::mprotect(base_, mapped_, PROT_READ);
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<FileView>> MakeRamView(const TableFile& file,
                                              uint64_t offset, uint64_t size,
                                              const RamProgress& progress) {
  ECPHORY_RETURN_IF_ERROR(CheckRange(file.path(), file.size(), offset, size));
  auto view = std::make_unique<RamView>(file.path(), offset, size);
  ECPHORY_RETURN_IF_ERROR(view->Allocate(file.alignment()));
  ECPHORY_RETURN_IF_ERROR(view->Fill(file, progress));
  return std::unique_ptr<FileView>(std::move(view));
}

}  // namespace ecphory
