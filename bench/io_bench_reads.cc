#include "io_bench_reads.h"

#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

namespace ecphory {

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

std::string FioCommand(const std::string& file, uint32_t depth, uint32_t bytes,
                       double seconds) {
  return "fio --name=a --readonly --rw=randread --direct=1"
         " --ioengine=io_uring --norandommap --randrepeat=0 --time_based"
         " --output-format=json --filename='" +
         file + "' --bs=" + std::to_string(bytes) +
         " --iodepth=" + std::to_string(depth) +
         " --runtime=" + std::to_string(std::max(1.0, seconds));
}

Json RunFio(const std::string& command) {
  FILE* pipe = ::popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) Fail("cannot start fio");
  std::string text;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    text.append(buffer, n);
  }
  if (::pclose(pipe) != 0) Fail("fio failed (--no-fio runs without it)");
  return Json::parse(text)["jobs"][0];
}

}  // namespace

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share *
                                    static_cast<double>(values.size() - 1))];
}

RandomReader::RandomReader(ReadQueue* queue, uint64_t size, uint32_t bytes,
                           uint32_t align)
    : queue_(queue),
      bytes_(bytes),
      align_(align),
      places_((size - bytes) / align),
      reads_(queue->depth()),
      done_(queue->depth()) {
  const size_t memory = (queue->depth() * Stride() + 4095) / 4096 * 4096;
  memory_ = static_cast<uint8_t*>(std::aligned_alloc(4096, memory));
  queue->RegisterMemory({memory_, memory});
}

RandomReader::~RandomReader() { std::free(memory_); }

void RandomReader::Submit(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t slot = in_flight_ == 0 ? i : done_[i].tag;
    reads_[i] = {0, bytes_, rng_() % places_ * align_,
                 memory_ + slot * Stride(), slot};
  }
  size_t taken = 0;
  while (taken < count) {
    taken +=
        Value(queue_->Submit(std::span(reads_).subspan(taken, count - taken)));
  }
  in_flight_ += count;
}

size_t RandomReader::Reap(size_t min) {
  const size_t got = Value(queue_->Reap(done_, min));
  for (size_t i = 0; i < got; ++i) {
    if (done_[i].result != static_cast<int32_t>(bytes_)) {
      Fail("a read came back with " + std::to_string(done_[i].result));
    }
  }
  in_flight_ -= got;
  return got;
}

void RandomReader::Drain() {
  while (in_flight_ > 0) Reap(in_flight_);
}

void RandomReader::MeasureRate(double seconds, Measured* out) {
  const double cpu = CpuSeconds();
  const auto start = Clock::now();
  uint64_t reads = 0;
  Submit(reads_.size());
  while (SecondsSince(start) < seconds) {
    const size_t got = Reap(1);
    reads += got;
    Submit(got);
  }
  const double elapsed = SecondsSince(start);
  out->cpu_us = (CpuSeconds() - cpu) * 1e6 / static_cast<double>(reads);
  out->reads_per_second = static_cast<double>(reads) / elapsed;
  Drain();
}

void RandomReader::MeasureBatches(double seconds, Measured* out) {
  std::vector<double> times;
  const auto start = Clock::now();
  while (SecondsSince(start) < seconds) {
    const auto begin = Clock::now();
    Submit(reads_.size());
    Drain();
    times.push_back(SecondsSince(begin) * 1e6);
  }
  out->p50_us = Percentile(times, 0.5);
  out->p95_us = Percentile(times, 0.95);
  out->p99_us = Percentile(times, 0.99);
}

Measured MeasureFio(const std::string& file, uint32_t depth, uint32_t bytes,
                    double seconds) {
  Measured m;
  const std::string command = FioCommand(file, depth, bytes, seconds);
  const Json rate = RunFio(command);
  const double reads = rate["read"]["total_ios"];
  const double busy_percent =
      rate["usr_cpu"].get<double>() + rate["sys_cpu"].get<double>();
  const double runtime_us = rate["read"]["runtime"].get<double>() * 1000;
  m.reads_per_second = rate["read"]["iops"];
  m.cpu_us = busy_percent / 100 * runtime_us / reads;
  const std::string n = std::to_string(depth);
  const Json batches =
      RunFio(command + " --iodepth_batch=" + n +
             " --iodepth_batch_complete_min=" + n + " --iodepth_low=1");
  // All of a batch are taken in together: each one's time is the batch's.
  const Json& percentile = batches["read"]["clat_ns"]["percentile"];
  m.p50_us = percentile["50.000000"].get<double>() / 1000;
  m.p95_us = percentile["95.000000"].get<double>() / 1000;
  m.p99_us = percentile["99.000000"].get<double>() / 1000;
  return m;
}

}  // namespace ecphory
