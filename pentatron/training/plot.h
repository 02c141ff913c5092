// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "pentatron/training/metrics.h"

namespace pentatron::training {

struct PlotSeries {
  std::string label;
  std::vector<MetricsPoint> points;
  bool markers = false;  // few points (evaluations): dots on the line
};

struct PlotOptions {
  std::string title;
  std::string x_label = "iteration";
  std::string y_label = "loss";
  int width = 960;
  int height = 540;
};

// A line chart as a self-contained SVG text (readable on light and dark pages). Points that are not
// finite break a line. No series with two points: kData error.
[[nodiscard]] std::string svg_plot(const std::vector<PlotSeries>& series,
                                   const PlotOptions& options);

// Training and validation loss of a metrics file, written atomically.
void plot_metrics_file(const std::filesystem::path& metrics, const std::filesystem::path& svg);

}  // namespace pentatron::training
