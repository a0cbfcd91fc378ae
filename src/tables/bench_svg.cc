// The sweep of a benchmark as a picture.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ecphory/engram_measure.h"
#include "text/utf8.h"

namespace ecphory {

namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 620;
// Of the two plots, side by side, and the room around them.
constexpr double kTop = 96;
constexpr double kBottom = 500;
constexpr double kLeft = 76;
constexpr double kSplit = 560;  // right edge of the first plot
constexpr double kRightPlot = 650;
constexpr double kRight = 936;

const char* ColorOf(const std::string& mode) {
  static const std::map<std::string, const char*> colors = {
      {"uring", "#0b6e4f"}, {"pread", "#2f6db5"}, {"buffered", "#c77d0a"},
      {"mmap", "#a23b72"},  {"ram", "#6b4fa0"},   {"device", "#444444"}};
  const auto found = colors.find(mode);
  return found == colors.end() ? "#777777" : found->second;
}

std::string Printf(const char* format, double a, double b = 0, double c = 0,
                   double d = 0) {
  char text[256];
  std::snprintf(text, sizeof(text), format, a, b, c, d);
  return text;
}

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : ReplaceInvalidUtf8(text)) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string Text(double x, double y, const std::string& text,
                 const char* attributes = "") {
  return Printf("<text x=\"%.1f\" y=\"%.1f\" ", x, y) + attributes + ">" +
         Escaped(text) + "</text>\n";
}

std::string Line(double x1, double y1, double x2, double y2,
                 const char* stroke) {
  return Printf("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" ", x1,
                y1, x2, y2) +
         "stroke=\"" + stroke + "\"/>\n";
}

// "12", "3.4k", "1.2M".
std::string Short(double value) {
  if (value >= 1e6) return Printf("%.3gM", value / 1e6);
  if (value >= 1e3) return Printf("%.3gk", value / 1e3);
  return Printf("%.3g", value);
}

// A decimal scale from a power of ten below `low` to one above `high`.
class LogScale {
 public:
  LogScale(double low, double high)
      : low_(std::floor(std::log10(std::max(low, 1e-3)))),
        high_(std::max(low_ + 1, std::ceil(std::log10(std::max(high, 1e-3))))) {
  }
  double Y(double value) const {
    const double part =
        (std::log10(std::max(value, 1e-3)) - low_) / (high_ - low_);
    return kBottom - (kBottom - kTop) * std::clamp(part, 0.0, 1.0);
  }
  std::string Grid(double left, double right) const {
    std::string out;
    for (double e = low_; e <= high_; ++e) {
      const double y = Y(std::pow(10, e));
      out += Line(left, y, right, y, "#dddddd");
      out +=
          Text(left - 8, y + 4, Short(std::pow(10, e)), "text-anchor=\"end\"");
    }
    return out;
  }

 private:
  double low_;
  double high_;
};

struct Series {
  std::string name;
  std::string mode;
  bool dashed = false;
  std::vector<std::pair<double, double>> points;  // depth, rows a second
};

std::vector<Series> SeriesOf(const TablesBench& bench) {
  std::vector<Series> all;
  Series device{"device, 4 KiB reads", "device", true, {}};
  for (const ReadRate& rate : bench.ceiling) {
    device.points.emplace_back(rate.depth, rate.reads_per_second);
  }
  all.push_back(std::move(device));
  for (const BenchPoint& point : bench.points) {
    if (point.depth == 0) continue;
    const std::string name = point.mode + ", " + point.state;
    auto series =
        std::find_if(all.begin(), all.end(),
                     [&](const Series& other) { return other.name == name; });
    if (series == all.end()) {
      series =
          all.insert(all.end(), {name, point.mode, point.state == "warm", {}});
    }
    series->points.emplace_back(point.depth, point.rows_per_second);
  }
  for (Series& series : all) {
    std::sort(series.points.begin(), series.points.end());
  }
  return all;
}

