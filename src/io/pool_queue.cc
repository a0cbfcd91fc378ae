#include "io/pool_queue.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "io/fixed_ring.h"
#include "io/read_fully.h"

namespace ecphory {

namespace {

// pread's result by way of ReadExact.
int32_t ReadThroughFile(const RandomAccessFile& file, const QueuedRead& read) {
  if (read.offset >= file.size()) return 0;
  const size_t bytes =
      std::min<uint64_t>(read.bytes, file.size() - read.offset);
  const Status status = file.ReadExact(read.offset, {read.buffer, bytes});
  if (status.ok()) return static_cast<int32_t>(bytes);
  return status.code() == StatusCode::kCorrupt ? 0 : -EIO;
}

int32_t ReadNow(const QueueFile& file, const QueuedRead& read) {
  if (file.descriptor() < 0) return ReadThroughFile(file.file->file(), read);
  const ssize_t got = ::pread(file.descriptor(), read.buffer,
                              std::min<size_t>(read.bytes, kMaxReadBytes),
                              static_cast<off_t>(read.offset));
  return got < 0 ? -errno : static_cast<int32_t>(got);
}

class PoolQueue : public ReadQueue {
 public:
  PoolQueue(std::vector<QueueFile> files, const PoolOptions& options)
      : files_(std::move(files)),
        depth_(options.depth),
        waiting_(depth_),
        finished_(depth_),
        hits_at_once_(options.hits_at_once),
        hits_(depth_),
        misses_(depth_) {}
  ~PoolQueue() override;

  Status Start(uint32_t threads);

  const char* name() const override { return "pread"; }
  uint32_t depth() const override { return depth_; }
  uint32_t alignment(uint32_t file) const override {
    return files_[file].alignment();
  }
  Result<size_t> Submit(std::span<const QueuedRead> reads) override;
  Result<size_t> Reap(std::span<CompletedRead> done, size_t min) override;

 private:
  void ReadLoop();
  // Whether the page cache had all of it.
  bool TryHit(const QueuedRead& read);
  void Enqueue(std::span<const QueuedRead> reads);

  const std::vector<QueueFile> files_;
  const uint32_t depth_;
  std::vector<std::thread> threads_;

  std::mutex mutex_;
  std::condition_variable work_;  // there are reads, or it is the end
  std::condition_variable done_;  // Reap has what it waits for
  FixedRing<QueuedRead> waiting_;
  FixedRing<CompletedRead> finished_;
  uint32_t in_flight_ = 0;  // submitted and not reaped, at most `depth_`
  uint32_t idle_ = 0;       // threads asleep
  size_t wanted_ = 0;       // completions that Reap sleeps for; 0: it does not
  bool stop_ = false;

  // The submitting thread's.
  bool hits_at_once_;
  std::vector<CompletedRead> hits_;
  std::vector<QueuedRead> misses_;
};

PoolQueue::~PoolQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;  // reads that no thread took are dropped
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status PoolQueue::Start(uint32_t threads) {
  threads_.reserve(threads);
  try {
    for (uint32_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { ReadLoop(); });
    }
  } catch (const std::system_error& error) {
    return ResourceExhausted("cannot start %u threads that read: %s", threads,
                             error.what());
  }
  return Status::Ok();
}

void PoolQueue::ReadLoop() {
  std::unique_lock lock(mutex_);
  while (true) {
    while (waiting_.empty() && !stop_) {
      ++idle_;
      work_.wait(lock);
      --idle_;
    }
    if (stop_) return;
    const QueuedRead read = waiting_.Pop();
    lock.unlock();
    const int32_t result = ReadNow(files_[read.file], read);
    lock.lock();
    finished_.Push({read.tag, result});
    if (wanted_ != 0 && finished_.size() >= wanted_) {
      wanted_ = 0;
      done_.notify_one();
    }
  }
}

bool PoolQueue::TryHit(const QueuedRead& read) {
  const QueueFile& file = files_[read.file];
  if (file.direct || file.descriptor() < 0) return false;
  const iovec into{read.buffer, read.bytes};
  const ssize_t got = ::preadv2(file.descriptor(), &into, 1,
                                static_cast<off_t>(read.offset), RWF_NOWAIT);
  // Not every file system can tell.
  if (got < 0 && errno == EOPNOTSUPP) hits_at_once_ = false;
  return got == static_cast<ssize_t>(read.bytes);
}

Result<size_t> PoolQueue::Submit(std::span<const QueuedRead> reads) {
  {
    const std::lock_guard lock(mutex_);
    reads = reads.first(std::min<size_t>(reads.size(), depth_ - in_flight_));
    in_flight_ += static_cast<uint32_t>(reads.size());
  }
  if (reads.empty()) return size_t{0};
  if (!hits_at_once_) {
    Enqueue(reads);
    return reads.size();
  }
  size_t hits = 0;
  size_t misses = 0;
  for (const QueuedRead& read : reads) {
    if (TryHit(read)) {
      hits_[hits++] = {read.tag, static_cast<int32_t>(read.bytes)};
    } else {
      misses_[misses++] = read;
    }
  }
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < hits; ++i) finished_.Push(hits_[i]);
    if (wanted_ != 0 && finished_.size() >= wanted_) {
      wanted_ = 0;
      done_.notify_one();
    }
  }
  Enqueue(std::span(misses_).first(misses));
  return reads.size();
}

void PoolQueue::Enqueue(std::span<const QueuedRead> reads) {
  size_t to_wake = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const QueuedRead& read : reads) waiting_.Push(read);
    to_wake = std::min<size_t>(reads.size(), idle_);
  }
  for (size_t i = 0; i < to_wake; ++i) work_.notify_one();
}

Result<size_t> PoolQueue::Reap(std::span<CompletedRead> done, size_t min) {
  ECPHORY_CHECK(min <= done.size());
  std::unique_lock lock(mutex_);
  if (finished_.size() < min) {
    wanted_ = min;
    done_.wait(lock, [&] { return wanted_ == 0; });
  }
  const size_t count = std::min(done.size(), finished_.size());
  for (CompletedRead& read : done.first(count)) read = finished_.Pop();
  in_flight_ -= static_cast<uint32_t>(count);
  return count;
}

}  // namespace

Result<std::unique_ptr<ReadQueue>> MakePoolQueue(std::vector<QueueFile> files,
                                                 const PoolOptions& options) {
  ECPHORY_CHECK(options.depth >= 1 && options.depth <= kMaxQueueDepth);
  ECPHORY_CHECK(options.threads >= 1 && options.threads <= 256);
  auto queue = std::make_unique<PoolQueue>(std::move(files), options);
  ECPHORY_RETURN_IF_ERROR(queue->Start(options.threads));
  return std::unique_ptr<ReadQueue>(std::move(queue));
}

}  // namespace ecphory
