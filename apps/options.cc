// SPDX-License-Identifier: Apache-2.0
#include "apps/command.h"
#include "pentatron/base/log.h"
#include "pentatron/config/docs.h"
#include "pentatron/config/print.h"
#include "pentatron/families/presets.h"

namespace pentatron::apps {

int options(const Words& words) {
  const Flags flags("options", "Lists every option: works, always so, planned or never.", {},
                    {{"--markdown", "", "the whole table as docs/megatron_options.md has it"},
                     {"--presets", "", "published models that --model-preset knows"},
                     {"--topic", "TOPIC", "help on one topic", ""}},
                    words);
  if (flags.help()) return 0;
  if (flags.has("--presets")) {
    log::print_line(families::preset_table());
    return 0;
  }
  log::print_line(flags.has("--markdown") ? config::options_markdown()
                                          : config::help_text(flags.text("--topic")));
  return 0;
}

}  // namespace pentatron::apps
