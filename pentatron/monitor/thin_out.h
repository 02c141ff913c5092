// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

// Fewer points of the same look: of each bucket of the x axis the least and the greatest value, in
// their order, so that a spike of one step is seen at every zoom.
namespace pentatron::monitor {

struct SeriesPoint {
  double x = 0;
  float y = 0;  // NaN: nothing there, which breaks the line
};

// The width of the buckets for `num_points` over `span` (of x) on `num_buckets`: a power of two,
// so that it stays while a run grows to twice its length; 0 where there are few enough points to
// send all.
[[nodiscard]] double bucket_width(double span, std::size_t num_points, std::size_t num_buckets);

// The start of the bucket in which x is. width > 0.
[[nodiscard]] double bucket_start(double x, double width);

// Points with rising x, thinned out where width > 0. A bucket gives one point where it has one,
// and NaN where none of its values is finite.
void append_thinned(std::span<const double> x, std::span<const float> y, double width,
                    std::vector<SeriesPoint>& points);

// Exponential mean with `weight` on the past ([0, 1)), the start's bias taken out; values that are
// not finite stay and do not count.
class RunningMean final {
 public:
  explicit RunningMean(double weight) : weight_(weight) {}
  // The mean up to this value; of one that is not finite, the value.
  double add(double value);

 private:
  double weight_;
  double sum_ = 0;
  double mass_ = 0;
};
[[nodiscard]] std::vector<float> running_mean(std::span<const float> values, double weight);

}  // namespace pentatron::monitor
