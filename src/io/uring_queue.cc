#include "io/uring_queue.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "io/uring_ring.h"

namespace ecphory {

namespace {

int EnterKernel(int ring, unsigned to_submit, unsigned min_complete,
                unsigned flags) {
  return io_uring_enter(static_cast<unsigned>(ring), to_submit, min_complete,
                        flags, nullptr);
}

// The kernel is short of memory or wants completions taken first.
bool TryLater(int error) {
  return error == EAGAIN || error == EBUSY || error == ENOMEM;
}

class UringQueue : public ReadQueue {
 public:
  UringQueue(std::vector<QueueFile> files, const UringOptions& options)
      : files_(std::move(files)),
        depth_(options.depth),
        enter_(options.enter != nullptr ? options.enter : EnterKernel) {}
  ~UringQueue() override;

  Status Open();

  const char* name() const override { return "uring"; }
  uint32_t depth() const override { return depth_; }
  uint32_t alignment(uint32_t file) const override {
    return files_[file].alignment();
  }
  bool RegisterMemory(std::span<uint8_t> memory) override;
  Result<size_t> Submit(std::span<const QueuedRead> reads) override;
  Result<size_t> Reap(std::span<CompletedRead> done, size_t min) override;

 private:
  bool IsRegistered(const QueuedRead& read) const;
  void Prepare(const QueuedRead& read, io_uring_sqe* sqe) const;
  // Gives the kernel the `count` published submissions; *error is what it said
  // when it took fewer.
  uint32_t Start(uint32_t count, int* error);
  size_t Take(std::span<CompletedRead> done);

  const std::vector<QueueFile> files_;
  const uint32_t depth_;
  const UringEnter enter_;
  UringRing ring_;
  std::vector<int> descriptors_;
  bool registered_ = false;    // the files
  std::span<uint8_t> memory_;  // registered
  bool any_buffered_ = false;
  // Never above `depth_`, so that the completion ring cannot overflow.
  std::atomic<uint32_t> in_flight_{0};
};

UringQueue::~UringQueue() {
  CompletedRead done[64];
  while (in_flight_.load() > 0) {
    const auto got = Reap(done, 1);
    if (!got.ok()) break;
  }
}

Status UringQueue::Open() {
  ECPHORY_RETURN_IF_ERROR(ring_.Open(depth_));
  for (const QueueFile& file : files_) {
    descriptors_.push_back(file.descriptor());
    any_buffered_ = any_buffered_ || !file.direct;
  }
  registered_ = ring_.RegisterFiles(descriptors_);
  return Status::Ok();
}

bool UringQueue::RegisterMemory(std::span<uint8_t> memory) {
  ECPHORY_CHECK(memory_.empty());
  if (memory.empty() || !ring_.RegisterMemory(memory)) return false;
  memory_ = memory;
  return true;
}

bool UringQueue::IsRegistered(const QueuedRead& read) const {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory_.data());
  const uintptr_t at = reinterpret_cast<uintptr_t>(read.buffer);
  return at >= begin && read.bytes <= memory_.size() &&
         at - begin <= memory_.size() - read.bytes;
}

void UringQueue::Prepare(const QueuedRead& read, io_uring_sqe* sqe) const {
  const int file =
      registered_ ? static_cast<int>(read.file) : descriptors_[read.file];
  if (IsRegistered(read)) {
    io_uring_prep_read_fixed(sqe, file, read.buffer, read.bytes, read.offset,
                             0);
  } else {
    io_uring_prep_read(sqe, file, read.buffer, read.bytes, read.offset);
  }
  sqe->flags = registered_ ? IOSQE_FIXED_FILE : 0;
  sqe->user_data = read.tag;
}

uint32_t UringQueue::Start(uint32_t count, int* error) {
  uint32_t started = 0;
  while (started < count) {
    const int got = enter_(ring_.descriptor(), count - started, 0, 0);
    if (got > 0) {
      started += static_cast<uint32_t>(got);
    } else if (got != -EINTR) {
      *error = -got;
      break;
    }
  }
  return started;
}

Result<size_t> UringQueue::Submit(std::span<const QueuedRead> reads) {
  const uint32_t room = depth_ - in_flight_.load(std::memory_order_acquire);
  const uint32_t count =
      static_cast<uint32_t>(std::min<size_t>(reads.size(), room));
  if (count == 0) return size_t{0};
  for (uint32_t i = 0; i < count; ++i) Prepare(reads[i], ring_.Next(i));
  // Counted first: a completion may be reaped before the call returns.
  in_flight_.fetch_add(count, std::memory_order_acq_rel);
  ring_.Publish(count);
  int error = 0;
  const uint32_t started = Start(count, &error);
  if (started == count) return size_t{count};
  ring_.Withdraw();
  in_flight_.fetch_sub(count - started, std::memory_order_acq_rel);
  if (started > 0 || TryLater(error) || error == 0) return size_t{started};
  return ErrnoError(error, "io_uring: cannot submit %u reads", count);
}

size_t UringQueue::Take(std::span<CompletedRead> done) {
  const size_t count = ring_.Take(done);
  // A thread that ends takes its reads through the page cache with it where
  // they still wait for a page (Linux 6.18: EFAULT, others: ECANCELED).
  // Nothing is wrong with the file, and another try brings the bytes.
  for (CompletedRead& read : done.first(count)) {
    const bool dropped =
        read.result == -ECANCELED || (any_buffered_ && read.result == -EFAULT);
    if (dropped) read.result = -EAGAIN;
  }
  in_flight_.fetch_sub(static_cast<uint32_t>(count), std::memory_order_acq_rel);
  return count;
}

Result<size_t> UringQueue::Reap(std::span<CompletedRead> done, size_t min) {
  ECPHORY_CHECK(min <= done.size());
  size_t count = Take(done);
  while (count < min) {
    const int got =
        enter_(ring_.descriptor(), 0, static_cast<unsigned>(min - count),
               IORING_ENTER_GETEVENTS);
    if (got < 0 && got != -EINTR) {
      if (count > 0) break;
      return ErrnoError(-got, "io_uring: cannot wait for reads");
    }
    count += Take(done.subspan(count));
  }
  return count;
}

}  // namespace

Result<std::unique_ptr<ReadQueue>> MakeUringQueue(std::vector<QueueFile> files,
                                                  const UringOptions& options) {
  ECPHORY_CHECK(options.depth >= 1 && options.depth <= kMaxQueueDepth);
  for (const QueueFile& file : files) {
    if (file.descriptor() < 0) {
      return Unsupported("%s: io_uring needs a file on disk: %s",
                         file.file->path().c_str(),
                         file.file->direct_refusal().c_str());
    }
  }
  auto queue = std::make_unique<UringQueue>(std::move(files), options);
  ECPHORY_RETURN_IF_ERROR(queue->Open());
  return std::unique_ptr<ReadQueue>(std::move(queue));
}

Status UringAllowed() { return UringRing().Open(1); }

}  // namespace ecphory
