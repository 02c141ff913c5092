// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/plot.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"

namespace pentatron::training {
namespace {

constexpr double kLeft = 70;
constexpr double kRight = 24;
constexpr double kTop = 48;
constexpr double kBottom = 52;
constexpr std::array<const char*, 4> kColours{"#3b76d6", "#d9542b", "#2f9e64", "#8a55c7"};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

// A step of 1, 2 or 5 times a power of ten that cuts the range into at most `most` pieces.
double nice_step(double span, int most) {
  const double raw = span / most;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10.0 * power;
}

// Multiples of a nice step in [low, high]; none where the range is too narrow for its magnitude.
std::vector<double> ticks(const Range& range) {
  constexpr int kMost = 8;
  const double step = nice_step(range.high - range.low, kMost);
  std::vector<double> values;
  const double first = std::ceil(range.low / step) * step;
  for (int i = 0; i <= kMost && first + i * step <= range.high; ++i) {
    values.push_back(first + i * step);
  }
  return values;
}

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

class Chart {
 public:
  Chart(const std::vector<PlotSeries>& series, const PlotOptions& options) : options_(options) {
    for (const PlotSeries& s : series) {
      for (const MetricsPoint& point : s.points) {
        if (!std::isfinite(point.value)) continue;
        x_.add(static_cast<double>(point.iteration));
        y_.add(point.value);
        ++num_points_;
      }
    }
    PENTATRON_CHECK(num_points_ >= 2, kData,
                    "nothing to plot: {} finite points, at least 2 are needed", num_points_);
    if (x_.high == x_.low) x_.high = x_.low + 1;
    const double margin =
        y_.high > y_.low ? 0.05 * (y_.high - y_.low) : std::max(0.5, 0.05 * std::abs(y_.high));
    y_.low -= margin;
    y_.high += margin;
  }

  [[nodiscard]] std::string text(const std::vector<PlotSeries>& series) const {
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" "
        "font-family=\"system-ui, sans-serif\" font-size=\"13\">\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n"
        "<text x=\"{2}\" y=\"28\" font-size=\"17\" fill=\"#222\">{3}</text>\n",
        options_.width, options_.height, kLeft, escape(options_.title));
    out += grid();
    for (std::size_t i = 0; i < series.size(); ++i) {
      out += line(series[i], kColours[i % kColours.size()]);
      out +=
          fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"{}\">{}</text>\n",
                      options_.width - kRight, kTop + 18.0 * static_cast<double>(i + 1),
                      kColours[i % kColours.size()], escape(series[i].label));
    }
    return out + "</svg>\n";
  }

 private:
  [[nodiscard]] double px(double x) const {
    return kLeft + (x - x_.low) / (x_.high - x_.low) * (options_.width - kLeft - kRight);
  }
  [[nodiscard]] double py(double y) const {
    return options_.height - kBottom -
           (y - y_.low) / (y_.high - y_.low) * (options_.height - kTop - kBottom);
  }

  [[nodiscard]] std::string grid() const {
    std::string out;
    const double bottom = options_.height - kBottom;
    for (const double x : ticks(x_)) {
      out += fmt::format(
          "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#e6e6e6\"/>"
          "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\" fill=\"#555\">{4:g}</text>\n",
          px(x), kTop, bottom, bottom + 18, x);
    }
    for (const double y : ticks(y_)) {
      out += fmt::format(
          "<line x1=\"{1}\" x2=\"{2}\" y1=\"{0:.1f}\" y2=\"{0:.1f}\" stroke=\"#e6e6e6\"/>"
          "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\" fill=\"#555\">{5:g}</text>\n",
          py(y), kLeft, options_.width - kRight, kLeft - 8, py(y) + 4, y);
    }
    out += fmt::format(
        "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\" fill=\"#222\">{}</text>\n",
        (kLeft + options_.width - kRight) / 2, options_.height - 12, escape(options_.x_label));
    out += fmt::format(
        "<text transform=\"translate(18,{:.1f}) rotate(-90)\" text-anchor=\"middle\" "
        "fill=\"#222\">{}</text>\n",
        (kTop + bottom) / 2, escape(options_.y_label));
    return out;
  }

  [[nodiscard]] std::string line(const PlotSeries& s, const char* colour) const {
    std::string path;
    std::string dots;
    bool pen_down = false;
    for (const MetricsPoint& point : s.points) {
      if (!std::isfinite(point.value)) {
        pen_down = false;
        continue;
      }
      const double x = px(static_cast<double>(point.iteration));
      const double y = py(point.value);
      path += fmt::format("{}{:.1f} {:.1f} ", pen_down ? "L" : "M", x, y);
      pen_down = true;
      if (s.markers) {
        dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", x, y,
                            colour);
      }
    }
    return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"/>\n{}",
                       path, colour, dots);
  }

  PlotOptions options_;
  Range x_;
  Range y_;
  std::int64_t num_points_ = 0;
};

}  // namespace

std::string svg_plot(const std::vector<PlotSeries>& series, const PlotOptions& options) {
  return Chart(series, options).text(series);
}

void plot_metrics_file(const std::filesystem::path& metrics, const std::filesystem::path& svg) {
  std::vector<PlotSeries> series;
  series.push_back({.label = "training loss", .points = read_metrics(metrics, "train", "lm_loss")});
  series.push_back({.label = "validation loss",
                    .points = read_metrics(metrics, "validation", "lm_loss"),
                    .markers = true});
  std::erase_if(series, [](const PlotSeries& s) { return s.points.empty(); });
  write_file_atomically(svg, svg_plot(series, {.title = "Loss", .y_label = "loss (nats a token)"}));
}

}  // namespace pentatron::training
