#include "trace/report_facts.h"

#include "trace/format.h"

namespace ecphory::trace {

namespace {

double Ratio(double a, double b) { return b > 0 ? a / b : 0; }

}  // namespace

double PerToken(const EngramLoss& loss, double bits) {
  return Ratio(bits, static_cast<double>(loss.tokens));
}

double PerByte(const EngramLoss& loss, double bits) {
  return Ratio(bits, static_cast<double>(loss.bytes));
}

double PerSecond(uint64_t tokens, double seconds) {
  return Ratio(static_cast<double>(tokens), seconds);
}

double StoreHitRate(const EngramStoreUse& store) {
  return Ratio(static_cast<double>(store.cache_hits),
               static_cast<double>(store.cache_hits + store.rows_read));
}

std::string Duration(double seconds) {
  if (seconds <= 0) return "0";
  if (seconds < 1e-3) return Print("%.3g us", seconds * 1e6);
  if (seconds < 1) return Print("%.3g ms", seconds * 1e3);
  return Print("%.3g s", seconds);
}

std::vector<std::pair<std::string, std::string>> ConditionLines(
    const EngramReportConditions& c) {
  std::vector<std::pair<std::string, std::string>> lines = {
      {"model", c.path + (c.name.empty() ? "" : " (" + c.name + ")")},
      {"ecphory", c.version + ", " + c.backend +
                      Print(", %u threads, one sequence at a time", c.threads)},
      {"passes", Print("windows of %u tokens, %u tokens a pass; decoding one "
                       "token a pass",
                       c.context, c.chunk)},
      {"machine", (c.processor.empty() ? "unknown processor" : c.processor) +
                      ", " + Bytes(static_cast<double>(c.memory_bytes)) + ", " +
                      c.system},
      {"reading", c.io.reason.empty() ? c.io.mode : c.io.reason},
      {"row cache",
       c.cache_bytes == 0 ? "off" : Bytes(static_cast<double>(c.cache_bytes))}};
  for (const EngramTableResidency& table : c.tables) {
    const auto bytes = static_cast<double>(table.bytes);
    const auto share = [&](uint64_t resident) {
      return 100 * Ratio(static_cast<double>(resident), bytes);
    };
    lines.emplace_back(
        Print("table of layer %u", table.layer),
        Bytes(bytes) +
            Print(", in the page cache %.2f %% before, %.2f %% after",
                  share(table.resident_before), share(table.resident_after)));
  }
  return lines;
}

}  // namespace ecphory::trace
