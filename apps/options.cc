// SPDX-License-Identifier: Apache-2.0
#include "apps/command.h"
#include "pentatron/base/log.h"
#include "pentatron/config/docs.h"
#include "pentatron/config/print.h"

namespace pentatron::apps {

int options(const Words& words) {
  const Flags flags("options", "Lists every option: works, always so, planned or never.", {},
                    {{"--markdown", "", "the whole table as docs/megatron_options.md has it"},
                     {"--topic", "TOPIC", "help on one topic", ""}},
                    words);
  if (flags.help()) return 0;
  log::print_line(flags.has("--markdown") ? config::options_markdown()
                                          : config::help_text(flags.text("--topic")));
  return 0;
}

}  // namespace pentatron::apps
