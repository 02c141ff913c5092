// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/completion.h"

#include "apps/command.h"
#include "pentatron/base/log.h"
#include "pentatron/version.h"

namespace pentatron::apps {
namespace {

std::vector<config::CommandSummary> summaries() {
  std::vector<config::CommandSummary> all;
  for (const Command& command : commands()) all.push_back({command.name, command.summary});
  return all;
}

}  // namespace

int completion(const Words& words) {
  const Flags flags("completion",
                    "Prints a completion script for a shell: bash, zsh or fish. For bash: source "
                    "<(pentatron completion bash)",
                    {"SHELL"}, {}, words);
  if (flags.help()) return 0;
  log::print_line(config::completion_script(config::parse_shell(flags.positional(0)), summaries()));
  return 0;
}

int man(const Words& words) {
  const Flags flags(
      "man",
      "Prints the manual page, with all options of pretrain_gpt by topic. To read it: "
      "pentatron man | man -l -",
      {}, {}, words);
  if (flags.help()) return 0;
  log::print_line(config::man_page(pentatron::version(), summaries()));
  return 0;
}

}  // namespace pentatron::apps
