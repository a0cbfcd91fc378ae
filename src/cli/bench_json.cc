// `ecphory bench --json`.
#include "bench_output.h"

namespace ecphory::cli {

namespace {

// Of the layout that docs/bench.md describes.
constexpr int kVersion = 2;

Json SpreadJson(const BenchSpread& spread) {
  return Json{{"median", spread.median}, {"p10", spread.p10},
              {"p90", spread.p90},       {"min", spread.min},
              {"max", spread.max},       {"rounds", spread.rounds}};
}

Json FigureJson(const BenchFigure& figure) {
  return Json{{"name", figure.name},
              {"seconds", SpreadJson(figure.seconds)},
              {"bytes", figure.bytes},
              {"flops", figure.flops},
              {"bound", figure.bound},
              {"bound_seconds", figure.bound_seconds},
              {"share", SpreadJson(figure.share)}};
}

Json PassJson(const BenchPass& pass) {
  Json parts = Json::array();
  for (const BenchPart& part : pass.parts) {
    parts.push_back(Json{{"name", part.name},
                         {"seconds", part.seconds},
                         {"share", part.share},
                         {"calls", part.calls}});
  }
  Json json = FigureJson(pass.figure);
  json["context"] = pass.context;
  json["tokens"] = pass.tokens;
  json["sequences"] = pass.sequences;
  json["experts"] = pass.experts;
  json["tokens_per_second"] = pass.tokens / pass.figure.seconds.median;
  json["of_sgemm"] = pass.of_sgemm;
  json["engram_wait_seconds"] = pass.engram_wait_seconds;
  json["parts"] = std::move(parts);
  return json;
}

Json ModelJson(const BenchModel& model) {
  Json decode = Json::array();
  for (const BenchPass& pass : model.decode) decode.push_back(PassJson(pass));
  return Json{{"path", model.path},
              {"name", model.name},
              {"backend", model.backend},
              {"threads", model.threads},
              {"engram_place", model.engram_place},
              {"engram_io", model.engram_io},
              {"activations", model.activations},
              {"open_seconds", model.open_seconds},
              {"first_token_seconds", model.first_token_seconds},
              {"prompt", model.prompt},
              {"routed_experts", model.routed_experts},
              {"prefill", PassJson(model.prefill)},
              {"decode", std::move(decode)}};
}

Json ConditionsJson(const BenchReport& report) {
  return Json{{"date", report.date},
              {"system", report.system},
              {"cpu", report.cpu},
              {"processors", report.processors},
              {"memory_bytes", report.memory_bytes},
              {"threads", report.threads},
              {"backend", report.backend},
              {"sizes", report.sizes},
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
  Json models = Json::array();
  for (const BenchModel& model : report.models) {
    models.push_back(ModelJson(model));
  }
  return Json{{"version", kVersion},
              {"conditions", ConditionsJson(report)},
              {"yardsticks", std::move(yardsticks)},
              {"ops", std::move(ops)},
              {"models", std::move(models)},
              {"notes", report.notes}};
}

Json BenchNamesJson(const std::vector<std::string>& names) {
  return Json{{"version", kVersion}, {"names", names}};
}

}  // namespace ecphory::cli
