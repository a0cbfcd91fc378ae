#include "measure/yardsticks.h"

#include <algorithm>
#include <utility>

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

// Where MemoryYardsticks() has them.
constexpr size_t kReadAt = 0, kUpdateAt = 1;

// Enough arithmetic for a millisecond or so.
constexpr size_t kFmaRounds = 100'000;

// Parts of the buffer a thread: few enough to be long, many enough that those
// of a thread that is held up are taken over by others, as with operators.
constexpr size_t kParts = 16;

// What a call takes of the buffer, so much longer than it takes to start and
// end it that this does not count.
constexpr size_t kStretch = size_t{64} << 20;

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

// Those of arithmetic that this processor has.
Yardstick ArithmeticYardstick(Arithmetic arithmetic, ThreadPool& pool) {
  const bool bf16 = arithmetic == Arithmetic::kBF16;
  double (*const work)(size_t) = bf16 ? MultiplyAddsBf16 : MultiplyAdds;
  return {.name = bf16 ? kBf16 : kFma,
          .what = bf16 ? "bf16 multiply-adds on registers"
                       : "fp32 multiply-adds on registers",
          .counted = Amount::kFlops,
          .amount = work(kFmaRounds) * static_cast<double>(pool.threads()),
          .call = [=, &pool] {
            pool.ParallelFor(pool.threads(), 1,
                             [&](size_t begin, size_t end, size_t) {
                               for (size_t i = begin; i < end; ++i) {
                                 work(kFmaRounds);
                               }
                             });
          }};
}

const char* UnitOf(Amount counted) {
  return counted == Amount::kBytes ? "B/s" : "FLOP/s";
}

}  // namespace

void Yardsticks::Add(const Yardstick& yardstick,
                     const std::vector<double>& rates) {
  auto entry =
      std::find_if(entries_.begin(), entries_.end(),
                   [&](const Entry& e) { return e.name == yardstick.name; });
  if (entry == entries_.end()) {
    entry = entries_.insert(
        entry, Entry{yardstick.name, yardstick.what, yardstick.counted, {}});
  }
  entry->rates.insert(entry->rates.end(), rates.begin(), rates.end());
}

void Yardsticks::Add(const Beside& beside) {
  for (const Beside::Side& side : beside.sides()) {
    if (side.yardstick.call) Add(side.yardstick, side.rates);
  }
}

void Yardsticks::Measure(const Yardstick& yardstick) {
  std::vector<double> rates;
  for (const double s : Sample({yardstick.call, nullptr}, options_.sample)) {
    rates.push_back(yardstick.amount / s);
  }
  Add(yardstick, rates);
}

Result<std::shared_ptr<Buffer>> Yardsticks::Memory(BenchPages pages,
                                                   ThreadPool& pool) {
  if (memory_ == nullptr || memory_pages_ != pages) {
    memory_.reset();  // before the next: both would not have to fit
    ECPHORY_ASSIGN_OR_RETURN(Buffer made,
                             Buffer::Create(options_.bytes, pages));
    made.FillFloats(pool);
    memory_ = std::make_shared<Buffer>(std::move(made));
    memory_pages_ = pages;
    turn_ = std::make_shared<size_t>(0);
  }
  return memory_;
}

Result<Yardsticks::Made> Yardsticks::MemoryYardsticks(BenchPages pages,
                                                      ThreadPool& pool) {
  ECPHORY_ASSIGN_OR_RETURN(const auto memory, Memory(pages, pool));
  const MemoryNames names = NamesFor(pages);
  const size_t half = memory->size() / 2;
  const size_t bytes = std::min(half, kStretch);
  // Calls take one stretch after the other, as operators take their weights:
  // what is in a cache of some hundred megabytes when its turn comes is then as
  // little of the one as of the other.
  const auto stretches = [&](size_t of, auto body) {
    return [=, &pool, turn = turn_] {
      uint8_t* const begin = memory->data() + (*turn)++ % (of / bytes) * bytes;
      InParts(bytes, pool,
              [&](size_t at, size_t size) { body(begin + at, size); });
    };
  };
  const double counted = static_cast<double>(bytes);
  Made made;
  made.push_back({names.read, names.read_what, Amount::kBytes, counted,
                  stretches(memory->size(), ReadBytes)});
  made.push_back({names.update, names.update_what, Amount::kBytes, 2 * counted,
                  stretches(memory->size(), [](uint8_t* at, size_t n) {
                    NegateFloats(reinterpret_cast<float*>(at),
                                 n / sizeof(float));
                  })});
  made.push_back({names.copy, names.copy_what, Amount::kBytes, 2 * counted,
                  stretches(half, [half](uint8_t* at, size_t n) {
                    CopyBytes(at, n, at + half);
                  })});
  return made;
}

