// Plots as inline SVG. Colours are the page's own (page.h).
#pragma once

#include <string>
#include <vector>

namespace ecphory::trace {

struct Series {
  std::string name;
  std::vector<double> values;
  size_t colour = 0;  // --s0 .. --s7
  bool dashed = false;
};

// Equally spaced ticks along x, shares of 0..1 along y.
struct LinePlot {
  std::string label;  // for those who cannot see it
  std::vector<std::string> ticks;
  std::vector<Series> series;
  int width = 360;
  int height = 190;
};
std::string RenderLines(const LinePlot& plot);

// Steps of equal width over 0..1; each series is scaled to its own sum.
struct HistogramPlot {
  std::string label;
  std::vector<Series> series;
  int width = 200;
  int height = 96;
};
std::string RenderHistogram(const HistogramPlot& plot);

struct BarPair {
  std::string label;
  double on = 0, off = 0;
};
// Two bars a label, from 0, with their numbers ("%.3f").
std::string RenderBarPairs(const std::string& label,
                           const std::vector<BarPair>& pairs,
                           const char* format);

}  // namespace ecphory::trace
