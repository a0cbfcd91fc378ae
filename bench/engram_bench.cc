// The store beside what bounds it, in one run: cold rows beside fio and beside
// threads made per batch, warm rows beside a copy and beside plain preads.
//
//   engram_bench FILE [--make GIB] [--rounds 5] [--seconds 1] [--only PART]
//                [--no-fio] [--json]
//
// FILE holds rows of 264 bytes from its first byte on; --make writes it first.
// It should be larger than memory, or the host's cache answers. Cold rows never
// repeat and are read past the page cache. Rounds take the ways in turn, so
// that a disturbance hits them alike; medians of rounds are shown.
//   rows   lookups of 4,096 rows, two open, 256 reads in flight; fio: randread
//          4 KiB, iodepth 256. Rate, and processor time a row
//   token  24 rows of each half of the file, submitted together and waited for,
//          p50; fio: iodepth = iodepth_batch = iodepth_batch_complete_min = 48,
//          where a read's completion latency is its batch's time; threads: 16
//          made per batch, a pread a row
//   warm   432 rows of 20,000 to bf16, p50, through the row cache, mmap and
//          ram; peer: the same rows copied from memory, then decoded
//   pages  the same through `buffered`; peer: a pread and a decode a row
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engram/store.h"
#include "engram/synth_rows.h"
#include "engram_bench_peers.h"
#include "io/file.h"
#include "io_bench_reads.h"

namespace ecphory {
namespace {

using Clock = std::chrono::steady_clock;
using engram::Store;
using engram::StoreOptions;
using engram::Ticket;

constexpr size_t kPerTable = 24;
constexpr size_t kWarmRows = 432;
constexpr uint64_t kWarmSet = 20'000;

struct Flags {
  std::string file;
  uint64_t make_gib = 0;
  int rounds = 5;
  double seconds = 1;
  std::string only;
  bool fio = true;
  bool json = false;
};

// Figures of all rounds by name.
class Report {
 public:
  void Add(const std::string& name, double value) {
    values_[name].push_back(value);
  }
  double Median(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? 0 : Percentile(found->second, 0.5);
  }
  void Print(bool json) const {
    nlohmann::json out;
    for (const auto& [name, values] : values_) {
      out[name] = {{"median", Median(name)},
                   {"min", Percentile(values, 0)},
                   {"max", Percentile(values, 1)}};
      if (!json) {
        std::printf("%-28s %12.2f  (%.2f .. %.2f)\n", name.c_str(),
                    Median(name), Percentile(values, 0), Percentile(values, 1));
      }
    }
    if (json) std::printf("%s\n", out.dump(1).c_str());
  }

 private:
  std::map<std::string, std::vector<double>> values_;
};

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

// Every row of a table once, in an order that looks random.
class RowSequence {
 public:
  explicit RowSequence(uint64_t rows) : rows_(rows) {
    while (std::gcd(step_, rows_) != 1) ++step_;
  }
  void Next(std::span<uint64_t> out) {
    for (uint64_t& row : out) row = at_ = (at_ + step_) % rows_;
  }

