// A report for the terminal.
#include "ecphory/engram_report.h"
#include "trace/format.h"
#include "trace/report_facts.h"

namespace ecphory {

namespace {

using trace::Bytes;
using trace::Duration;
using trace::Grouped;
using trace::Print;

std::string LossText(const EngramKindReport& k) {
  const EngramLoss& loss = k.loss;
  const EngramSpeed& s = k.speed;
  std::string text = Print("  %-28s %12s %12s\n", "", "Engram on", "off");
  const auto line = [&](const char* name, const char* format, double on,
                        double off) {
    text += Print("  %-28s %12s %12s\n", name, Print(format, on).c_str(),
                  Print(format, off).c_str());
  };
  line("bits per token", "%.3f", trace::PerToken(loss, loss.bits_on),
       trace::PerToken(loss, loss.bits_off));
  if (loss.bytes > 0) {
    line("bits per byte", "%.3f", trace::PerByte(loss, loss.bits_on),
         trace::PerByte(loss, loss.bits_off));
  }
  line("prompt tokens/s", "%.0f",
       trace::PerSecond(s.prompt_tokens, s.prompt_seconds_on),
       trace::PerSecond(s.prompt_tokens, s.prompt_seconds_off));
  line("generated tokens/s", "%.0f",
       trace::PerSecond(s.decode_tokens, s.decode_seconds_on),
       trace::PerSecond(s.decode_tokens, s.decode_seconds_off));
  return text;
}

std::string LatencyText(const EngramKindReport& k) {
  std::string text =
      Print("  %-28s %9s %9s %9s %9s %9s\n", "a generated token's rows", "p50",
            "p90", "p95", "p99", "max");
  const auto line = [&](const char* name, const EngramPercentiles& p) {
    text += Print("  %-28s", name);
    for (const double x : {p.p50, p.p90, p.p95, p.p99, p.max}) {
      text += Print(" %9s", Duration(x).c_str());
    }
    text += "\n";
  };
  line("under way", k.read);
  line("waited for by layers", k.wait);
  const EngramStoreUse& s = k.store;
  text += Print("  prompt: %s rows asked for, %s read, %s; waited %s; ",
                Grouped(s.rows).c_str(), Grouped(s.rows_read).c_str(),
                Bytes(static_cast<double>(s.bytes_read)).c_str(),
                Duration(s.wait_seconds).c_str());
  return text +
         Print("row cache answered %.1f %%\n", 100 * trace::StoreHitRate(s));
}

std::string ReuseText(const EngramReport& report, const EngramKindReport& k) {
  std::string text = Print("  %-28s", "rows asked for again");
  for (uint32_t n = 2; n <= report.max_ngram; ++n) {
    text += Print(" %9s", Print("%u-gram", n).c_str());
  }
  text += "       all\n";
  const auto line = [&](const std::string& name,
                        const std::vector<double>& shares) {
    text += Print("  %-28s", name.c_str());
    for (const double share : shares) text += Print(" %7.1f %%", 100 * share);
    text += "\n";
  };
  for (const EngramReuse& r : k.reuse) {
    line(Print("within %u tokens", r.window), r.within);
    line("  from an earlier window", r.across);
  }
  text += "  least-recently-used cache:";
  for (const EngramCachePoint& point : k.cache) {
    text +=
        Print("  %s %.1f %%", Bytes(static_cast<double>(point.bytes)).c_str(),
              100 * point.hit_rate);
  }
  return text + Print("  unbounded %.1f %%\n", 100 * k.best_hit_rate);
}

std::string GatesText(const EngramKindReport& k) {
  std::string text = "  gates, mean (movement):\n";
  for (size_t i = 0; i < k.gates.size(); ++i) {
    const EngramGateHistogram& g = k.gates[i];
    if (g.stream == 0) text += Print("    layer %-3u", g.layer);
    text += Print("  %.3f (%.0f %%)", g.mean_gate, 100 * g.mean_move);
    if (i + 1 == k.gates.size() || k.gates[i + 1].stream == 0) text += "\n";
  }
  return text;
}

std::string EffectsText(const char* title,
                        const std::vector<EngramTokenEffect>& effects) {
  std::string text = Print("  %s\n", title);
  for (const EngramTokenEffect& e : effects) {
    const std::string piece =
        e.piece.empty() ? Print("#%d", e.id) : trace::QuotePiece(e.piece);
    text += Print("    %+6.2f bits  %s after %s\n", e.bits_off - e.bits_on,
                  piece.c_str(), trace::QuotePiece(e.before).c_str());
  }
  return text;
}

}  // namespace

std::string EngramReportTextPage(const EngramReport& report) {
  std::string text;
  for (const auto& [name, value] : trace::ConditionLines(report.conditions)) {
    text += Print("%-18s %s\n", name.c_str(), value.c_str());
  }
  for (const EngramKindReport& k : report.kinds) {
    text += Print("\n%s: %s of %s tokens\n", k.kind.c_str(),
                  Grouped(k.tokens).c_str(), Grouped(k.tokens_given).c_str());
    text += LossText(k) + LatencyText(k) + ReuseText(report, k) + GatesText(k);
    text += EffectsText("helped most", k.helped);
    text += EffectsText("hurt most", k.hurt);
  }
  return text;
}

}  // namespace ecphory
