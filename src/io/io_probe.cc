#include "io/io_probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/check.h"

namespace ecphory {

namespace {

// Rows are a few hundred bytes; larger ones cost a disk about the same.
constexpr uint32_t kMaxProbeBytes = 16 << 10;
constexpr size_t kPage = 4096;

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A slot holds any row with the sectors at both its ends.
size_t SlotBytes(uint32_t read_bytes) {
  return (read_bytes + 2 * kPage - 1) / kPage * kPage + kPage;
}

}  // namespace

IoProbe::IoProbe(std::span<const std::shared_ptr<const TableFile>> files,
                 std::span<const TableRange> ranges, uint32_t read_bytes)
    : read_bytes_(std::clamp(read_bytes, 1u, kMaxProbeBytes)),
      memory_(kProbeDepth * SlotBytes(read_bytes_) + kPage) {
  for (const auto& file : files) file_sizes_.push_back(file->size());
  for (const TableRange& range : ranges) {
    if (range.bytes == 0) continue;
    ranges_.push_back(range);
    total_bytes_ += range.bytes;
  }
  ECPHORY_CHECK(total_bytes_ > 0);
}

QueuedRead IoProbe::RandomRead(const ReadQueue& queue, size_t slot) {
  uint64_t place = rng_() % total_bytes_;
  size_t i = 0;
  while (place >= ranges_[i].bytes) place -= ranges_[i++].bytes;
  const TableRange& range = ranges_[i];
  const uint64_t align = queue.alignment(range.file);
  const uint64_t at = range.offset + place;
  const uint64_t begin = at / align * align;
  const uint64_t end =
      (std::min(at + read_bytes_, file_sizes_[range.file]) + align - 1) /
      align * align;
  const uintptr_t memory = reinterpret_cast<uintptr_t>(memory_.data());
  const uintptr_t first = (memory + kPage - 1) / kPage * kPage;
  return {range.file, static_cast<uint32_t>(end - begin), begin,
          reinterpret_cast<uint8_t*>(first + slot * SlotBytes(read_bytes_)),
          slot};
}

Status IoProbe::SubmitAll(ReadQueue* queue, std::span<const QueuedRead> reads) {
  while (!reads.empty()) {
    ECPHORY_ASSIGN_OR_RETURN(const size_t taken, queue->Submit(reads));
    if (taken == 0) return IoError("the kernel takes no reads");
    reads = reads.subspan(taken);
  }
  return Status::Ok();
}

Result<double> IoProbe::Measure(ReadQueue* queue, double seconds) {
  const size_t depth = std::min(queue->depth(), kProbeDepth);
  QueuedRead reads[kProbeDepth];
  CompletedRead done[kProbeDepth];
  const auto start = Clock::now();
  for (size_t i = 0; i < depth; ++i) reads[i] = RandomRead(*queue, i);
  ECPHORY_RETURN_IF_ERROR(SubmitAll(queue, std::span(reads).first(depth)));
  uint64_t count = 0;
  int failed = 0;
  for (size_t in_flight = depth; in_flight > 0;) {
    ECPHORY_ASSIGN_OR_RETURN(const size_t got, queue->Reap(done, 1));
    in_flight -= got;
    for (size_t i = 0; i < got; ++i) {
      if (done[i].result <= 0) failed = -done[i].result;
      count += done[i].result > 0;
    }
    if (failed != 0 || SecondsSince(start) >= seconds) continue;
    for (size_t i = 0; i < got; ++i) {
      reads[i] = RandomRead(*queue, done[i].tag);
    }
    ECPHORY_RETURN_IF_ERROR(SubmitAll(queue, std::span(reads).first(got)));
    in_flight += got;
  }
  if (failed != 0) return ErrnoError(failed, "a read failed");
  return static_cast<double>(count) / SecondsSince(start);
}

bool OrderIsClear(std::span<const double> a, std::span<const double> b) {
  constexpr double kMargin = 1.25;
  if (a.size() < 2 || b.size() < 2) return false;
  const auto [a_min, a_max] = std::minmax_element(a.begin(), a.end());
  const auto [b_min, b_max] = std::minmax_element(b.begin(), b.end());
  return *a_min > kMargin * *b_max || *b_min > kMargin * *a_max;
}

}  // namespace ecphory
