#include "io/page_cache_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <thread>
#include <vector>

#include "io/cached_pages.h"
#include "io/fault_queue.h"
#include "io/pool_queue.h"
#include "io/queue_testing.h"
#include "io/test_directory.h"

namespace ecphory {
namespace {

constexpr uint64_t kSize = 64 * kTestRead;

// Cuts a file while something is copied to `page`: at the first store into it,
// which is forbidden until then. One at a time.
class CutAtFirstStore {
 public:
  CutAtFirstStore(const std::string& path, off_t size, uint8_t* page)
      : fd_(::open(path.c_str(), O_WRONLY)), size_(size), page_(page) {
    EXPECT_GE(fd_, 0);
    armed_ = this;
    struct sigaction action {};
    action.sa_handler = &Cut;
    ::sigaction(SIGSEGV, &action, &before_);
    ::mprotect(page_, kTestRead, PROT_NONE);
  }
  ~CutAtFirstStore() {
    EXPECT_EQ(armed_, nullptr) << "nothing was stored";
    ::mprotect(page_, kTestRead, PROT_READ | PROT_WRITE);
    ::sigaction(SIGSEGV, &before_, nullptr);
    ::close(fd_);
  }

 private:
  static void Cut(int) {
    CutAtFirstStore* const cut = armed_;
    if (cut == nullptr) std::abort();  // a fault of another kind
    (void)!::ftruncate(cut->fd_, cut->size_);
    ::mprotect(cut->page_, kTestRead, PROT_READ | PROT_WRITE);
    armed_ = nullptr;
  }

  static inline CutAtFirstStore* armed_ = nullptr;
  const int fd_;
  const off_t size_;
  uint8_t* const page_;
  struct sigaction before_ {};
};

class PageCacheQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFile(dir_ / "f", FileBytes(0, kSize));
    file_ = OpenTable(dir_ / "f");
  }
  // Over a queue that counts what reaches it.
  void Make(const FaultQueuePlan& plan) {
    auto inner = MakeFaultQueue(
        std::move(MakePoolQueue({{file_, false}}, {.depth = 16, .threads = 1}))
            .value(),
        plan);
    inner_ = inner.get();
    queue_ = MakePageCacheQueue({{file_, false}}, std::move(inner));
  }
  QueuedRead Block(uint64_t block, uint64_t tag) const {
    return {0, 264, block * kTestRead + 100, memory_.data() + tag * kTestRead,
            tag};
  }

  TestDirectory dir_;
  std::shared_ptr<const TableFile> file_;
  const ReadMemory memory_{16 * kTestRead};
  std::unique_ptr<ReadQueue> queue_;
  FaultQueue* inner_ = nullptr;
};

TEST_F(PageCacheQueueTest, KnownPagesNeverReachTheQueue) {
  Make({});
  const QueuedRead reads[] = {Block(1, 0), Block(2, 1), Block(3, 2)};
  for (int round = 0; round < 3; ++round) {
    std::fill_n(memory_.data(), 3 * kTestRead, 0);
    EXPECT_EQ(RunReads(queue_.get(), reads), (std::vector<int32_t>(3, 264)));
    for (const QueuedRead& read : reads) {
      EXPECT_TRUE(HoldsFileBytes(read, 0, 264));
    }
    EXPECT_EQ(inner_->reads(), 3u);
  }
}

TEST_F(PageCacheQueueTest, APrefixIsTakenAroundARefusedMiss) {
  FaultQueuePlan plan;
  plan.submit_at_most = 1;
  Make(plan);
  const QueuedRead first = Block(1, 0);
  RunReads(queue_.get(), {&first, 1});
  // hit, miss (taken), hit, miss (refused), hit
  const QueuedRead reads[] = {Block(1, 0), Block(2, 1), Block(1, 2),
                              Block(3, 3), Block(1, 4)};
  ASSERT_EQ(*queue_->Submit(reads), 3u);
  CompletedRead done[8];
  ASSERT_EQ(*queue_->Reap(done, 3), 3u);
  EXPECT_EQ(*queue_->Reap(done, 0), 0u);
  EXPECT_EQ(RunReads(queue_.get(), reads), (std::vector<int32_t>(5, 264)));
}