 private:
  const uint64_t rows_;
  // Far apart and of no short period: the golden ratio's share of 2^61.
  uint64_t step_ = 1'425'089'352'415'399'815u % 1'000'000'007u;
  uint64_t at_ = std::random_device{}() % rows_;
};

void MakeFile(const Flags& flags) {
  auto writer = Value(AtomicFileWriter::Create(flags.file));
  std::vector<uint8_t> bytes(kRowBytes * 65'536);
  const uint64_t rows = (flags.make_gib << 30) / kRowBytes;
  for (uint64_t first = 0; first < rows; first += 65'536) {
    engram::SynthRows({.seed = 1, .width = kRowValues}, first, bytes);
    const Status status = writer->Write(bytes);
    if (!status.ok()) Fail(status.ToString());
  }
  const Status status = writer->Commit();
  if (!status.ok()) Fail(status.ToString());
}

// Two tables, the halves of the file, or one of its first `rows` rows.
std::unique_ptr<Store> OpenStore(const Flags& flags, StoreOptions options,
                                 uint64_t rows = 0) {
  const auto file = Value(OpenFile(flags.file));
  const uint64_t half = file->size() / kRowBytes / 2;
  std::vector<engram::TableSource> tables(rows == 0 ? 2 : 1);
  for (size_t i = 0; i < tables.size(); ++i) {
    tables[i].name = "table " + std::to_string(i);
    tables[i].rows = rows == 0 ? half : rows;
    tables[i].width = kRowValues;
    tables[i].file = file;
    tables[i].offset = i * half * kRowBytes;
  }
  auto store = Value(Store::Open(std::move(tables), options));
  std::fprintf(stderr, "%s\n", store->io().reason.c_str());
  return store;
}

void Wait(Store* store, Ticket ticket) {
  const Status status = store->Wait(ticket);
  if (!status.ok()) Fail(status.ToString());
}

void MeasureRows(const Flags& flags, Store* store, Report* report) {
  constexpr size_t kRows = 4096;
  static RowSequence sequence(store->table(0).rows);
  std::vector<uint64_t> rows(kRows);
  std::vector<uint16_t> out[2];
  for (auto& o : out) o.resize(kRows * kRowValues);
  const auto submit = [&](size_t turn) {
    sequence.Next(rows);
    return store->Submit(
        {0, rows, out[turn % 2].data(), engram::RowFormat::kBf16});
  };
  const double cpu = CpuSeconds();
  const auto start = Clock::now();
  size_t turn = 0;
  Ticket open = submit(turn);
  while (SecondsSince(start) < flags.seconds) {
    const Ticket next = submit(++turn);
    Wait(store, std::exchange(open, next));
  }
  Wait(store, open);
  const double read = static_cast<double>(kRows * (turn + 1));
  report->Add("rows.store_per_s", read / SecondsSince(start));
  report->Add("rows.store_cpu_us", (CpuSeconds() - cpu) * 1e6 / read);
}

// Repeats `once` for the time given; p50 in microseconds.
double MedianTime(const Flags& flags, const std::function<void()>& once) {
  std::vector<double> times;
  const auto start = Clock::now();
  while (SecondsSince(start) < flags.seconds) {
    const auto begin = Clock::now();
    once();
    times.push_back(SecondsSince(begin) * 1e6);
  }
  return Percentile(times, 0.5);
}

void MeasureToken(const Flags& flags, Store* store, Report* report) {
  static RowSequence sequence(store->table(0).rows);
  static const PlainReader plain(flags.file, /*direct=*/true);
  std::vector<uint64_t> rows(2 * kPerTable);
  std::vector<uint16_t> out(rows.size() * kRowValues);
  const engram::LookupRequest requests[] = {
      {0, std::span(rows).first(kPerTable), out.data(),
       engram::RowFormat::kBf16},
      {1, std::span(rows).last(kPerTable), out.data() + kPerTable * kRowValues,
       engram::RowFormat::kBf16}};
  report->Add("token.store_p50_us", MedianTime(flags, [&] {
                sequence.Next(rows);
                Ticket tickets[2];
                store->Submit(requests, tickets);
                for (Ticket ticket : tickets) Wait(store, ticket);
              }));
  report->Add("token.threads_p50_us", MedianTime(flags, [&] {
                sequence.Next(rows);
                plain.ReadByNewThreads(rows, 16, out.data());
              }));
}

// Rows of the warm set, another choice each time.
class WarmRows {
 public:
  std::span<const uint64_t> Next() {
    for (uint64_t& row : rows_) row = rng_() % kWarmSet;
    return rows_;
  }

 private:
  std::mt19937_64 rng_{7};
  std::vector<uint64_t> rows_ = std::vector<uint64_t>(kWarmRows);
};

double WarmTime(const Flags& flags, Store* store) {
  WarmRows rows;
  std::vector<uint16_t> out(kWarmSet * kRowValues);
  std::vector<uint64_t> all(kWarmSet);
  for (uint64_t i = 0; i < kWarmSet; ++i) all[i] = i;
  for (int i = 0; i < 3; ++i) {  // a cache lets rows in that come again
    Wait(store, store->Submit({0, all, out.data(), engram::RowFormat::kBf16}));
  }
  return MedianTime(flags, [&] {
    Wait(store,
         store->Submit({0, rows.Next(), out.data(), engram::RowFormat::kBf16}));
  });
}

void MeasureWarm(const Flags& flags, Report* report) {
  const auto file = Value(OpenFile(flags.file));
  std::vector<uint8_t> table(kWarmSet * kRowBytes);
  if (!file->ReadExact(0, table).ok()) Fail("cannot read the warm rows");
  WarmRows rows;
  std::vector<uint16_t> out(kWarmRows * kRowValues);
  report->Add("warm.copy_decode_us", MedianTime(flags, [&] {
                CopyAndDecode(table, rows.Next(), out.data());
              }));
  const auto measure = [&](const char* name, IoMode mode, uint64_t cache) {
    const auto store =
        OpenStore(flags, {.io = mode, .cache_bytes = cache}, kWarmSet);
    report->Add(name, WarmTime(flags, store.get()));
  };
  measure("warm.cache_us", IoMode::kUring, uint64_t{64} << 20);
  measure("warm.mmap_us", IoMode::kMmap, 0);
  measure("warm.ram_us", IoMode::kRam, 0);
}

void MeasurePages(const Flags& flags, Report* report) {
  const PlainReader plain(flags.file, /*direct=*/false);
  WarmRows rows;
  std::vector<uint16_t> out(kWarmRows * kRowValues);
  const auto store =
      OpenStore(flags, {.io = IoMode::kBuffered, .cache_bytes = 0}, kWarmSet);
  report->Add("pages.buffered_us", WarmTime(flags, store.get()));
  report->Add("pages.pread_us", MedianTime(flags, [&] {
                plain.ReadLoop(rows.Next(), out.data());
              }));
}

void MeasureFioToo(const Flags& flags, bool rows, bool token, Report* report) {
  if (rows) {
    const Measured fio = MeasureFio(flags.file, 256, 4096, flags.seconds);
    report->Add("rows.fio_per_s", fio.reads_per_second);
    report->Add("rows.fio_cpu_us", fio.cpu_us);
  }
  if (token) {
    const Measured fio = MeasureFio(flags.file, 48, 4096, flags.seconds);
    report->Add("token.fio_p50_us", fio.p50_us);
  }
}

void AddRatio(const char* name, const char* a, const char* b, Report* report) {
  if (report->Median(b) > 0) {
    report->Add(name, report->Median(a) / report->Median(b));
  }
}

void Run(const Flags& flags) {
  const auto wants = [&](const char* part) {
    return flags.only.empty() || flags.only == part;
  };
  Report report;
  std::unique_ptr<Store> store;
  if (wants("rows") || wants("token")) {
    store = OpenStore(flags, {.io = IoMode::kUring, .cache_bytes = 0});
  }
  for (int round = 0; round < flags.rounds; ++round) {
    if (wants("rows")) MeasureRows(flags, store.get(), &report);
    if (wants("token")) MeasureToken(flags, store.get(), &report);
    if (flags.fio) MeasureFioToo(flags, wants("rows"), wants("token"), &report);
    if (wants("warm")) MeasureWarm(flags, &report);
    if (wants("pages")) MeasurePages(flags, &report);
  }
  AddRatio("ratio.rows", "rows.store_per_s", "rows.fio_per_s", &report);
  AddRatio("ratio.cpu", "rows.store_cpu_us", "rows.fio_cpu_us", &report);
  AddRatio("ratio.token", "token.store_p50_us", "token.fio_p50_us", &report);
  AddRatio("ratio.token_threads", "token.threads_p50_us", "token.store_p50_us",
           &report);
  for (const std::string way : {"cache", "mmap", "ram"}) {
    AddRatio(("ratio.warm_" + way).c_str(), ("warm." + way + "_us").c_str(),
             "warm.copy_decode_us", &report);
  }
  AddRatio("ratio.pages", "pages.buffered_us", "pages.pread_us", &report);
  report.Print(flags.json);
}

Flags Parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) Fail(arg + " needs a value");
      return std::string(argv[++i]);
    };
    if (arg == "--make") {
      flags.make_gib = std::strtoull(value().c_str(), nullptr, 10);
    } else if (arg == "--rounds") {
      flags.rounds = std::atoi(value().c_str());
    } else if (arg == "--seconds") {
      flags.seconds = std::atof(value().c_str());
    } else if (arg == "--only") {
      flags.only = value();
    } else if (arg == "--no-fio") {
      flags.fio = false;
    } else if (arg == "--json") {
      flags.json = true;
    } else if (arg[0] == '-') {
      Fail("unknown flag " + arg);
    } else {
      flags.file = arg;
    }
  }
  if (flags.file.empty()) Fail("name a file of rows");
  return flags;
}

}  // namespace
}  // namespace ecphory

int main(int argc, char** argv) {
  ecphory::ShowUsage(
      argc, argv,
      "engram_bench FILE [--make GIB] [--rounds 5] [--seconds 1]\n"
      "                    [--only rows|token|warm|pages] [--no-fio] [--json]\n"
      "FILE holds rows of 264 bytes from its first byte on; --make writes it "
      "first.\n");
  const ecphory::Flags flags = ecphory::Parse(argc, argv);
  if (flags.make_gib > 0) ecphory::MakeFile(flags);
  ecphory::Run(flags);
  return 0;
}
