#include "trace/svg_plot.h"

#include <algorithm>

#include "trace/format.h"

namespace ecphory::trace {

namespace {

std::string Open(const std::string& label, int width, int height) {
  return Print(
             "<svg class=\"plot\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
             "%d\" role=\"img\" aria-label=\"",
             width, height, width, height) +
         EscapeHtml(label) + "\">\n";
}

std::string Text(double x, double y, const char* anchor,
                 const std::string& text) {
  return Print("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y,
               anchor) +
         EscapeHtml(text) + "</text>\n";
}

std::string HorizontalLine(double x, double y, double width) {
  return Print("<path class=\"grid\" d=\"M%.1f %.1fh%.1f\"/>\n", x, y, width);
}

std::string Colour(size_t index) { return Print("var(--s%zu)", index % 8); }

}  // namespace

std::string RenderLines(const LinePlot& plot) {
  const double left = 44, right = 30, top = 10, bottom = 24;
  const double width = plot.width - left - right;
  const double height = plot.height - top - bottom;
  const size_t points = plot.ticks.size();
  const auto x = [&](size_t i) {
    return points < 2 ? left + width / 2
                      : left + width * static_cast<double>(i) /
                                   static_cast<double>(points - 1);
  };
  const auto y = [&](double v) {
    return top + height * (1 - std::clamp(v, 0.0, 1.0));
  };
  std::string svg = Open(plot.label, plot.width, plot.height);
  for (const double share : {0.0, .25, .5, .75, 1.0}) {
    svg += HorizontalLine(left, y(share), width);
    svg += Text(left - 6, y(share) + 4, "end", Print("%.0f %%", 100 * share));
  }
  for (size_t i = 0; i < points; ++i) {
    svg += Text(x(i), plot.height - 6, "middle", plot.ticks[i]);
  }
  for (const Series& series : plot.series) {
    std::string path;
    for (size_t i = 0; i < series.values.size(); ++i) {
      path +=
          Print("%s%.1f %.1f", i == 0 ? "M" : "L", x(i), y(series.values[i]));
    }
    svg += Print(
        "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s/>\n",
        path.c_str(), Colour(series.colour).c_str(),
        series.dashed ? " stroke-dasharray=\"5 4\"" : "");
    for (size_t i = 0; i < series.values.size(); ++i) {
      svg +=
          Print("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>",
                x(i), y(series.values[i]), Colour(series.colour).c_str());
      svg += EscapeHtml(series.name) + ", " + EscapeHtml(plot.ticks[i]) +
             Print(": %.1f %%</title></circle>\n", 100 * series.values[i]);
    }
  }
  return svg + "</svg>\n";
}

std::string RenderHistogram(const HistogramPlot& plot) {
  const double left = 4, top = 4, bottom = 18;
  const double width = plot.width - 2 * left;
  const double height = plot.height - top - bottom;
  double most = 0;
  std::vector<double> sums;
  for (const Series& series : plot.series) {
    double sum = 0;
    for (const double v : series.values) sum += v;
    sums.push_back(sum);
    for (const double v : series.values) {
      if (sum > 0) most = std::max(most, v / sum);
    }
  }
  std::string svg = Open(plot.label, plot.width, plot.height);
  const double floor = top + height;
  for (size_t s = 0; s < plot.series.size() && most > 0; ++s) {
    if (sums[s] <= 0) continue;
    const std::vector<double>& values = plot.series[s].values;
    const double step = width / static_cast<double>(values.size());
    std::string path = Print("M%.1f %.1f", left, floor);
    for (const double v : values) {
      path += Print("V%.1fh%.2f", floor - height * v / sums[s] / most, step);
    }
    path += Print("V%.1f", floor);
    const std::string colour = Colour(plot.series[s].colour);
    svg += Print(
               "<path d=\"%s\" fill=\"%s\" fill-opacity=\".16\" stroke=\"%s\" "
               "stroke-width=\"1.5\"><title>",
               path.c_str(), colour.c_str(), colour.c_str()) +
           EscapeHtml(plot.series[s].name) + "</title></path>\n";
  }
  svg += HorizontalLine(left, floor, width);
  svg += Text(left, plot.height - 4, "start", "0");
  svg += Text(left + width / 2, plot.height - 4, "middle", "0.5");
  svg += Text(left + width, plot.height - 4, "end", "1");
  return svg + "</svg>\n";
}

std::string RenderBarPairs(const std::string& label,
                           const std::vector<BarPair>& pairs,
                           const char* format) {
  const double left = 96, bar = 13, gap = 14, width = 300;
  const double pair_height = 2 * bar + gap;
  const int height =
      static_cast<int>(pair_height * static_cast<double>(pairs.size()));
  double most = 0;
  for (const BarPair& pair : pairs) most = std::max({most, pair.on, pair.off});
  std::string svg = Open(label, static_cast<int>(left + width + 70), height);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const double y = pair_height * static_cast<double>(i) + 2;
    svg += Text(left - 8, y + bar + 4, "end", pairs[i].label);
    for (const bool on : {true, false}) {
      const double value = on ? pairs[i].on : pairs[i].off;
      const double wide = most > 0 ? width * value / most : 0;
      const double at = on ? y : y + bar + 1;
      svg += Print(
          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
          "fill=\"%s\"/>\n",
          left, at, wide, bar - 1, on ? "var(--s0)" : "var(--s7)");
      // The format is one of this folder's own.
      char number[64];
      std::snprintf(number, sizeof(number), format, value);
      svg += Text(left + wide + 6, at + bar - 3, "start", number);
    }
  }
  return svg + "</svg>\n";
}

}  // namespace ecphory::trace