TEST_F(PageCacheQueueTest, ErrorsOfTheQueueComeThrough) {
  FaultQueuePlan plan;
  plan.submit_error = 1;
  plan.reap_error = 1;
  Make(plan);
  const QueuedRead reads[] = {Block(1, 0), Block(2, 1)};
  ASSERT_EQ(*queue_->Submit(std::span(reads).first(1)), 1u);
  CompletedRead done[8];
  ASSERT_EQ(*queue_->Reap(done, 1), 1u);
  // The hit before the failing miss is taken, then the error has its turn.
  ASSERT_EQ(*queue_->Submit(reads), 1u);
  ASSERT_EQ(*queue_->Reap(done, 1), 1u);
  ASSERT_EQ(*queue_->Submit(std::span(reads).subspan(1)), 1u);
  EXPECT_FALSE(queue_->Reap(done, 1).ok());
  EXPECT_EQ(*queue_->Reap(done, 1), 1u);
}

// How many of the file's pages the page cache holds.
size_t ResidentPages(int fd) {
  void* base = ::mmap(nullptr, kSize, PROT_READ, MAP_SHARED, fd, 0);
  std::vector<unsigned char> pages(kSize / 4096);
  EXPECT_EQ(::mincore(base, kSize, pages.data()), 0);
  ::munmap(base, kSize);
  return static_cast<size_t>(
      std::count_if(pages.begin(), pages.end(), [](int p) { return p & 1; }));
}

TEST_F(PageCacheQueueTest, PagesThatTheKernelTookBackAreForgotten) {
  Make({});
  const QueuedRead reads[] = {Block(1, 0), Block(9, 1)};
  RunReads(queue_.get(), reads);
  ::fsync(file_->buffered());
  ::posix_fadvise(file_->buffered(), 0, 0, POSIX_FADV_DONTNEED);
  if (ResidentPages(file_->buffered()) > 0) GTEST_SKIP() << "pages stay here";
  // Still believed to be there: the copy waits for the disk.
  EXPECT_EQ(RunReads(queue_.get(), reads), (std::vector<int32_t>(2, 264)));
  EXPECT_TRUE(HoldsFileBytes(reads[1], 0, 264));
  EXPECT_EQ(inner_->reads(), 2u);
  EXPECT_EQ(RunReads(queue_.get(), reads), (std::vector<int32_t>(2, 264)));
  EXPECT_EQ(inner_->reads(), 4u);
}

TEST_F(PageCacheQueueTest, ACopyThatFailsIsToBeReadAgain) {
  CachedPages pages(file_);
  const QueuedRead reads[] = {Block(1, 0), Block(20, 1)};
  EXPECT_FALSE(pages.Knows(reads[0]));
  for (const QueuedRead& read : reads) pages.Remember(read);
  EXPECT_TRUE(pages.Knows(reads[1]));
  EXPECT_TRUE(pages.Check());
  EXPECT_EQ(pages.Copy(reads), 2u);
  ASSERT_EQ(::truncate((dir_ / "f").c_str(), 4 * kTestRead), 0);
  EXPECT_EQ(pages.Copy(reads), 0u);
  EXPECT_FALSE(pages.Check());
  EXPECT_FALSE(pages.Knows(reads[0]));
}

TEST_F(PageCacheQueueTest, PagesAreTakenWithoutARead) {
  Make({});
  CachedPages* const pages = queue_->pages(0);
  ASSERT_NE(pages, nullptr);
  // Known, in the page cache but not known, past the end.
  const QueuedRead reads[] = {
      Block(1, 0), Block(20, 1), {0, 264, kSize - 100, memory_.data(), 2}};
  RunReads(queue_.get(), {reads, 1});
  std::fill_n(memory_.data(), 2 * kTestRead, 0);
  for (int round = 0; round < 2; ++round) {
    uint8_t taken[3];
    pages->Take(reads, taken);
    EXPECT_EQ(taken[0], 1);
    EXPECT_TRUE(HoldsFileBytes(reads[0], 0, 264));
    EXPECT_EQ(taken[2], 0);
    // Not every file system can tell what would wait for the disk.
    if (taken[1] == 0) continue;
    EXPECT_TRUE(HoldsFileBytes(reads[1], 0, 264));
    EXPECT_TRUE(pages->Knows(reads[1]));
  }
  EXPECT_EQ(inner_->reads(), 1u);
}

