// Random reads through a queue, and by fio, with what they cost.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ecphory/status.h"
#include "io/read_queue.h"

namespace ecphory {

struct Measured {
  double reads_per_second = 0;
  double cpu_us = 0;                          // a read, all threads
  double p50_us = 0, p95_us = 0, p99_us = 0;  // a batch
};

[[noreturn]] inline void Fail(const std::string& text) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, text.c_str());
  std::exit(1);
}

// Says how a program is called, and ends it, when that is asked for (--help
// anywhere) or nothing is.
inline void ShowUsage(int argc, char** argv, const char* usage) {
  const auto asks = [](const std::string& arg) {
    return arg == "--help" || arg == "-h";
  };
  const bool asked = std::any_of(argv + 1, argv + argc, asks);
  if (!asked && argc > 1) return;
  std::fprintf(asked ? stdout : stderr, "usage: %s", usage);
  std::exit(asked ? 0 : 2);
}

template <typename T>
T Value(Result<T> result) {
  if (!result.ok()) Fail(result.status().ToString());
  return std::move(result).value();
}

double SecondsSince(std::chrono::steady_clock::time_point start);

// `share` in 0..1; 0 of nothing.
double Percentile(std::vector<double> values, double share);

// Reads of one size at random multiples of `align` in a file of `size` bytes.
class RandomReader {
 public:
  RandomReader(ReadQueue* queue, uint64_t size, uint32_t bytes, uint32_t align);
  ~RandomReader();
  RandomReader(const RandomReader&) = delete;
  RandomReader& operator=(const RandomReader&) = delete;

  // Keeps the queue full.
  void MeasureRate(double seconds, Measured* out);
  // Fills the queue, waits for all, again and again.
  void MeasureBatches(double seconds, Measured* out);

 private:
  size_t Stride() const { return (size_t{bytes_} + 511) / 512 * 512; }
  // `count` reads into the buffers of those reaped last (at first: all).
  void Submit(size_t count);
  size_t Reap(size_t min);
  void Drain();

  ReadQueue* const queue_;
  const uint32_t bytes_;
  const uint32_t align_;
  const uint64_t places_;
  uint8_t* memory_ = nullptr;
  std::vector<QueuedRead> reads_;
  std::vector<CompletedRead> done_;
  size_t in_flight_ = 0;
  std::mt19937_64 rng_{std::random_device{}()};
};

// The same by fio: O_DIRECT, io_uring, one job.
Measured MeasureFio(const std::string& file, uint32_t depth, uint32_t bytes,
                    double seconds);

}  // namespace ecphory