// Rows a second by reads in flight.
std::string SweepPlot(const std::vector<Series>& all) {
  double low = 1e12, high = 1, deepest = 2;
  for (const Series& series : all) {
    for (const auto& [depth, rate] : series.points) {
      low = std::min(low, rate);
      high = std::max(high, rate);
      deepest = std::max(deepest, depth);
    }
  }
  const LogScale scale(low, high);
  const auto x = [&](double depth) {
    return kLeft + (kSplit - kLeft) * std::log2(depth) / std::log2(deepest);
  };
  std::string out = scale.Grid(kLeft, kSplit);
  for (double depth = 1; depth <= deepest; depth *= 4) {
    out += Line(x(depth), kTop, x(depth), kBottom, "#eeeeee");
    out += Text(x(depth), kBottom + 18, Short(depth), "text-anchor=\"middle\"");
  }
  for (const Series& series : all) {
    std::string path;
    const char* color = ColorOf(series.mode);
    for (const auto& [depth, rate] : series.points) {
      path += Printf("%.1f,%.1f ", x(depth), scale.Y(rate));
      out += Printf("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" ", x(depth),
                    scale.Y(rate)) +
             "fill=\"" + color + "\"><title>" + Escaped(series.name) +
             ", depth " + Short(depth) + ": " + Short(rate) +
             " a second</title></circle>\n";
    }
    out += "<polyline points=\"" + path + "\" fill=\"none\" stroke=\"" + color +
           "\" stroke-width=\"2\"" +
           (series.dashed ? " stroke-dasharray=\"6 4\"" : "") + "/>\n";
  }
  out += Text(kLeft, kTop - 14, "rows a second by reads in flight",
              "font-weight=\"bold\"");
  return out;
}

// The time of one token's rows: a bar from p50 to p99.
std::string TokenPlot(const TablesBench& bench) {
  std::vector<const BenchPoint*> bars;
  double low = 1e12, high = 1;
  for (const BenchPoint& point : bench.points) {
    if (point.depth != 0) continue;
    bars.push_back(&point);
    low = std::min(low, point.p50_us);
    high = std::max(high, point.p99_us);
  }
  if (bars.empty()) return "";
  const LogScale scale(low, high);
  std::string out = scale.Grid(kRightPlot, kRight);
  const double step = (kRight - kRightPlot) / static_cast<double>(bars.size());
  for (size_t i = 0; i < bars.size(); ++i) {
    const BenchPoint& bar = *bars[i];
    const double x = kRightPlot + step * (static_cast<double>(i) + 0.5);
    const double p50 = scale.Y(bar.p50_us), p99 = scale.Y(bar.p99_us);
    const char* color = ColorOf(bar.mode);
    out += Printf("<rect x=\"%.1f\" y=\"%.1f\" width=\"10\" height=\"%.1f\" ",
                  x - 5, p99, std::max(1.0, p50 - p99)) +
           "fill=\"" + color + "\" fill-opacity=\"0.35\"/>\n";
    out += Printf("<rect x=\"%.1f\" y=\"%.1f\" width=\"16\" height=\"3\" ",
                  x - 8, p50 - 1.5) +
           "fill=\"" + color + "\"/>\n";
    out += Text(x, p50 + 16, Short(bar.p50_us), "text-anchor=\"middle\"");
    out += Printf("<g transform=\"translate(%.1f,%.1f) rotate(-40)\">", x + 4,
                  kBottom + 16) +
           Text(0, 0, bar.mode + ", " + bar.state, "text-anchor=\"end\"") +
           "</g>\n";
  }
  out += Text(kRightPlot, kTop - 14,
              "us for one token's " + std::to_string(bench.rows_per_token) +
                  " rows, p50 to p99",
              "font-weight=\"bold\"");
  return out;
}

std::string Legend(const std::vector<Series>& all) {
  std::string out;
  for (size_t i = 0; i < all.size(); ++i) {
    const double x = kLeft + 160 * static_cast<double>(i % 3);
    const double y = kBottom + 42 + 18 * static_cast<double>(i / 3);
    out += "<line " +
           Printf("x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"", x, y,
                  x + 24, y) +
           " stroke-width=\"2\" stroke=\"" + ColorOf(all[i].mode) + "\"" +
           (all[i].dashed ? " stroke-dasharray=\"6 4\"" : "") + "/>\n";
    out += Text(x + 30, y + 4, all[i].name);
  }
  return out;
}

std::string Heading(const TablesBench& bench) {
  std::string under = bench.pattern;
  if (!bench.files.empty()) under += "; " + bench.files[0].device;
  const std::string machine =
      bench.cpu + ", " + bench.kernel + ", " + bench.date;
  return Text(kLeft, 28, "Engram rows from " + bench.path,
              "font-size=\"17\" font-weight=\"bold\"") +
         Text(kLeft, 48, under, "fill=\"#555555\"") +
         Text(kLeft, 64, machine, "fill=\"#555555\"");
}

}  // namespace

std::string BenchPicture(const TablesBench& bench) {
  const std::vector<Series> all = SeriesOf(bench);
  return Printf(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
             "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" ",
             kWidth, kHeight, kWidth, kHeight) +
         "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222222\">\n"
         "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" +
         Heading(bench) + SweepPlot(all) + TokenPlot(bench) + Legend(all) +
         "</svg>\n";
}

}  // namespace ecphory
