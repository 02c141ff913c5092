// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "pentatron/base/error.h"

namespace pentatron::monitor {
namespace {

constexpr double kLeft = 76;
constexpr double kRight = 26;
constexpr double kTop = 44;
constexpr double kBottom = 54;
constexpr double kKeyHeight = 22;
constexpr const char* kInk = "#1d2330";
constexpr const char* kSoft = "#667085";
constexpr const char* kGrid = "#e7e9ed";

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
std::vector<double> linear_ticks(const Range& range) {
  constexpr int kMaxTicks = 8;
  const double step = nice_step(range.high - range.low, kMaxTicks);
  std::vector<double> values;
  const double first = std::ceil(range.low / step) * step;
  for (int i = 0; i <= kMaxTicks && first + i * step <= range.high; ++i) {
    const double value = first + i * step;
    values.push_back(std::abs(value) < step / 2 ? 0 : value);  // no -0 and no rest of a rounding
  }
  return values;
}

// 1, 2 and 5 times powers of ten; powers alone where those would be many.
std::vector<double> log_ticks(const Range& range) {
  constexpr std::size_t kMaxTicks = 10;
  std::vector<double> fine;
  std::vector<double> coarse;
  const int first = static_cast<int>(std::floor(std::log10(range.low)));
  const int last = static_cast<int>(std::ceil(std::log10(range.high)));
  for (int power = first; power <= last; ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10.0, power);
      if (value < range.low || value > range.high) continue;
      fine.push_back(value);
      if (factor == 1.0) coarse.push_back(value);
    }
  }
  if (fine.size() < 2) return linear_ticks(range);
  if (fine.size() <= kMaxTicks) return fine;
  const std::size_t every = coarse.size() / kMaxTicks + 1;
  std::vector<double> kept;
  for (std::size_t i = 0; i < coarse.size(); i += every) kept.push_back(coarse[i]);
  return kept;
}

class Chart {
 public:
  Chart(Canvas& canvas, const std::vector<ChartSeries>& series, const ChartOptions& options)
      : canvas_(canvas), series_(series), options_(options) {
    find_ranges();
    place_keys();
  }

  void draw() {
    canvas_.fill("#ffffff");
    canvas_.text({kLeft, 28}, options_.title, {.colour = kInk, .size = 17});
    draw_keys();
    draw_grid();
    for (const bool faint : {true, false}) {
      for (const ChartSeries& s : series_) {
        if (s.faint == faint) draw_series(s);
      }
    }
  }

 private:
  struct Key {
    const ChartSeries* series;
    Spot place;
  };

  [[nodiscard]] bool drawable(double value) const {
    return std::isfinite(value) && (!options_.log_scale || value > 0);
  }

  void find_ranges() {
    std::int64_t count = 0;
    for (const ChartSeries& s : series_) {
      for (const ChartPoint& point : s.points) {
        if (!drawable(point.value)) continue;
        x_.add(static_cast<double>(point.iteration));
        y_.add(point.value);
        ++count;
      }
    }
    PENTATRON_CHECK(count >= 2, kData, "nothing to plot: {} finite points{}, at least 2 are needed",
                    count, options_.log_scale ? " above zero" : "");
    if (x_.high == x_.low) x_.high = x_.low + 1;
    if (options_.log_scale) {
      // In logarithms: the quotient of the ends may be beyond a double.
      const double grow = std::max(0.02, 0.05 * (std::log(y_.high) - std::log(y_.low)));
      const double largest = std::log(std::numeric_limits<double>::max());
      y_.low = std::max(std::exp(std::log(y_.low) - grow), std::numeric_limits<double>::min());
      y_.high = std::exp(std::min(std::log(y_.high) + grow, largest));
      return;
    }
    const double margin =
        y_.high > y_.low ? 0.05 * (y_.high - y_.low) : std::max(0.5, 0.05 * std::abs(y_.high));
    y_.low -= margin;
    y_.high += margin;
  }

  // In rows under the title.
  void place_keys() {
    constexpr double kSwatch = 30;
    constexpr double kLetter = 7.2;  // of an average letter
    constexpr double kGap = 20;
    double x = kLeft;
    double y = kTop + 4;
    for (const ChartSeries& s : series_) {
      if (s.faint) continue;
      const double width = kSwatch + kLetter * static_cast<double>(s.label.size());
      if (x > kLeft && x + width > options_.width - kRight) {
        x = kLeft;
        y += kKeyHeight;
      }
      keys_.push_back({&s, {x, y}});
      x += width + kGap;
    }
    top_ = y + kKeyHeight;
  }

