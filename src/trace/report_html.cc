// A report as a page of plots and tables.
#include "ecphory/engram_report.h"
#include "trace/format.h"
#include "trace/page.h"
#include "trace/page_parts.h"
#include "trace/report_facts.h"
#include "trace/svg_plot.h"

namespace ecphory {

namespace {

using trace::Bytes;
using trace::Cell;
using trace::Duration;
using trace::EscapeHtml;
using trace::Figure;
using trace::Grouped;
using trace::Head;
using trace::Key;
using trace::Print;

std::string KindKey(const EngramReport& report) {
  std::vector<std::pair<std::string, size_t>> names;
  for (size_t k = 0; k < report.kinds.size(); ++k) {
    names.emplace_back(report.kinds[k].kind, k);
  }
  return Key(names);
}

// --- On and off -------------------------------------------------------------

std::string LossSection(const EngramReport& report) {
  std::vector<trace::BarPair> bars;
  std::string table =
      "<table>" +
      Head({"text", "tokens", "bits/token on", "off", "bits/byte on", "off",
            "prompt tokens/s on", "off", "generated tokens/s on", "off"}) +
      "<tbody>\n";
  bool with_bytes = true;
  for (const EngramKindReport& k : report.kinds) {
    const EngramLoss& l = k.loss;
    const EngramSpeed& s = k.speed;
    with_bytes = with_bytes && l.bytes > 0;
    table += "<tr><th scope=\"row\">" + EscapeHtml(k.kind) + "</th>" +
             Cell(Grouped(k.tokens));
    for (const double bits : {l.bits_on, l.bits_off}) {
      table += Cell(Print("%.3f", trace::PerToken(l, bits)));
    }
    for (const double bits : {l.bits_on, l.bits_off}) {
      table += Cell(l.bytes > 0 ? Print("%.3f", trace::PerByte(l, bits)) : "-");
    }
    for (const double t : {s.prompt_seconds_on, s.prompt_seconds_off}) {
      table += Cell(Print("%.0f", trace::PerSecond(s.prompt_tokens, t)));
    }
    for (const double t : {s.decode_seconds_on, s.decode_seconds_off}) {
      table += Cell(Print("%.0f", trace::PerSecond(s.decode_tokens, t)));
    }
    table += "</tr>\n";
  }
  for (const EngramKindReport& k : report.kinds) {
    const EngramLoss& l = k.loss;
    bars.push_back(with_bytes
                       ? trace::BarPair{k.kind, trace::PerByte(l, l.bits_on),
                                        trace::PerByte(l, l.bits_off)}
                       : trace::BarPair{k.kind, trace::PerToken(l, l.bits_on),
                                        trace::PerToken(l, l.bits_off)});
  }
  const std::string unit = with_bytes ? "Bits per byte" : "Bits per token";
  return "<section><h2>With and without the memory</h2>\n<p class=\"note\">The "
         "same weights on the same device: every token's probability given "
         "the tokens before it, with Engram on and with every gate shut. "
         "Fewer bits are better. Speeds: the faster of two runs each, in turn."
         "</p>\n" +
         Figure(unit, Key({{"Engram on", 0}, {"off", 7}}) +
                          trace::RenderBarPairs(unit, bars, "%.3f")) +
         table + "</tbody></table></section>\n";
}

// --- Gates ------------------------------------------------------------------

std::string GateSection(const EngramReport& report) {
  std::string html =
      "<section><h2>Gates</h2>\n<p class=\"note\">How wide the gates open, 0 "
      "to "
      "1, by layer and stream; each kind of text to its own sum. Below: the "
      "mean gate, and how far the memory moves the stream on average.</p>\n" +
      KindKey(report);
  const size_t plots = report.kinds.empty() ? 0 : report.kinds[0].gates.size();
  for (size_t i = 0; i < plots; ++i) {
    const EngramGateHistogram& first = report.kinds[0].gates[i];
    if (first.stream == 0) {
      html += std::string(i == 0 ? "" : "</div>\n") +
              Print("<h3>Layer %u</h3>\n<div class=\"grid\">\n", first.layer);
    }
    trace::HistogramPlot plot;
    plot.label =
        Print("Gates of layer %u, stream %u", first.layer, first.stream);
    std::string means;
    for (size_t k = 0; k < report.kinds.size(); ++k) {
      const EngramGateHistogram& g = report.kinds[k].gates[i];
      plot.series.push_back(
          {report.kinds[k].kind, {g.bins.begin(), g.bins.end()}, k, false});
      means += Print("<span style=\"color:var(--s%zu)\">%.2f (%.0f %%)</span> ",
                     k % 8, g.mean_gate, 100 * g.mean_move);
    }
    html += Figure(Print("stream %u", first.stream),
                   trace::RenderHistogram(plot) + "<p class=\"means num\">" +
                       means + "</p>");
  }
  return html + (plots > 0 ? "</div>\n" : "") + "</section>\n";
}

// --- Rows -------------------------------------------------------------------

std::string ReuseFigure(const EngramReport& report, const EngramKindReport& k) {
  trace::LinePlot plot;
  plot.label = "Rows asked for again, " + k.kind;
  for (const EngramReuse& r : k.reuse) {
    plot.ticks.push_back(std::to_string(r.window));
  }
  for (uint32_t n = 2; n <= report.max_ngram; ++n) {
    trace::Series within{Print("%u-grams, within", n), {}, n - 1, false};
    trace::Series across{Print("%u-grams, across", n), {}, n - 1, true};
    for (const EngramReuse& r : k.reuse) {
      within.values.push_back(r.within[n - 2]);
      across.values.push_back(r.across[n - 2]);
    }
    plot.series.push_back(std::move(within));
    plot.series.push_back(std::move(across));
  }
  return Figure(k.kind, trace::RenderLines(plot));
}

std::string ReuseSection(const EngramReport& report) {
  std::string html =
      "<section><h2>Rows that come back</h2>\n<p class=\"note\">By the size of "
      "a window in tokens. Solid: of all rows asked for, those asked for "
      "before in the same window. Dashed: of a window's distinct rows, those "
      "of an earlier window.</p>\n";
  std::vector<std::pair<std::string, size_t>> names;
  for (uint32_t n = 2; n <= report.max_ngram; ++n) {
    names.emplace_back(Print("%u-grams", n), n - 1);
  }
  html += Key(names) + "<div class=\"grid\">\n";
  for (const EngramKindReport& k : report.kinds) html += ReuseFigure(report, k);
  return html + "</div></section>\n";
}

std::string CacheSection(const EngramReport& report) {
  trace::LinePlot plot;
  plot.label = "Hit rate of an exact least-recently-used cache";
  plot.width = 520;
  plot.height = 230;
  std::string table = "<table>" +
                      Head({"text", "rows asked for", "rows read", "bytes read",
                            "store's cache answered", "unbounded cache"}) +
                      "<tbody>\n";
  for (size_t i = 0; i < report.kinds.size(); ++i) {
    const EngramKindReport& k = report.kinds[i];
    trace::Series series{k.kind, {}, i, false};
    for (const EngramCachePoint& point : k.cache) {
      if (i == 0) {
        plot.ticks.push_back(Bytes(static_cast<double>(point.bytes)));
      }
      series.values.push_back(point.hit_rate);
    }
    plot.series.push_back(std::move(series));
    table += "<tr><th scope=\"row\">" + EscapeHtml(k.kind) + "</th>" +
             Cell(Grouped(k.store.rows)) + Cell(Grouped(k.store.rows_read)) +
             Cell(Bytes(static_cast<double>(k.store.bytes_read))) +
             Cell(Print("%.1f %%", 100 * trace::StoreHitRate(k.store))) +
             Cell(Print("%.1f %%", 100 * k.best_hit_rate)) + "</tr>\n";
  }
  return "<section><h2>Caching rows</h2>\n<p class=\"note\">Simulated: the "
         "share "
         "of all requests that an exact least-recently-used cache of so many "
         "bytes of rows answers, each text once, empty at first. In the table: "
         "what the store did in the prompt passes.</p>\n" +
         KindKey(report) +
         Figure("Hit rate by size", trace::RenderLines(plot)) + table +
         "</tbody></table></section>\n";
}

// --- Time -------------------------------------------------------------------

std::string LatencySection(const EngramReport& report) {
  std::string html =
      "<section><h2>Time for rows</h2>\n<p class=\"note\">Of each token "
      "generated one at a time, first run: how long its rows were under way, "
      "and how long layers stood still for them.</p>\n<table>" +
      Head({"text", "tokens", "p50", "p90", "p95", "p99", "max"}) + "<tbody>\n";
  for (const EngramKindReport& k : report.kinds) {
    for (const bool read : {true, false}) {
      const EngramPercentiles& p = read ? k.read : k.wait;
      html += "<tr><th scope=\"row\">" + EscapeHtml(k.kind) +
              (read ? ", under way</th>" : ", waited for</th>") +
              Cell(Grouped(p.count));
      for (const double x : {p.p50, p.p90, p.p95, p.p99, p.max}) {
        html += Cell(Duration(x));
      }
      html += "</tr>\n";
    }
  }
  return html + "</tbody></table></section>\n";
}

// --- Tokens -----------------------------------------------------------------

// On one line: a newline is a sign.
std::string OneLine(const std::string& text) {
  std::string html;
  for (const char c : EscapeHtml(text)) {
    if (c == '\n') {
      html += "\xE2\x8F\x8E";
    } else {
      html += c;
    }
  }
  return html;
}

std::string EffectTable(const std::string& title,
                        const std::vector<EngramTokenEffect>& effects,
                        const char* colour) {
  std::string html = "<div><h3>" + title + "</h3>\n<table>" +
                     Head({"token, after", "on", "off", "gain"}) + "<tbody>\n";
  for (const EngramTokenEffect& e : effects) {
    const std::string piece = e.piece.empty() ? Print("#%d", e.id) : e.piece;
    html += "<tr><td class=\"ctx\"><span>" + OneLine(e.before) +
            "</span><b style=\"color:var(--" + colour + ")\">" +
            OneLine(piece) + "</b></td>" + Cell(Print("%.2f", e.bits_on)) +
            Cell(Print("%.2f", e.bits_off)) +
            Cell(Print("%+.2f", e.bits_off - e.bits_on)) + "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string EffectSection(const EngramReport& report) {
  std::string html =
      "<section><h2>Tokens that the memory helps and hurts most</h2>\n<p "
      "class=\"note\">Bits of the token with Engram on and off.</p>\n";
  for (const EngramKindReport& k : report.kinds) {
    html += "<div class=\"pair\">" +
            EffectTable(EscapeHtml(k.kind) + ": helped", k.helped, "good") +
            EffectTable(EscapeHtml(k.kind) + ": hurt", k.hurt, "bad") +
            "</div>\n";
  }
  return html + "</section>\n";
}

std::string ConditionSection(const EngramReport& report) {
  std::string html = "<section><h2>Conditions</h2>\n<table><tbody>\n";
  for (const auto& [name, value] : trace::ConditionLines(report.conditions)) {
    html += "<tr><th scope=\"row\">" + EscapeHtml(name) + "</th>" +
            Cell(value, false) + "</tr>\n";
  }
  for (const EngramKindReport& k : report.kinds) {
    html += "<tr><th scope=\"row\">" + EscapeHtml(k.kind) + "</th>" +
            Cell(Grouped(k.tokens) + " of " + Grouped(k.tokens_given) +
                     " tokens in " + Grouped(k.texts) + " texts",
                 false) +
            "</tr>\n";
  }
  return html + "</tbody></table></section>\n";
}

}  // namespace

std::string EngramReportHtml(const EngramReport& report) {
  const EngramReportConditions& c = report.conditions;
  const std::string name = c.name.empty() ? c.path : c.name;
  trace::Page page;
  page.title = "Engram report: " + name;
  page.style = trace::kReportStyle;
  page.body =
      "<h1>Engram report</h1>\n<p class=\"sub\">" + EscapeHtml(name) +
      Print(" \xC2\xB7 %u rows a token \xC2\xB7 ", report.rows_per_token) +
      EscapeHtml(c.backend) + "</p>\n" + LossSection(report) +
      GateSection(report) + ReuseSection(report) + CacheSection(report) +
      LatencySection(report) + EffectSection(report) + ConditionSection(report);
  return trace::RenderPage(page);
}

}  // namespace ecphory
