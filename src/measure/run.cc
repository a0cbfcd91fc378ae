// RunBench: conditions, yardsticks, operators and a model in turn with what
// bounds them, yardsticks again.
#include <algorithm>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "base/quote.h"
#include "ecphory/bench.h"
#include "measure/model_run.h"
#include "measure/op_case.h"
#include "measure/spread.h"
#include "measure/yardsticks.h"
#include "model/compute_threads.h"
#include "model/source.h"
#include "trace/conditions.h"

namespace ecphory {

namespace measure {
namespace {

std::string UtcDate() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  ::gmtime_r(&now, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%FT%TZ", &utc)};
}

void FillConditions(const BenchOptions& options, const Device& device,
                    const ThreadPool& pool, BenchReport* report) {
  report->date = UtcDate();
  report->system = trace::SystemName();
  report->cpu = trace::ProcessorName();
  report->processors = std::thread::hardware_concurrency();
  report->memory_bytes = trace::MemoryBytes();
  report->threads = static_cast<uint32_t>(pool.threads());
  report->backend = device.name();
  report->sizes = SizesOf(options.sizes).name;
  report->pages = options.pages == BenchPages::kHuge ? "huge" : "small";
  report->working_set = options.working_set;
  if (!HugePagesAllowed()) {
    report->notes.push_back("read_huge: this system gives no huge pages");
  }
}

std::vector<OpCase> ChosenCases(const BenchOptions& options) {
  std::vector<OpCase> chosen;
  if (!options.ops) return chosen;
  for (OpCase& op : OpCases(SizesOf(options.sizes))) {
    if (op.name.find(options.filter) == std::string::npos) continue;
    chosen.push_back(std::move(op));
  }
  return chosen;
}

// Before minutes of other figures: whether the model's files are there and say
// what they must. Reads headers only.
Status CheckModel(const BenchOptions& options) {
  if (options.model.empty()) return {};
  ECPHORY_ASSIGN_OR_RETURN(const ModelSource source,
                           OpenModelSource(options.model));
  return CheckRoom(options, source.config);
}

class Run {
 public:
  Run(const BenchOptions& options, Device& device,
      const ComputeThreads& threads, ThreadPool& pool)
      : options_(options),
        device_(device),
        threads_(threads),
        pool_(pool),
        context_(device.ops(), pool, options) {}

  Status Measure(const std::vector<OpCase>& cases, BenchReport* report) {
    total_ = cases.size() + ModelSteps(options_) + 2;
    if (device_.is_host()) ECPHORY_RETURN_IF_ERROR(LoadSgemm(report));
    Yardsticks yardsticks({.sample = {options_.seconds, options_.rounds},
                           .bytes = options_.working_set,
                           .pages = options_.pages,
                           .sgemm = sgemm_.get()});
    ECPHORY_RETURN_IF_ERROR(MeasureYardsticks(yardsticks));
    ECPHORY_RETURN_IF_ERROR(MeasureOps(cases, yardsticks, report));
    if (!options_.model.empty()) {
      ECPHORY_ASSIGN_OR_RETURN(
          BenchModel model,
          MeasureModel(options_, yardsticks,
                       [&](const std::string& what) { return Step(what); }));
      report->models.push_back(std::move(model));
    }
    ECPHORY_RETURN_IF_ERROR(MeasureYardsticks(yardsticks));
    report->yardsticks = yardsticks.Report();
    return {};
  }

 private:
  Status Step(const std::string& what) {
    if (options_.progress && !options_.progress(what, done_, total_)) {
      return Cancelled("stopped before %s", what.c_str());
    }
    ++done_;
    return {};
  }

  // Bound only here: a model binds by itself, and a library's threads would
  // inherit where this one may run.
  Status MeasureOps(const std::vector<OpCase>& cases, Yardsticks& yardsticks,
                    BenchReport* report) {
    ECPHORY_ASSIGN_OR_RETURN(const ThreadBinding binding, BindCaller(threads_));
    for (const OpCase& op : cases) {
      ECPHORY_RETURN_IF_ERROR(Step(op.name));
      ECPHORY_ASSIGN_OR_RETURN(BenchFigure figure, MeasureCase(op, yardsticks));
      report->ops.push_back(std::move(figure));
    }
    return {};
  }

