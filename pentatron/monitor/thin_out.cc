// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/thin_out.h"

#include <cmath>
#include <limits>

namespace pentatron::monitor {

double bucket_width(double span, std::size_t num_points, std::size_t num_buckets) {
  if (num_buckets == 0 || num_points <= 2 * num_buckets || !(span > 0)) return 0;
  const double width = std::exp2(std::ceil(std::log2(span / static_cast<double>(num_buckets))));
  return std::isfinite(width) ? width : 0;
}

double bucket_start(double x, double width) { return std::floor(x / width) * width; }

void append_thinned(std::span<const double> x, std::span<const float> y, double width,
                    std::vector<SeriesPoint>& points) {
  if (width <= 0) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      points.push_back(
          {x[i], std::isfinite(y[i]) ? y[i] : std::numeric_limits<float>::quiet_NaN()});
    }
    return;
  }
  for (std::size_t begin = 0; begin < x.size();) {
    const double next = bucket_start(x[begin], width) + width;
    std::size_t end = begin;
    std::size_t least = x.size();
    std::size_t greatest = x.size();
    // A bucket has a point at least, whatever rounding makes of `next`.
    for (; end < x.size() && (end == begin || x[end] < next); ++end) {
      if (!std::isfinite(y[end])) continue;
      if (least == x.size() || y[end] < y[least]) least = end;
      if (greatest == x.size() || y[end] > y[greatest]) greatest = end;
    }
    if (least == x.size()) {
      points.push_back({x[begin], std::numeric_limits<float>::quiet_NaN()});
    } else {
      points.push_back({x[std::min(least, greatest)], y[std::min(least, greatest)]});
      if (least != greatest) {
        points.push_back({x[std::max(least, greatest)], y[std::max(least, greatest)]});
      }
    }
    begin = end;
  }
}

double RunningMean::add(double value) {
  if (!std::isfinite(value)) return value;
  sum_ = sum_ * weight_ + value * (1 - weight_);
  mass_ = mass_ * weight_ + (1 - weight_);
  return sum_ / mass_;
}

std::vector<float> running_mean(std::span<const float> values, double weight) {
  std::vector<float> result;
  result.reserve(values.size());
  RunningMean mean(weight);
  for (const float value : values) result.push_back(static_cast<float>(mean.add(value)));
  return result;
}

}  // namespace pentatron::monitor