TEST_F(PageCacheQueueTest, NothingIsTakenOfAFileThatWasCut) {
  CachedPages pages(file_);
  const QueuedRead reads[] = {Block(1, 0), Block(20, 1)};
  for (const QueuedRead& read : reads) pages.Remember(read);
  uint8_t taken[2];
  pages.Take(reads, taken);
  EXPECT_EQ(taken[0] + taken[1], 2);
  ASSERT_EQ(::truncate((dir_ / "f").c_str(), 4 * kTestRead), 0);
  pages.Take(reads, taken);
  EXPECT_EQ(taken[0] + taken[1], 0);
  EXPECT_FALSE(pages.Knows(reads[0]));
}

// Inside a page that is copied: past its new end the file's last page holds
// zeros, and touching them is no fault.
TEST_F(PageCacheQueueTest, ACutInsideAPageWhileItIsCopied) {
  constexpr off_t kCut = 2 * kTestRead + 50;
  const std::string path = dir_ / "f";
  // The first store is the first read's; the second is past the cut.
  const QueuedRead reads[] = {Block(1, 0), Block(2, 1)};
  for (const bool take : {false, true}) {
    WriteFile(path, FileBytes(0, kSize));
    CachedPages pages(file_);
    for (const QueuedRead& read : reads) pages.Remember(read);
    ASSERT_TRUE(pages.Check());
    const CutAtFirstStore cut(path, kCut, memory_.data());
    if (take) {
      uint8_t taken[2];
      pages.Take(reads, taken);
      EXPECT_EQ(taken[1], 0);
      // What lies before the cut may have been read instead.
      EXPECT_TRUE(taken[0] == 0 || HoldsFileBytes(reads[0], 0, 264));
    } else {
      EXPECT_EQ(pages.Copy(reads), 0u);
      EXPECT_FALSE(pages.Knows(reads[0]));
    }
  }
}

// The queue has them read again, of which the file's own reads tell the cut.
TEST_F(PageCacheQueueTest, AFileCutWhileTheQueueCopies) {
  Make({});
  const QueuedRead reads[] = {Block(1, 0), Block(2, 1)};
  RunReads(queue_.get(), reads);
  const CutAtFirstStore cut(dir_ / "f", 2 * kTestRead + 50, memory_.data());
  EXPECT_EQ(RunReads(queue_.get(), reads), (std::vector<int32_t>(2, -EAGAIN)));
  const std::vector<int32_t> again = RunReads(queue_.get(), reads);
  EXPECT_EQ(again[0], 264);
  EXPECT_NE(again[1], 264);
}

TEST_F(PageCacheQueueTest, WhatIsOnDiskIsLeft) {
  CachedPages pages(file_);
  ::fsync(file_->buffered());
  ::posix_fadvise(file_->buffered(), 0, 0, POSIX_FADV_DONTNEED);
  if (ResidentPages(file_->buffered()) > 0) GTEST_SKIP() << "pages stay here";
  const QueuedRead reads[] = {Block(1, 0), Block(9, 1)};
  uint8_t taken[2];
  pages.Take(reads, taken);
  EXPECT_EQ(taken[0] + taken[1], 0);
  EXPECT_FALSE(pages.Knows(reads[0]));
}

TEST_F(PageCacheQueueTest, ThreadsTakeAndForgetAtOnce) {
  CachedPages pages(file_);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<uint8_t> bytes(264);
      for (uint64_t i = 0; i < 400; ++i) {
        const QueuedRead read{0, 264, (i * 7 + t) % 60 * kTestRead + 100,
                              bytes.data(), 0};
        pages.Remember(read);
        uint8_t taken = 0;
        pages.Take({&read, 1}, &taken);
        EXPECT_TRUE(taken == 0 || HoldsFileBytes(read, 0, 264));
        if (i % 16 == t) pages.ForgetAll();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(PageCacheQueueTest, ReadsAcrossPagesAndPastTheEnd) {
  CachedPages pages(file_);
  const QueuedRead across{0, 264, 2 * kTestRead - 100, memory_.data(), 0};
  pages.Remember(Block(1, 0));
  EXPECT_FALSE(pages.Knows(across));
  pages.Remember(Block(2, 0));
  EXPECT_TRUE(pages.Knows(across));
  for (const QueuedRead& outside :
       {QueuedRead{0, 264, kSize - 100, nullptr, 0},
        QueuedRead{0, 264, kSize, nullptr, 0},
        QueuedRead{0, 264, UINT64_MAX - 10, nullptr, 0},
        QueuedRead{0, 0, 0, nullptr, 0}}) {
    pages.Remember(outside);
    EXPECT_FALSE(pages.Knows(outside));
  }
}

}  // namespace
}  // namespace ecphory
