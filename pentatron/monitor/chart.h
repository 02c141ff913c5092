// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pentatron/monitor/canvas.h"

namespace pentatron::monitor {

struct ChartPoint {
  std::int64_t iteration = 0;
  double value = 0;  // not finite: breaks the line
};

struct ChartSeries {
  std::string label;
  std::vector<ChartPoint> points;  // by rising iteration
  std::string colour = "#3b76d6";
  bool markers = false;  // few points (evaluations): dots on a dashed line
  bool faint = false;    // behind another series of the same values: thin, without a key
};

struct ChartOptions {
  std::string title;
  std::string x_label = "iteration";
  std::string y_label = "loss";
  bool log_scale = false;  // values of zero and below then break the line
  int width = 960;
  int height = 540;
};

// A line chart with axes, grid, title and keys under the title, beside the
// curves where there are many (readable on light and dark pages:
// it has its own ground). Fewer than two finite points in all: kData error.
void draw_chart(Canvas& canvas, const std::vector<ChartSeries>& series,
                const ChartOptions& options);

// Exponential mean with `weight` on the past ([0, 1)), the start's bias taken out; values that are
// not finite stay and do not count.
[[nodiscard]] std::vector<ChartPoint> smoothed(const std::vector<ChartPoint>& points,
                                               double weight);

}  // namespace pentatron::monitor
