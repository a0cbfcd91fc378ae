// `ecphory bench --json`.
#include "bench_output.h"

namespace ecphory::cli {

namespace {

// Of the layout that docs/bench.md describes.
constexpr int kVersion = 1;

Json SpreadJson(const BenchSpread& spread) {
  return Json{{"median", spread.median}, {"p10", spread.p10},
              {"p90", spread.p90},       {"min", spread.min},
              {"max", spread.max},       {"rounds", spread.rounds}};
}

Json FigureJson(const BenchFigure& figure) {
  return Json{{"name", figure.name},   {"seconds", SpreadJson(figure.seconds)},
              {"bytes", figure.bytes}, {"flops", figure.flops},
              {"bound", figure.bound}, {"bound_seconds", figure.bound_seconds},
              {"share", figure.share}};
}

Json ConditionsJson(const BenchReport& report) {
  return Json{{"date", report.date},
              {"system", report.system},
              {"cpu", report.cpu},
              {"processors", report.processors},
              {"memory_bytes", report.memory_bytes},
              {"threads", report.threads},
              {"backend", report.backend},
              {"pages", report.pages},
              {"working_set", report.working_set}};
}

}  // namespace

Json BenchJson(const BenchReport& report) {
  Json yardsticks = Json::array(), ops = Json::array();
  for (const BenchYardstick& yardstick : report.yardsticks) {
    yardsticks.push_back(Json{{"name", yardstick.name},
                              {"what", yardstick.what},
                              {"unit", yardstick.unit},
                              {"value", SpreadJson(yardstick.value)}});
  }
  for (const BenchFigure& figure : report.ops) {
    ops.push_back(FigureJson(figure));
  }
  return Json{{"version", kVersion},
              {"conditions", ConditionsJson(report)},
              {"yardsticks", std::move(yardsticks)},
              {"ops", std::move(ops)},
              {"notes", report.notes}};
}

}  // namespace ecphory::cli
