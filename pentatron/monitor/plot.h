// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace pentatron::monitor {

struct PlotRequest {
  std::vector<std::filesystem::path> metrics_files;  // at least one; runs to compare
  std::filesystem::path output;                      // .svg or .png
  std::string metric = "lm_loss";                    // one of kFields
  bool log_scale = false;
  double smoothing = 0;    // [0, 1)
  std::string title = {};  // empty: the metric's name
  int width = 960;
  int height = 540;
};

// Draws a metric of one or several runs, with evaluations where the metric is the loss, and writes
// the picture atomically. Errors: kIo (no such file), kData (no metrics file, too few points),
// kConfig (another ending, an unknown metric).
void plot(const PlotRequest& request);

}  // namespace pentatron::monitor
