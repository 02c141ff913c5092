// SPDX-License-Identifier: Apache-2.0
#include "apps/command.h"
#include "pentatron/base/log.h"
#include "pentatron/datasets/inspect.h"

namespace pentatron::apps {

int inspect_dataset(const Words& words) {
  const Flags flags("inspect_dataset",
                    "Checks a corpus and sums it up. PREFIX is the path without .bin/.idx.",
                    {"PREFIX"}, {{"--first-tokens", "N", "tokens to show", "16"}}, words);
  if (flags.help()) return 0;
  log::print_line(datasets::format_summary(
      datasets::summarize_dataset(flags.positional(0), flags.integer("--first-tokens", 0))));
  return 0;
}

}  // namespace pentatron::apps