  // In turn with what bounds it, if anything does: half of the time for each.
  Result<BenchFigure> MeasureCase(const OpCase& op, Yardsticks& yardsticks) {
    auto prepared = op.prepare(context_);
    if (!prepared.ok()) return prepared.status().WithContext(op.name);
    BenchFigure figure;
    figure.name = op.name;
    figure.bytes = prepared->cost.bytes;
    figure.flops = prepared->cost.flops;
    Beside beside;
    if (figure.bytes > 0 || figure.flops > 0) {
      ECPHORY_ASSIGN_OR_RETURN(beside, yardsticks.BoundsOf(op.limits, pool_));
    }
    const std::vector<double> seconds =
        Sample(prepared->subject, {options_.seconds / 2, options_.rounds},
               [&] { beside.Look(); });
    figure.seconds = SpreadOf(seconds);
    beside.Hold(seconds, &figure);
    yardsticks.Add(beside);
    return figure;
  }

  Status MeasureYardsticks(Yardsticks& yardsticks) {
    ECPHORY_RETURN_IF_ERROR(Step("yardsticks"));
    return device_.is_host() ? yardsticks.Measure(pool_)
                             : yardsticks.MeasureDevice(device_);
  }

  // One that was asked for must be there; others are named when they are not.
  Status LoadSgemm(BenchReport* report) {
    auto loaded = Sgemm::Load(options_.sgemm, pool_.threads());
    if (loaded.ok()) {
      sgemm_ = std::move(*loaded);
    } else if (!options_.sgemm.empty()) {
      return loaded.status().WithContext("sgemm");
    } else {
      report->notes.push_back("sgemm: " + loaded.status().message());
    }
    return {};
  }

  const BenchOptions& options_;
  Device& device_;
  const ComputeThreads& threads_;
  ThreadPool& pool_;
  CaseContext context_;
  std::unique_ptr<Sgemm> sgemm_;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
};

// Bytes; 0 where the system does not say.
uint64_t LastLevelCache() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  uint64_t kib = 0;
  file >> kib;
  return kib << 10;
}

Result<BenchOptions> CheckOptions(BenchOptions options) {
  if (options.rounds == 0 || !(options.seconds > 0) ||
      options.prompt == uint32_t{0} || options.sequences == 0) {
    return InvalidArgument(
        "rounds, seconds, prompt and sequences must be more than 0");
  }
  const uint64_t smallest = SizesOf(options.sizes).smallest_set;
  if (options.working_set == 0) {
    options.working_set = options.sizes == BenchSizes::kReleased
                              ? std::max(smallest, 4 * LastLevelCache())
                              : smallest;
  }
  if (options.working_set < smallest) {
    return InvalidArgument("working set of %llu bytes, expected %llu or more",
                           static_cast<unsigned long long>(options.working_set),
                           static_cast<unsigned long long>(smallest));
  }
  return options;
}

}  // namespace
}  // namespace measure

Result<BenchReport> RunBench(const BenchOptions& asked) {
  ECPHORY_ASSIGN_OR_RETURN(const BenchOptions options,
                           measure::CheckOptions(asked));
  ECPHORY_ASSIGN_OR_RETURN(const std::shared_ptr<Device> device,
                           OpenDevice(options.model_options.backend));
  if (options.ops && !device->is_host()) {
    return Unsupported(
        "--ops: operators are measured on the processor; "
        "on %s measure a model",
        device->name().c_str());
  }
  const std::vector<measure::OpCase> cases = measure::ChosenCases(options);
  if (options.ops && cases.empty()) {
    return InvalidArgument("no figure's name holds %s",
                           Quoted(options.filter).c_str());
  }
  ECPHORY_RETURN_IF_ERROR(measure::CheckModel(options));
  ECPHORY_ASSIGN_OR_RETURN(const ComputeThreads threads,
                           ChooseThreads(options.model_options));
  ECPHORY_ASSIGN_OR_RETURN(const std::unique_ptr<ThreadPool> pool,
                           StartThreads(threads));
  BenchReport report;
  measure::FillConditions(options, *device, *pool, &report);
  measure::Run run(options, *device, threads, *pool);
  ECPHORY_RETURN_IF_ERROR(run.Measure(cases, &report));
  return report;
}

std::vector<std::string> BenchFigures(BenchSizes sizes) {
  std::vector<std::string> names;
  for (const auto& op : measure::OpCases(measure::SizesOf(sizes))) {
    names.push_back(op.name);
  }
  return names;
}

}  // namespace ecphory
