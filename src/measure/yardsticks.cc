#include "measure/yardsticks.h"

#include <algorithm>

#include "measure/buffer.h"
#include "measure/spread.h"
#include "ops/cpu/peak.h"
#include "ops/device_array.h"

namespace ecphory::measure {

namespace {

constexpr char kFma[] = "fma";
constexpr char kBf16[] = "bf16";
constexpr char kDeviceCopy[] = "device_copy";

// Several times the caches of any GPU.
constexpr size_t kDeviceBytes = size_t{1} << 30;

struct MemoryNames {
  const char* read;
  const char* read_what;
  const char* update;
  const char* update_what;
  const char* copy;
  const char* copy_what;
};

MemoryNames NamesFor(BenchPages pages) {
  if (pages == BenchPages::kHuge) {
    return {"read_huge",   "reading, 2 MiB pages asked for",
            "update_huge", "reading and writing in place, likewise",
            "copy_huge",   "copying (bytes read and written), likewise"};
  }
  return {"read",   "reading, 4 KiB pages",
          "update", "reading and writing in place, likewise",
          "copy",   "copying (bytes read and written), likewise"};
}

// Enough arithmetic for a millisecond or so.
constexpr size_t kFmaRounds = 100'000;

// Parts of the buffer a thread: few enough to be long, many enough that those
// of a thread that is held up are taken over by others, as with operators.
constexpr size_t kParts = 16;

// body(begin, bytes) over 64-byte aligned parts of `bytes`.
template <typename Body>
void InParts(size_t bytes, ThreadPool& pool, const Body& body) {
  const size_t parts = kParts * pool.threads();
  const size_t part = bytes / parts / 64 * 64;
  pool.ParallelForPieces(parts, /*grain=*/1,
                         [&](size_t begin, size_t end, size_t) {
                           for (size_t i = begin; i < end; ++i) {
                             body(i * part, part);
                           }
                         });
}

}  // namespace

void Yardsticks::Add(const char* name, const char* what, const char* unit,
                     double amount, const std::vector<double>& seconds) {
  auto entry = std::find_if(entries_.begin(), entries_.end(),
                            [&](const Entry& e) { return e.name == name; });
  if (entry == entries_.end()) {
    entry = entries_.insert(entry, Entry{name, what, unit, {}});
  }
  for (const double s : seconds) entry->rates.push_back(amount / s);
}

Status Yardsticks::MeasureMemory(const YardstickOptions& options,
                                 BenchPages pages, ThreadPool& pool) {
  ECPHORY_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Create(options.bytes, pages));
  buffer.FillFloats(pool);
  const MemoryNames names = NamesFor(pages);
  const size_t bytes = buffer.size(), half = bytes / 2;
  uint8_t* const data = buffer.data();
  const auto measure = [&](const char* name, const char* what, double amount,
                           const std::function<void()>& call) {
    Add(name, what, "B/s", amount, Sample({call, nullptr}, options.sample));
  };
  measure(names.read, names.read_what, static_cast<double>(bytes), [&] {
    InParts(bytes, pool, [&](size_t at, size_t n) { ReadBytes(data + at, n); });
  });
  measure(
      names.update, names.update_what, 2.0 * static_cast<double>(bytes), [&] {
        InParts(bytes, pool, [&](size_t at, size_t n) {
          NegateFloats(reinterpret_cast<float*>(data + at), n / sizeof(float));
        });
      });
  measure(names.copy, names.copy_what, 2.0 * static_cast<double>(half), [&] {
    InParts(half, pool, [&](size_t at, size_t n) {
      CopyBytes(data + at, n, data + half + at);
    });
  });
  return {};
}

void Yardsticks::MeasureArithmetic(const YardstickOptions& options,
                                   ThreadPool& pool) {
  const auto measure = [&](const char* name, const char* what,
                           double (*work)(size_t)) {
    const double flops = work(kFmaRounds) * static_cast<double>(pool.threads());
    if (flops <= 0) return;
    const auto call = [&] {
      pool.ParallelFor(pool.threads(), 1,
                       [&](size_t begin, size_t end, size_t) {
                         for (size_t i = begin; i < end; ++i) work(kFmaRounds);
                       });
    };
    Add(name, what, "FLOP/s", flops, Sample({call, nullptr}, options.sample));
  };
  measure(kFma, "fp32 multiply-adds on registers", MultiplyAdds);
  measure(kBf16, "bf16 multiply-adds on registers", MultiplyAddsBf16);
}

