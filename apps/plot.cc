// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "apps/command.h"
#include "apps/monitor_library.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"

namespace pentatron::apps {

int plot(const Words& words) {
  const Flags flags(
      "plot", "Draws a metric of one or several runs (files of --metrics-file) as SVG or PNG.",
      {"METRICS.jsonl..."},
      {{"--output", "FILE", "where to write: .svg or .png", "loss.svg"},
       {"--metric", "NAME",
        "lm_loss (with evaluations), grad_norm, learning_rate, tokens_per_second, "
        "memory_reserved, seconds, tflops_per_gpu, cpu_utilisation, gpu_utilisation, "
        "watts_per_gpu or loss_scale",
        "lm_loss"},
       {"--log-scale", "", "logarithmic axis of values"},
       {"--smoothing", "W", "weight of the past in a running mean, from 0 to below 1", "0"},
       {"--title", "TEXT", "default: the metric's name", ""},
       {"--width", "N", "pixels", "960"},
       {"--height", "N", "pixels", "540"}},
      words);
  if (flags.help()) return 0;
  constexpr std::int64_t kLeastSize = 200;
  constexpr std::int64_t kMaxSize = 16'384;
  const auto size = [&](const char* name) {
    const std::int64_t value = flags.integer(name, kLeastSize);
    PENTATRON_CHECK(value <= kMaxSize, kConfig, "{} {}: expected at most {}", name, value,
                    kMaxSize);
    return static_cast<int>(value);
  };
  const double smoothing = flags.number("--smoothing", 0);
  PENTATRON_CHECK(smoothing < 1, kConfig, "--smoothing {}: expected a number below 1", smoothing);
  monitor::PlotRequest request{.metrics_files = {},
                               .output = flags.text("--output"),
                               .metric = flags.text("--metric"),
                               .log_scale = flags.has("--log-scale"),
                               .smoothing = smoothing,
                               .title = flags.text("--title"),
                               .width = size("--width"),
                               .height = size("--height")};
  for (const std::string& file : flags.positionals()) request.metrics_files.emplace_back(file);
  load_monitor_library().plot(request);
  log::print_line(fmt::format("wrote {}", flags.text("--output")));
  return 0;
}

}  // namespace pentatron::apps
