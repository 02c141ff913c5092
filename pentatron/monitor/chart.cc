// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/monitor/thin_out.h"

namespace pentatron::monitor {
namespace {

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
  // Of half the range, which never passes the largest double.
  const double step = nice_step(range.high / 2 - range.low / 2, kMaxTicks / 2);
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

constexpr double kLetter = 7.2;  // width of an average letter of 13 pixels

// 0.001, 250, 32k, 1.5M: four digits and a letter.
std::string short_number(double value) {
  const double size = std::abs(value);
  constexpr std::array<std::pair<double, const char*>, 4> kUnits{
      {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
  constexpr double kPlain = 1e4;
  constexpr double kMost = 1e15;
  if (size < kPlain || size >= kMost) return fmt::format("{:.4g}", value);
  for (const auto& [unit, letter] : kUnits) {
    if (size >= unit) return fmt::format("{:.4g}{}", value / unit, letter);
  }
  return fmt::format("{:.4g}", value);
}

// Labels of ticks; with all their digits where four would make two of them alike.
std::vector<std::string> tick_labels(const std::vector<double>& ticks) {
  std::vector<std::string> labels;
  for (const double tick : ticks) labels.push_back(short_number(tick));
  if (std::adjacent_find(labels.begin(), labels.end()) == labels.end()) return labels;
  for (std::size_t i = 0; i < ticks.size(); ++i) labels[i] = fmt::format("{:.12g}", ticks[i]);
  return labels;
}

// Of whole characters, with a mark where some are left out.
std::string shortened(const std::string& text, double width) {
  const auto most = static_cast<std::size_t>(std::max(1.0, width / kLetter));
  if (text.size() <= most) return text;
  std::size_t end = most - 1;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "\u2026";
}

class Chart {
 public:
  Chart(Canvas& canvas, const std::vector<ChartSeries>& series, const ChartOptions& options)
      : canvas_(canvas), series_(series), options_(options), right_(options.width - kRight) {
    find_ranges();
    y_ticks_ = options.log_scale ? log_ticks(y_) : linear_ticks(y_);
    y_labels_ = tick_labels(y_ticks_);
    // The axis's title, the labels and their gaps.
    std::size_t longest = 2;
    for (const std::string& label : y_labels_) longest = std::max(longest, label.size());
    left_ = 40 + kLetter * static_cast<double>(longest);
    place_keys();
  }

  void draw() {
    canvas_.fill("#ffffff");
    canvas_.text({left_, 28}, options_.title, {.colour = kInk, .size = 17});
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
    std::string text;
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
    constexpr double kLargest = std::numeric_limits<double>::max();
    const double margin = y_.high > y_.low ? 0.1 * (y_.high / 2 - y_.low / 2)
                                           : std::max(0.5, 0.05 * std::abs(y_.high));
    y_.low = std::max(y_.low - margin, -kLargest);
    y_.high = std::min(y_.high + margin, kLargest);
  }

  static constexpr double kSwatch = 30;

  // In rows under the title; more than two rows of them stand beside the curves.
  void place_keys() {
    constexpr double kGap = 20;
    double x = left_;
    double y = kTop + 4;
    for (const ChartSeries& s : series_) {
      if (s.faint) continue;
      const double width = kSwatch + kLetter * static_cast<double>(s.label.size());
      if (x > left_ && x + width > right_) {
        x = left_;
        y += kKeyHeight;
      }
      keys_.push_back({.series = &s, .place = {x, y}, .text = s.label});
      x += width + kGap;
    }
    top_ = y + kKeyHeight;
    if (top_ > kTop + 4 + 2 * kKeyHeight) place_keys_beside();
  }

  void place_keys_beside() {
    constexpr double kLargestShare = 0.3;
    constexpr double kLeastHeight = 12;
    std::size_t longest = 0;
    for (const Key& key : keys_) longest = std::max(longest, key.text.size());
    const double width =
        std::min(kSwatch + kLetter * static_cast<double>(longest), kLargestShare * options_.width);
    right_ = options_.width - width - kRight;
    top_ = kTop + 4;
    const double room = bottom() - top_;
    key_height_ = std::clamp(room / static_cast<double>(keys_.size()), kLeastHeight, kKeyHeight);
    const auto most = static_cast<std::size_t>(std::max(1.0, room / key_height_));
    const std::size_t left_out = keys_.size() > most ? keys_.size() - most + 1 : 0;
    if (left_out > 0) {
      keys_.resize(most - 1);
      more_ = fmt::format("and {} more", left_out);
    }
    double y = top_ + 10;
    for (Key& key : keys_) {
      key.place = {right_ + 16, y};
      key.text = shortened(key.text, width - kSwatch);
      y += key_height_;
    }
    more_place_ = {right_ + 16, y};
  }

  void draw_keys() {
    const double size = std::min(13.0, key_height_);
    for (const Key& key : keys_) {
      const auto [x, y] = key.place;
      canvas_.curve({{{x, y - 4}, {x + 22, y - 4}}},
                    {.colour = key.series->colour, .width = 2, .dashed = key.series->markers});
      if (key.series->markers) canvas_.dot({x + 11, y - 4}, 3.5, key.series->colour);
      canvas_.text({x + 29, y}, key.text, {.colour = kInk, .size = size});
    }
    if (!more_.empty()) canvas_.text(more_place_, more_, {.colour = kSoft, .size = size});
  }

  [[nodiscard]] double bottom() const { return options_.height - kBottom; }
  [[nodiscard]] double px(double x) const {
    return left_ + (x - x_.low) / (x_.high - x_.low) * (right_ - left_);
  }
  [[nodiscard]] double py(double y) const {
    const double share = options_.log_scale ? (std::log(y) - std::log(y_.low)) /
                                                  (std::log(y_.high) - std::log(y_.low))
                                            : (y / 2 - y_.low / 2) / (y_.high / 2 - y_.low / 2);
    return bottom() - share * (bottom() - top_);
  }

  void draw_grid() {
    const std::vector<double> x_ticks = linear_ticks(x_);
    const std::vector<std::string> x_labels = tick_labels(x_ticks);
    for (std::size_t i = 0; i < x_ticks.size(); ++i) {
      const double x = px(x_ticks[i]);
      canvas_.curve({{{x, top_}, {x, bottom()}}}, {.colour = kGrid});
      canvas_.text({x, bottom() + 19}, x_labels[i], {.colour = kSoft, .anchor = Anchor::kMiddle});
    }
    for (std::size_t i = 0; i < y_ticks_.size(); ++i) {
      const double y = py(y_ticks_[i]);
      canvas_.curve({{{left_, y}, {right_, y}}}, {.colour = kGrid});
      canvas_.text({left_ - 9, y + 4}, y_labels_[i], {.colour = kSoft, .anchor = Anchor::kEnd});
    }
    canvas_.text({(left_ + right_) / 2, options_.height - 13.0}, options_.x_label,
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
  std::vector<double> y_ticks_;
  std::vector<std::string> y_labels_;
  std::vector<Key> keys_;
  std::string more_;  // keys that have no room
  Spot more_place_;
  double key_height_ = kKeyHeight;
  double left_ = 0;  // edges of the plot
  double right_;
  double top_ = kTop;
};

}  // namespace

void draw_chart(Canvas& canvas, const std::vector<ChartSeries>& series,
                const ChartOptions& options) {
  Chart(canvas, series, options).draw();
}

std::vector<ChartPoint> smoothed(const std::vector<ChartPoint>& points, double weight) {
  std::vector<ChartPoint> result;
  RunningMean mean(weight);
  for (const ChartPoint& point : points) {
    result.push_back({.iteration = point.iteration, .value = mean.add(point.value)});
  }
  return result;
}

}  // namespace pentatron::monitor
