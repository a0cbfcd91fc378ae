// The machine's bounds, measured on the threads that the operators run on.
#pragma once

#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ecphory/bench.h"
#include "ecphory/status.h"
#include "measure/sampler.h"
#include "measure/sgemm.h"
#include "ops/device.h"

namespace ecphory::measure {

struct YardstickOptions {
  SampleOptions sample;
  size_t bytes = 0;  // to read from; several times the last-level cache
  const Sgemm* sgemm = nullptr;  // null: left out
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

// Bounds of one run. Measuring again adds rounds, so that what is held to them
// has been measured between.
class Yardsticks {
 public:
  Status Measure(const YardstickOptions& options, ThreadPool& pool);
  // Those of a device that is not the host: the bandwidth of its memory.
  Status MeasureDevice(const YardstickOptions& options, Device& device);

  // Median; 0 when it was not measured.
  double Rate(const std::string& name) const;
  std::vector<BenchYardstick> Report() const;
  // Fills bound, bound_seconds and share from bytes, flops and seconds.
  void HoldTo(const Limits& limits, BenchPages pages,
              BenchFigure* figure) const;

 private:
  struct Entry {
    std::string name;
    std::string what;
    std::string unit;
    std::vector<double> rates;
  };
  void Add(const char* name, const char* what, const char* unit, double amount,
           const std::vector<double>& seconds);
  Status MeasureMemory(const YardstickOptions& options, BenchPages pages,
                       ThreadPool& pool);
  void MeasureArithmetic(const YardstickOptions& options, ThreadPool& pool);
  Status MeasureSgemm(const YardstickOptions& options, ThreadPool& pool);

  std::vector<Entry> entries_;
};

}  // namespace ecphory::measure