// A pass of 512 tokens through a projection of the released experts.
Result<Yardsticks::Made> Yardsticks::SgemmYardsticks(ThreadPool& pool) const {
  constexpr size_t kTokens = 512, kRows = 2304, kCols = 5120;
  if (options_.sgemm == nullptr) return Made();
  auto buffers = std::make_shared<std::vector<Buffer>>();
  for (const size_t count : {kTokens * kCols, kRows * kCols, kTokens * kRows}) {
    ECPHORY_ASSIGN_OR_RETURN(
        Buffer buffer,
        Buffer::Create(count * sizeof(float), BenchPages::kSmall));
    buffer.FillFloats(pool);
    buffers->push_back(std::move(buffer));
  }
  const Sgemm* const sgemm = options_.sgemm;
  return Made{{"sgemm", "fp32 product 512 x 5120 x 2304 by " + sgemm->name(),
               Amount::kFlops, 2.0 * kTokens * kRows * kCols, [=] {
                 sgemm->Run((*buffers)[0].floats(), (*buffers)[1].floats(),
                            (*buffers)[2].floats(), kTokens, kRows, kCols);
               }}};
}

Status Yardsticks::Measure(ThreadPool& pool) {
  for (const BenchPages pages : {BenchPages::kSmall, BenchPages::kHuge}) {
    if (pages == BenchPages::kHuge && !HugePagesAllowed()) continue;
    ECPHORY_ASSIGN_OR_RETURN(const Made made, MemoryYardsticks(pages, pool));
    for (const Yardstick& yardstick : made) Measure(yardstick);
  }
  for (const Arithmetic arithmetic : {Arithmetic::kF32, Arithmetic::kBF16}) {
    const Yardstick yardstick = ArithmeticYardstick(arithmetic, pool);
    if (yardstick.amount > 0) Measure(yardstick);
  }
  ECPHORY_ASSIGN_OR_RETURN(const Made peers, SgemmYardsticks(pool));
  for (const Yardstick& peer : peers) Measure(peer);
  return {};
}

Status Yardsticks::MeasureDevice(Device& device) {
  using Bytes = DeviceArray<uint8_t>;
  ECPHORY_ASSIGN_OR_RETURN(Bytes from, Bytes::Allocate(device, kDeviceBytes));
  ECPHORY_ASSIGN_OR_RETURN(Bytes to, Bytes::Allocate(device, kDeviceBytes));
  ECPHORY_ASSIGN_OR_RETURN(const auto queue, device.NewQueue());
  const Queue::Scope scope(*queue);
  // Not zeros: memory may be faster with them.
  queue->Fill(from.data(), 0x5a, from.size() / 2);
  queue->Fill(from.data() + from.size() / 2, 0xc3, from.size() / 2);
  std::vector<double> rates;
  for (size_t i = 0; i < options_.sample.rounds; ++i) {
    queue->Copy(to.data(), from.data(), from.size());  // the clock is awake
    queue->Mark();
    queue->Copy(to.data(), from.data(), from.size());
    queue->Mark();
    rates.push_back(2.0 * kDeviceBytes / queue->SecondsBetweenMarks());
  }
  ECPHORY_RETURN_IF_ERROR(queue->Finish());
  Add({kDeviceCopy, "copying on the device (bytes read and written)",
       Amount::kBytes, 2.0 * kDeviceBytes, nullptr},
      rates);
  return {};
}

// Half of the time of a round, of which the figure has the other half.
double Yardsticks::LookSeconds() const {
  return options_.sample.seconds / options_.sample.rounds / 2;
}

Result<Beside> Yardsticks::BoundsOf(const Limits& limits, ThreadPool& pool) {
  const double device = Rate(kDeviceCopy);
  if (device > 0) {
    return Beside({{kDeviceCopy, "", Amount::kBytes, device, nullptr}},
                  LookSeconds());
  }
  const bool huge = limits.traffic == Traffic::kUpdateHuge;
  ECPHORY_ASSIGN_OR_RETURN(
      Made memory,
      MemoryYardsticks(huge ? BenchPages::kHuge : options_.pages, pool));
  const bool read = limits.traffic == Traffic::kRead;
  Made bounds = {std::move(memory[read ? kReadAt : kUpdateAt])};
  if (limits.arithmetic != Arithmetic::kNone) {
    Yardstick arithmetic = ArithmeticYardstick(limits.arithmetic, pool);
    bounds.push_back(arithmetic.amount > 0
                         ? std::move(arithmetic)
                         : ArithmeticYardstick(Arithmetic::kF32, pool));
  }
  return Beside(std::move(bounds), LookSeconds());
}

Result<Beside> Yardsticks::PeerOf(ThreadPool& pool) {
  ECPHORY_ASSIGN_OR_RETURN(Made peers, SgemmYardsticks(pool));
  return Beside(std::move(peers), LookSeconds());
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
        {entry.name, entry.what, UnitOf(entry.counted), SpreadOf(entry.rates)});
  }
  return report;
}

}  // namespace ecphory::measure
