// The machine's bounds, measured on the threads that the operators run on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ecphory/bench.h"
#include "ecphory/status.h"
#include "measure/beside.h"
#include "measure/buffer.h"
#include "measure/sampler.h"
#include "measure/sgemm.h"
#include "ops/device.h"

namespace ecphory::measure {

struct YardstickOptions {
  SampleOptions sample;
  size_t bytes = 0;  // to read from; several times the last-level cache
  BenchPages pages = BenchPages::kSmall;  // under what is held to bandwidths
  const Sgemm* sgemm = nullptr;           // null: left out
};

// What bounds the traffic of a figure.
enum class Traffic : uint8_t {
  kRead,        // weights and caches: read once
  kUpdate,      // streams: read and written in place
  kUpdateHuge,  // likewise, in large pages whatever the run's are
};

// What bounds its arithmetic.
enum class Arithmetic : uint8_t {
  kF32,
  kBF16,  // fp32 where the processor has no products of bf16
  kNone,  // products of other kinds, which are not counted
};

// What to hold a figure to.
struct Limits {
  Traffic traffic = Traffic::kRead;
  Arithmetic arithmetic = Arithmetic::kF32;
};

// Bounds of one run, measured by themselves and beside figures.
class Yardsticks {
 public:
  explicit Yardsticks(const YardstickOptions& options) : options_(options) {}

  // All of them; adds rounds to those that were measured before.
  Status Measure(ThreadPool& pool);
  // Those of a device that is not the host: the bandwidth of its memory.
  Status MeasureDevice(Device& device);

  // What a figure is held to, to be measured beside it. Of a device its
  // bandwidth as it was measured: to look at it between steps would take from
  // these what the device does ahead of time.
  Result<Beside> BoundsOf(const Limits& limits, ThreadPool& pool);
  // `sgemm` likewise; nothing without one.
  Result<Beside> PeerOf(ThreadPool& pool);
  // Adds what was measured beside a figure.
  void Add(const Beside& beside);

  // Median; 0 when it was not measured.
  double Rate(const std::string& name) const;
  std::vector<BenchYardstick> Report() const;

 private:
  struct Entry {
    std::string name;
    std::string what;
    Amount counted;
    std::vector<double> rates;
  };
  using Made = std::vector<Yardstick>;

  void Add(const Yardstick& yardstick, const std::vector<double>& rates);
  void Measure(const Yardstick& yardstick);
  Result<std::shared_ptr<Buffer>> Memory(BenchPages pages, ThreadPool& pool);
  // Reading, updating, copying.
  Result<Made> MemoryYardsticks(BenchPages pages, ThreadPool& pool);
  Result<Made> SgemmYardsticks(ThreadPool& pool) const;
  double LookSeconds() const;

  const YardstickOptions options_;
  std::vector<Entry> entries_;
  // Of the last kind of pages, for the figures that follow.
  std::shared_ptr<Buffer> memory_;
  std::shared_ptr<size_t> turn_;  // stretches of it that calls have taken
  BenchPages memory_pages_ = BenchPages::kSmall;
};

}  // namespace ecphory::measure
