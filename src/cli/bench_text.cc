// Tables of `ecphory bench`.
#include <algorithm>

#include "bench_output.h"
#include "sizes.h"

namespace ecphory::cli {

namespace {

// "812 us", "3.41 ms": three digits and a unit.
std::string Time(double seconds) {
  if (seconds >= 1) return Format("%.3g s", seconds);
  if (seconds >= 1e-3) return Format("%.3g ms", seconds * 1e3);
  if (seconds >= 1e-6) return Format("%.3g us", seconds * 1e6);
  return Format("%.3g ns", seconds * 1e9);
}

std::string Rate(double amount, double seconds) {
  if (amount <= 0 || seconds <= 0) return "-";
  return Format("%.1f", amount / seconds / 1e9);
}

std::string ConditionsText(const BenchReport& report) {
  return Format(
      "%s, %u processors, %s of memory, %s, %s\n"
      "%u threads, %s, %s pages, weights over %s\n",
      report.cpu.c_str(), report.processors,
      HumanBytes(report.memory_bytes).c_str(), report.system.c_str(),
      report.date.c_str(), report.threads, report.backend.c_str(),
      report.pages == "huge" ? "2 MiB" : "4 KiB",
      HumanBytes(report.working_set).c_str());
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
      figure.bound.empty() ? "" : Format("%.2f", figure.share);
  return Format("  %-36s %9s  %9s %9s %8s %9s  %-11s %5s\n",
                figure.name.c_str(), Time(s.median).c_str(),
                Time(s.p10).c_str(), Time(s.p90).c_str(),
                Rate(figure.bytes, s.median).c_str(),
                Rate(figure.flops, s.median).c_str(), figure.bound.c_str(),
                share.c_str());
}

std::string FigureHead() {
  return Format("\n  %-36s %9s  %9s %9s %8s %9s  %-11s %5s\n", "", "median",
                "p10", "p90", "GB/s", "GFLOP/s", "bound", "share");
}

}  // namespace

std::string BenchText(const BenchReport& report) {
  std::string text = ConditionsText(report) + "\n";
  for (const BenchYardstick& yardstick : report.yardsticks) {
    text += YardstickText(yardstick);
  }
  if (!report.ops.empty()) text += FigureHead();
  for (const BenchFigure& figure : report.ops) text += FigureText(figure);
  for (const std::string& note : report.notes) text += "\n  " + note + "\n";
  return text;
}

}  // namespace ecphory::cli