  void draw_keys() {
    for (const Key& key : keys_) {
      const auto [x, y] = key.place;
      canvas_.curve({{{x, y - 4}, {x + 22, y - 4}}},
                    {.colour = key.series->colour, .width = 2, .dashed = key.series->markers});
      if (key.series->markers) canvas_.dot({x + 11, y - 4}, 3.5, key.series->colour);
      canvas_.text({x + 29, y}, key.series->label, {.colour = kInk, .size = 13});
    }
  }

  [[nodiscard]] double bottom() const { return options_.height - kBottom; }
  [[nodiscard]] double px(double x) const {
    return kLeft + (x - x_.low) / (x_.high - x_.low) * (options_.width - kLeft - kRight);
  }
  [[nodiscard]] double py(double y) const {
    const double share = options_.log_scale ? (std::log(y) - std::log(y_.low)) /
                                                  (std::log(y_.high) - std::log(y_.low))
                                            : (y - y_.low) / (y_.high - y_.low);
    return bottom() - share * (bottom() - top_);
  }

  void draw_grid() {
    const double right = options_.width - kRight;
    for (const double x : linear_ticks(x_)) {
      canvas_.curve({{{px(x), top_}, {px(x), bottom()}}}, {.colour = kGrid});
      canvas_.text({px(x), bottom() + 19}, fmt::format("{:.12g}", x),
                   {.colour = kSoft, .anchor = Anchor::kMiddle});
    }
    for (const double y : options_.log_scale ? log_ticks(y_) : linear_ticks(y_)) {
      canvas_.curve({{{kLeft, py(y)}, {right, py(y)}}}, {.colour = kGrid});
      canvas_.text({kLeft - 9, py(y) + 4}, fmt::format("{:g}", y),
                   {.colour = kSoft, .anchor = Anchor::kEnd});
    }
    canvas_.text({(kLeft + right) / 2, options_.height - 13.0}, options_.x_label,
                 {.colour = kInk, .anchor = Anchor::kMiddle});
    canvas_.text({19, (top_ + bottom()) / 2}, options_.y_label,
                 {.colour = kInk, .anchor = Anchor::kMiddle, .upwards = true});
  }

  void draw_series(const ChartSeries& s) {
    std::vector<std::vector<Spot>> pieces;
    bool pen_down = false;
    for (const ChartPoint& point : s.points) {
      if (!drawable(point.value)) {
        pen_down = false;
        continue;
      }
      if (!pen_down) pieces.emplace_back();
      pen_down = true;
      pieces.back().push_back({px(static_cast<double>(point.iteration)), py(point.value)});
    }
    canvas_.curve(pieces, {.colour = s.colour,
                           .width = s.faint ? 1.0 : 1.8,
                           .opacity = s.faint ? 0.3 : 1.0,
                           .dashed = s.markers});
    if (!s.markers) return;
    for (const std::vector<Spot>& piece : pieces) {
      for (const Spot& spot : piece) canvas_.dot(spot, 3.5, s.colour);
    }
  }

  Canvas& canvas_;
  const std::vector<ChartSeries>& series_;
  const ChartOptions& options_;
  Range x_;
  Range y_;
  std::vector<Key> keys_;
  double top_ = kTop;
};

}  // namespace

void draw_chart(Canvas& canvas, const std::vector<ChartSeries>& series,
                const ChartOptions& options) {
  Chart(canvas, series, options).draw();
}

std::vector<ChartPoint> smoothed(const std::vector<ChartPoint>& points, double weight) {
  std::vector<ChartPoint> result;
  double sum = 0;
  double mass = 0;
  for (const ChartPoint& point : points) {
    ChartPoint mean = point;
    if (std::isfinite(point.value)) {
      sum = sum * weight + point.value * (1 - weight);
      mass = mass * weight + (1 - weight);
      mean.value = sum / mass;
    }
    result.push_back(mean);
  }
  return result;
}

}  // namespace pentatron::monitor
