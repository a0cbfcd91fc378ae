// Random reads of one file through every read queue, beside fio in the same
// run: rates, time a batch, processor time a read.
//
//   io_bench FILE [--ways uring,pread,buffered] [--depths 1,16,48,256]
//            [--bytes 4096] [--seconds 1] [--rounds 3] [--threads 16]
//            [--no-fio] [--warm MIB] [--json]
//
// The file should be larger than memory, or the host's cache answers; reads of
// less than a page need a disk with such sectors. Rounds take the
// ways in turn, so that a disturbance hits them alike; the median is shown.
//   rate     depth reads always in flight
//   batch    depth reads submitted at once and waited for together
// --warm MIB: instead, 432 rows of 264 bytes anywhere in the first MIB, which
// the page cache holds.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "io/file.h"
#include "io/io_mode.h"
#include "io/make_queue.h"
#include "io/table_file.h"
#include "io_bench_reads.h"

namespace ecphory {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr size_t kRows = 432;
constexpr uint32_t kRowBytes = 264;

struct Flags {
  std::string file;
  std::vector<std::string> ways{"uring", "pread", "buffered"};
  std::vector<uint32_t> depths{1, 16, 48, 256};
  std::vector<uint32_t> bytes{4096};
  double seconds = 1;
  uint32_t rounds = 3;
  uint32_t threads = 16;
  bool fio = true;
  uint64_t warm_mib = 0;
  bool json = false;
};

Measured MeasureWay(const Flags& flags, const std::string& way, uint32_t depth,
                    uint32_t bytes,
                    const std::shared_ptr<const TableFile>& file) {
  const IoMode mode = Value(ParseIoMode(way));
  MadeQueue made = Value(
      MakeQueue(mode, {&file, 1}, {.depth = depth, .threads = flags.threads}));
  if (!made.denied.empty()) {
    std::fprintf(stderr, "%s: %s\n", way.c_str(), made.denied.c_str());
  }
  // Whole pages or sectors where the size is made of them.
  const uint32_t natural = bytes % 4096 == 0  ? 4096
                           : bytes % 512 == 0 ? 512
                                              : 1;
  const uint32_t align = std::max(made.queue->alignment(0), natural);
  if (mode == IoMode::kBuffered) {
    ::posix_fadvise(file->buffered(), 0, 0, POSIX_FADV_DONTNEED);
  }
  RandomReader reader(made.queue.get(), file->size(), bytes, align);
  Measured m;
  reader.MeasureRate(flags.seconds, &m);
  reader.MeasureBatches(flags.seconds, &m);
  return m;
}

Measured Median(const std::vector<Measured>& rounds) {
  const auto median = [&](double Measured::*field) {
    std::vector<double> values;
    for (const Measured& m : rounds) values.push_back(m.*field);
    return Percentile(values, 0.5);
  };
  return {median(&Measured::reads_per_second), median(&Measured::cpu_us),
          median(&Measured::p50_us), median(&Measured::p95_us),
          median(&Measured::p99_us)};
}

void Print(const Flags& flags, const std::string& way, uint32_t depth,
           uint32_t bytes, const Measured& m, const Measured* fio) {
  if (flags.json) {
    Json line{{"way", way},         {"depth", depth},
              {"bytes", bytes},     {"reads_per_second", m.reads_per_second},
              {"cpu_us", m.cpu_us}, {"p50_us", m.p50_us},
              {"p95_us", m.p95_us}, {"p99_us", m.p99_us}};
    if (fio != nullptr) {
      line["rate_to_fio"] = m.reads_per_second / fio->reads_per_second;
      line["cpu_to_fio"] = m.cpu_us / fio->cpu_us;
      line["p50_to_fio"] = m.p50_us / fio->p50_us;
    }
    std::printf("%s\n", line.dump().c_str());
    return;
  }
  std::printf("%-9s %5u %6u %9.0f %7.2f %8.0f %8.0f %8.0f", way.c_str(), depth,
              bytes, m.reads_per_second, m.cpu_us, m.p50_us, m.p95_us,
              m.p99_us);
  if (fio != nullptr) {
    std::printf("   %5.2f %5.2f %5.2f",
                m.reads_per_second / fio->reads_per_second,
                m.cpu_us / fio->cpu_us, m.p50_us / fio->p50_us);
  }
  std::printf("\n");
  std::fflush(stdout);
}

void MeasureCold(const Flags& flags,
                 const std::shared_ptr<const TableFile>& file) {
  if (!flags.json) {
    std::printf("%-9s %5s %6s %9s %7s %8s %8s %8s   %s\n", "way", "depth",
                "bytes", "reads/s", "cpu us", "p50 us", "p95 us", "p99 us",
                flags.fio ? "to fio: rate, cpu, p50" : "");
  }
  for (const uint32_t bytes : flags.bytes) {
    for (const uint32_t depth : flags.depths) {
      std::map<std::string, std::vector<Measured>> rounds;
      for (uint32_t i = 0; i < flags.rounds; ++i) {
        for (const std::string& way : flags.ways) {
          rounds[way].push_back(MeasureWay(flags, way, depth, bytes, file));
        }
        if (flags.fio)
          rounds["fio"].push_back(
              MeasureFio(flags.file, depth, bytes, flags.seconds));
      }
      Measured fio;
      if (flags.fio) {
        fio = Median(rounds["fio"]);
        Print(flags, "fio", depth, bytes, fio, nullptr);
      }
      for (const std::string& way : flags.ways) {
        Print(flags, way, depth, bytes, Median(rounds[way]),
              flags.fio ? &fio : nullptr);
      }
    }
  }
}

// What 432 rows that the page cache holds cost, by any way of copying.
void MeasureWarm(const Flags& flags,
                 const std::shared_ptr<const TableFile>& file) {
  const uint64_t span = std::min(flags.warm_mib << 20, file->size());
  std::vector<uint8_t> block(1 << 20);
  for (uint64_t at = 0; at + block.size() <= span; at += block.size()) {
    if (::pread(file->buffered(), block.data(), block.size(),
                static_cast<off_t>(at)) < 0) {
      Fail("cannot read");
    }
  }
  std::vector<uint8_t> out(kRows * kRowBytes);
  std::vector<uint64_t> rows(kRows);
  std::vector<QueuedRead> reads(kRows);
  std::vector<CompletedRead> done(kRows);
  const auto through = [&](ReadQueue* queue) {
    for (size_t i = 0; i < kRows; ++i) {
      reads[i] = {0, kRowBytes, rows[i], out.data() + i * kRowBytes, i};
    }
    size_t left = kRows;
    if (Value(queue->Submit(reads)) != kRows) Fail("queue full");
    while (left > 0) left -= Value(queue->Reap(done, left));
  };
  const auto plain = [&] {
    for (size_t i = 0; i < kRows; ++i) {
      if (::pread(file->buffered(), out.data() + i * kRowBytes, kRowBytes,
                  static_cast<off_t>(rows[i])) != kRowBytes) {
        Fail("short read");
      }
    }
  };
  auto buffered = Value(MakeQueue(IoMode::kBuffered, {&file, 1},
                                  {.depth = 512, .threads = flags.threads}));
  const std::vector<std::pair<std::string, std::function<void()>>> ways = {
      {"pread loop", plain},
      {"buffered", [&] { through(buffered.queue.get()); }},
  };
  std::mt19937_64 rng(1);
  std::map<std::string, std::vector<double>> times;
  const auto start = Clock::now();
  while (SecondsSince(start) < flags.seconds * flags.rounds) {
    for (const auto& [name, run] : ways) {
      for (uint64_t& row : rows) row = rng() % (span / kRowBytes) * kRowBytes;
      std::sort(rows.begin(), rows.end());
      const auto begin = Clock::now();
      run();
      times[name].push_back(SecondsSince(begin) * 1e6);
    }
  }
  const double base = Percentile(times["pread loop"], 0.5);
  for (const auto& [name, run] : ways) {
    const double p50 = Percentile(times[name], 0.5);
    if (flags.json) {
      std::printf("%s\n", Json{{"way", name},
                               {"rows", kRows},
                               {"p50_us", p50},
                               {"to_pread_loop", p50 / base}}
                              .dump()
                              .c_str());
    } else {
      std::printf("%-12s %zu warm rows: p50 %7.1f us, p99 %7.1f us, %.2f x\n",
                  name.c_str(), kRows, p50, Percentile(times[name], 0.99),
                  p50 / base);
    }
  }
}

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    parts.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

std::vector<uint32_t> Numbers(const std::string& list) {
  std::vector<uint32_t> numbers;
  for (const std::string& part : Split(list)) {
    numbers.push_back(static_cast<uint32_t>(std::atoi(part.c_str())));
    if (numbers.back() == 0) Fail("not a list of numbers: " + list);
  }
  return numbers;
}

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == argc) Fail(arg + " needs a value");
      return argv[++i];
    };
    if (arg == "--ways")
      flags.ways = Split(value());
    else if (arg == "--depths")
      flags.depths = Numbers(value());
    else if (arg == "--bytes")
      flags.bytes = Numbers(value());
    else if (arg == "--seconds")
      flags.seconds = std::atof(value().c_str());
    else if (arg == "--rounds")
      flags.rounds = Numbers(value())[0];
    else if (arg == "--threads")
      flags.threads = Numbers(value())[0];
    else if (arg == "--warm")
      flags.warm_mib = Numbers(value())[0];
    else if (arg == "--no-fio")
      flags.fio = false;
    else if (arg == "--json")
      flags.json = true;
    else if (arg[0] == '-')
      Fail("unknown flag " + arg);
    else
      flags.file = arg;
  }
  if (flags.file.empty()) Fail("name a file to read");
  return flags;
}

}  // namespace
}  // namespace ecphory

int main(int argc, char** argv) {
  using namespace ecphory;
  ShowUsage(argc, argv,
            "io_bench FILE [--ways uring,pread,buffered] "
            "[--depths 1,16,48,256]\n"
            "                [--bytes 4096] [--seconds 1] [--rounds 3] "
            "[--threads 16]\n"
            "                [--no-fio] [--warm MIB] [--json]\n");
  const Flags flags = ParseFlags(argc, argv);
  const auto file = Value(TableFile::Open(Value(OpenFile(flags.file))));
  if (file->size() < (1 << 20)) Fail("the file is too small to be random in");
  std::fprintf(stderr, "%s: %llu MiB on %s, O_DIRECT %s (alignment %u)\n",
               flags.file.c_str(),
               static_cast<unsigned long long>(file->size() >> 20),
               file->file_system().name.c_str(),
               file->direct() >= 0 ? "allowed" : file->direct_refusal().c_str(),
               file->alignment());
  if (flags.warm_mib > 0) {
    MeasureWarm(flags, file);
  } else {
    MeasureCold(flags, file);
  }
  return 0;
}
