// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "apps/command.h"
#include "pentatron/base/log.h"
#include "pentatron/training/plot.h"

namespace pentatron::apps {

int plot(const Words& words) {
  const Flags flags("plot", "Draws training and validation loss of a --metrics-file as SVG.",
                    {"METRICS.jsonl"}, {{"--output", "FILE.svg", "where to write", "loss.svg"}},
                    words);
  if (flags.help()) return 0;
  training::plot_metrics_file(flags.positional(0), flags.text("--output"));
  log::print_line(fmt::format("wrote {}", flags.text("--output")));
  return 0;
}

}  // namespace pentatron::apps
