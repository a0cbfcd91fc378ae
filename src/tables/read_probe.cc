#include "tables/read_probe.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <random>

#include "tables/direct_reader.h"

namespace ecphory::tables {

namespace {

using Clock = std::chrono::steady_clock;

double SecondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// One measurement: a slot for each read in flight.
class Probe {
 public:
  Probe(ReadQueue* queue, std::span<const ProbeRange> ranges,
        uint32_t read_bytes, uint32_t depth, uint64_t seed)
      : queue_(queue),
        ranges_(ranges.begin(), ranges.end()),
        read_bytes_(read_bytes),
        depth_(std::min(depth, queue->depth())),
        memory_(size_t{read_bytes} * depth_),
        submitted_(depth_),
        rng_(seed) {
    for (const ProbeRange& range : ranges_) total_ += range.bytes / read_bytes_;
  }

  Result<ReadRate> Run(double seconds) {
    if (total_ == 0) return InvalidArgument("tables too small to be measured");
    std::vector<QueuedRead> ready;
    for (uint32_t slot = 0; slot < depth_; ++slot) ready.push_back(Read(slot));
    const double cpu = ProcessCpuSeconds();
    const Clock::time_point start = Clock::now();
    std::vector<CompletedRead> done(depth_);
    size_t in_flight = 0;
    while (true) {
      const bool more = SecondsBetween(start, Clock::now()) < seconds;
      if (more) ECPHORY_RETURN_IF_ERROR(Submit(&ready, &in_flight));
      if (in_flight == 0) break;
      ECPHORY_ASSIGN_OR_RETURN(const size_t count, queue_->Reap(done, 1));
      in_flight -= count;
      ECPHORY_RETURN_IF_ERROR(Note({done.data(), count}, &ready));
    }
    return Rate(SecondsBetween(start, Clock::now()), ProcessCpuSeconds() - cpu);
  }

 private:
  QueuedRead Read(uint32_t slot) {
    uint64_t number = rng_() % total_;
    size_t r = 0;
    while (number >= ranges_[r].bytes / read_bytes_) {
      number -= ranges_[r++].bytes / read_bytes_;
    }
    // Aligned inside the file; the last block of a range may begin before it.
    const uint64_t at = ranges_[r].offset + number * read_bytes_;
    QueuedRead read;
    read.file = ranges_[r].file;
    read.bytes = read_bytes_;
    read.offset = at / read_bytes_ * read_bytes_;
    read.buffer = memory_.data() + size_t{slot} * read_bytes_;
    read.tag = slot;
    return read;
  }

  Status Submit(std::vector<QueuedRead>* ready, size_t* in_flight) {
    if (ready->empty()) return {};
    const Clock::time_point now = Clock::now();
    for (const QueuedRead& read : *ready) submitted_[read.tag] = now;
    ECPHORY_ASSIGN_OR_RETURN(const size_t count, queue_->Submit(*ready));
    if (count == 0 && *in_flight == 0) {
      return IoError("%s: takes no reads", queue_->name());
    }
    ready->erase(ready->begin(),
                 ready->begin() + static_cast<ptrdiff_t>(count));
    *in_flight += count;
    return {};
  }

  Status Note(std::span<const CompletedRead> done,
              std::vector<QueuedRead>* ready) {
    const Clock::time_point now = Clock::now();
    for (const CompletedRead& read : done) {
      if (read.result < 0 && read.result != -EAGAIN && read.result != -EINTR) {
        return ErrnoError(-read.result, "%s: a read of the tables",
                          queue_->name());
      }
      if (read.result > 0) {
        latencies_.push_back(1e6 * SecondsBetween(submitted_[read.tag], now));
      }
      ready->push_back(Read(static_cast<uint32_t>(read.tag)));
    }
    return {};
  }

  ReadRate Rate(double seconds, double cpu) const {
    ReadRate rate;
    rate.way = queue_->name();
    rate.depth = depth_;
    rate.read_bytes = read_bytes_;
    rate.reads = latencies_.size();
    if (latencies_.empty()) return rate;
    const double reads = static_cast<double>(latencies_.size());
    rate.reads_per_second = reads / seconds;
    rate.cpu_us_per_read = 1e6 * cpu / reads;
    rate.p50_us = Percentile(latencies_, 50);
    rate.p95_us = Percentile(latencies_, 95);
    rate.p99_us = Percentile(latencies_, 99);
    return rate;
  }

  ReadQueue* const queue_;
  const std::vector<ProbeRange> ranges_;
  const uint32_t read_bytes_;
  const uint32_t depth_;
  const AlignedBuffer memory_;
  std::vector<Clock::time_point> submitted_;
  std::vector<double> latencies_;
  std::mt19937_64 rng_;
  uint64_t total_ = 0;
};

}  // namespace

double Percentile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  const double rank = p / 100 * static_cast<double>(values.size());
  const size_t index =
      std::min(values.size() - 1,
               static_cast<size_t>(std::max(0.0, std::ceil(rank) - 1)));
  std::nth_element(values.begin(),
                   values.begin() + static_cast<ptrdiff_t>(index),
                   values.end());
  return values[index];
}

double ProcessCpuSeconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

Result<ReadRate> MeasureReads(ReadQueue* queue,
                              std::span<const ProbeRange> ranges,
                              uint32_t read_bytes, uint32_t depth,
                              double seconds, uint64_t seed) {
  return Probe(queue, ranges, read_bytes, depth, seed).Run(seconds);
}

}  // namespace ecphory::tables