// A pass of 512 tokens through a projection of the released experts.
Status Yardsticks::MeasureSgemm(const YardstickOptions& options,
                                ThreadPool& pool) {
  constexpr size_t kTokens = 512, kRows = 2304, kCols = 5120;
  std::vector<Buffer> buffers;
  for (const size_t count : {kTokens * kCols, kRows * kCols, kTokens * kRows}) {
    ECPHORY_ASSIGN_OR_RETURN(
        Buffer buffer,
        Buffer::Create(count * sizeof(float), BenchPages::kSmall));
    buffer.FillFloats(pool);
    buffers.push_back(std::move(buffer));
  }
  const auto call = [&] {
    options.sgemm->Run(buffers[0].floats(), buffers[1].floats(),
                       buffers[2].floats(), kTokens, kRows, kCols);
  };
  const std::string what =
      "fp32 product 512 x 5120 x 2304 by " + options.sgemm->name();
  Add("sgemm", what.c_str(), "FLOP/s", 2.0 * kTokens * kRows * kCols,
      Sample({call, nullptr}, options.sample));
  return {};
}

Status Yardsticks::Measure(const YardstickOptions& options, ThreadPool& pool) {
  ECPHORY_RETURN_IF_ERROR(MeasureMemory(options, BenchPages::kSmall, pool));
  if (HugePagesAllowed()) {
    ECPHORY_RETURN_IF_ERROR(MeasureMemory(options, BenchPages::kHuge, pool));
  }
  MeasureArithmetic(options, pool);
  return options.sgemm != nullptr ? MeasureSgemm(options, pool) : Status();
}

Status Yardsticks::MeasureDevice(const YardstickOptions& options,
                                 Device& device) {
  using Bytes = DeviceArray<uint8_t>;
  ECPHORY_ASSIGN_OR_RETURN(Bytes from, Bytes::Allocate(device, kDeviceBytes));
  ECPHORY_ASSIGN_OR_RETURN(Bytes to, Bytes::Allocate(device, kDeviceBytes));
  ECPHORY_ASSIGN_OR_RETURN(const auto queue, device.NewQueue());
  const Queue::Scope scope(*queue);
  // Not zeros: memory may be faster with them.
  queue->Fill(from.data(), 0x5a, from.size() / 2);
  queue->Fill(from.data() + from.size() / 2, 0xc3, from.size() / 2);
  std::vector<double> seconds;
  for (size_t i = 0; i < options.sample.rounds; ++i) {
    queue->Copy(to.data(), from.data(), from.size());  // the clock is awake
    queue->Mark();
    queue->Copy(to.data(), from.data(), from.size());
    queue->Mark();
    seconds.push_back(queue->SecondsBetweenMarks());
  }
  ECPHORY_RETURN_IF_ERROR(queue->Finish());
  Add(kDeviceCopy, "copying on the device (bytes read and written)", "B/s",
      2.0 * kDeviceBytes, seconds);
  return {};
}

double Yardsticks::Rate(const std::string& name) const {
  for (const Entry& entry : entries_) {
    if (entry.name == name) return SpreadOf(entry.rates).median;
  }
  return 0;
}

std::vector<BenchYardstick> Yardsticks::Report() const {
  std::vector<BenchYardstick> report;
  for (const Entry& entry : entries_) {
    report.push_back(
        {entry.name, entry.what, entry.unit, SpreadOf(entry.rates)});
  }
  return report;
}

void Yardsticks::HoldTo(const Limits& limits, BenchPages pages,
                        BenchFigure* figure) const {
  const bool huge = limits.traffic == Traffic::kUpdateHuge;
  const MemoryNames names = NamesFor(huge ? BenchPages::kHuge : pages);
  const auto hold = [&](const char* name, double amount) {
    const double rate = Rate(name);
    if (rate <= 0 || amount / rate <= figure->bound_seconds) return;
    figure->bound = name;
    figure->bound_seconds = amount / rate;
  };
  hold(kDeviceCopy, figure->bytes);
  hold(limits.traffic == Traffic::kRead ? names.read : names.update,
       figure->bytes);
  const bool bf16 = limits.arithmetic == Arithmetic::kBF16 && Rate(kBf16) > 0;
  if (limits.arithmetic != Arithmetic::kNone) {
    hold(bf16 ? kBf16 : kFma, figure->flops);
  }
  if (figure->seconds.median > 0) {
    figure->share = figure->bound_seconds / figure->seconds.median;
  }
}

}  // namespace ecphory::measure
