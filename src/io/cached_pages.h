// The pages of a file that were read through the page cache before, in place.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "io/read_queue.h"
#include "io/table_file.h"

namespace ecphory {

// A page that was read once is mapped, and likely still in the page cache: its
// bytes are copied without a system call. One bit a page says which were read;
// where it is wrong, the copy waits for the disk and is right all the same.
// Thread-safe.
class CachedPages {
 public:
  // Never fails: where the file cannot be mapped, no page is known.
  explicit CachedPages(std::shared_ptr<const TableFile> file);
  ~CachedPages();
  CachedPages(const CachedPages&) = delete;
  CachedPages& operator=(const CachedPages&) = delete;

  // False once the file is shorter than it was at first; nothing is known then.
  bool Check();
  // Whether all pages of the read are known and inside the file.
  bool Knows(const QueuedRead& read) const;
  void Remember(const QueuedRead& read);
  void ForgetAll();

  // Copies known reads, in order; returns how many. The first that is not
  // copied could not be had (the file was cut, before or meanwhile; the disk
  // failed).
  size_t Copy(std::span<const QueuedRead> reads);

  // taken[i] becomes 1 where the page cache had all of reads[i], which is then
  // in its buffer: copied where it is known, read without waiting for the disk
  // where it is not. 0: it is to be read.
  void Take(std::span<const QueuedRead> reads, uint8_t* taken);
  // After copies of `hits` known reads, in which this thread waited for the
  // disk so often: forgets all where the kernel took so many pages back that
  // to begin anew is cheaper than to wait for them one by one.
  void ForgetIfStale(size_t hits, int64_t faults);

 private:
  struct Free {
    void operator()(uint64_t* words) const { std::free(words); }
  };
  bool InFile(const QueuedRead& read) const;
  void CopyTaken(std::span<const QueuedRead> reads, uint8_t* taken);
  bool ReadAtOnce(const QueuedRead& read);

  const std::shared_ptr<const TableFile> file_;
  std::span<const uint8_t> bytes_;  // the mapping
  // Zero pages until written to: bits of a large file cost what is used.
  std::unique_ptr<uint64_t[], Free> known_;
  size_t words_ = 0;
  // Not every file system can tell what would wait.
  std::atomic<bool> tells_{true};
};

// Times this thread had to wait for the disk to have a mapped page.
int64_t MajorFaults();

}  // namespace ecphory
