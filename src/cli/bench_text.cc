// Tables of `ecphory bench`.
#include <algorithm>

#include "bench_output.h"
#include "sizes.h"

namespace ecphory::cli {

namespace {

// "812 us", "3.41 ms": three digits and a unit.
std::string Time(double seconds) {
  constexpr const char* kUnits[] = {"s", "ms", "us", "ns"};
  size_t unit = 0;
  // 999.5 would be rounded to four digits.
  for (; unit < 3 && seconds < 0.9995; ++unit) seconds *= 1e3;
  const int decimals = seconds < 9.995 ? 2 : seconds < 99.95 ? 1 : 0;
  return Format("%.*f %s", decimals, seconds, kUnits[unit]);
}

std::string Rate(double amount, double seconds) {
  if (amount <= 0 || seconds <= 0) return "-";
  return Format("%.1f", amount / seconds / 1e9);
}

std::string ConditionsText(const BenchReport& report) {
  std::string text = Format(
      "%s, %u processors, %s of memory, %s, %s\n"
      "%u threads, %s, %s pages, buffers of %s",
      report.cpu.c_str(), report.processors,
      HumanBytes(report.memory_bytes).c_str(), report.system.c_str(),
      report.date.c_str(), report.threads, report.backend.c_str(),
      report.pages == "huge" ? "2 MiB" : "4 KiB",
      HumanBytes(report.working_set).c_str());
  if (!report.ops.empty()) text += ", operators at " + report.sizes + " sizes";
  return text + "\n";
}

std::string YardstickText(const BenchYardstick& yardstick) {
  const BenchSpread& value = yardstick.value;
  return Format("  %-12s %8.1f  (%.1f .. %.1f)  G%s  %s\n",
                yardstick.name.c_str(), value.median / 1e9, value.min / 1e9,
                value.max / 1e9, yardstick.unit.c_str(),
                yardstick.what.c_str());
}

std::string FigureText(const BenchFigure& figure) {
  const BenchSpread& s = figure.seconds;
  const std::string share =
      figure.bound.empty() ? ""
                           : Format("%.2f (%.2f .. %.2f)", figure.share.median,
                                    figure.share.p10, figure.share.p90);
  return Format("  %-36s %9s  %9s %9s %8s %9s  %-11s %s\n", figure.name.c_str(),
                Time(s.median).c_str(), Time(s.p10).c_str(),
                Time(s.p90).c_str(), Rate(figure.bytes, s.median).c_str(),
                Rate(figure.flops, s.median).c_str(), figure.bound.c_str(),
                share.c_str());
}

std::string FigureHead() {
  return Format("\n  %-36s %9s  %9s %9s %8s %9s  %-11s %s\n", "", "median",
                "p10", "p90", "GB/s", "GFLOP/s", "bound", "share (p10 .. p90)");
}

std::string PartsText(const BenchPass& pass) {
  std::string text;
  for (const BenchPart& part : pass.parts) {
    text += Format("    %-24s %9s %6.1f %%\n", part.name.c_str(),
                   Time(part.seconds).c_str(), 100 * part.share);
  }
  return text;
}

// What a step of several sequences does.
std::string SequencesText(const BenchPass& pass, const BenchModel& model) {
  if (pass.sequences == 1) return "";
  return Format(
      "    %u sequences: %.1f tokens/s in all; a step reads %.1f of %u routed "
      "experts, and draws the best token of each where the logits are\n",
      pass.sequences, pass.tokens / pass.figure.seconds.median, pass.experts,
      model.routed_experts);
}

std::string ModelText(const BenchModel& model) {
  std::string text = Format(
      "\n%s%s%s: %u threads, %s, activations %s; opened in %s; first token "
      "after a prompt of %u: %s\n",
      model.path.c_str(), model.name.empty() ? "" : ", ", model.name.c_str(),
      model.threads, model.backend.c_str(), model.activations.c_str(),
      Time(model.open_seconds).c_str(), model.prompt,
      Time(model.first_token_seconds).c_str());
  text += FigureHead() + FigureText(model.prefill.figure);
  text += Format("    %.1f tokens/s",
                 model.prefill.tokens / model.prefill.figure.seconds.median);
  if (model.prefill.of_sgemm > 0) {
    text += Format(", %.2f of the rate of sgemm", model.prefill.of_sgemm);
  }
  text += "\n";
  text += PartsText(model.prefill);
  for (const BenchPass& pass : model.decode) {
    text +=
        FigureText(pass.figure) + SequencesText(pass, model) + PartsText(pass);
  }
  if (!model.decode.empty()) {
    text +=
        "  decode/N: a step after N tokens; the caches were filled with random "
        "rows\n";
  }
  return text +
         "  indented: time by operators, of a pass of its own that is slower "
         "for being watched\n";
}

}  // namespace

std::string BenchText(const BenchReport& report) {
  std::string text = ConditionsText(report) + "\n";
  for (const BenchYardstick& yardstick : report.yardsticks) {
    text += YardstickText(yardstick);
  }
  if (!report.ops.empty()) text += FigureHead();
  for (const BenchFigure& figure : report.ops) text += FigureText(figure);
  for (const BenchModel& model : report.models) text += ModelText(model);
  for (const std::string& note : report.notes) text += "\n  " + note + "\n";
  return text;
}

}  // namespace ecphory::cli
