// SPDX-License-Identifier: Apache-2.0
#include "apps/command.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/config/check.h"
#include "pentatron/config/print.h"
#include "pentatron/config/validate.h"
#include "pentatron/training/asked_layers.h"
#include "pentatron/training/check_run.h"
#include "pentatron/training/dry_run/dry_run.h"
#include "pentatron/training/run.h"

namespace pentatron::apps {

int pretrain_gpt(const Words& words) {
  config::ParseRequest request;
  request.words = words;
  request.environment = config::launcher_variables();
  request.layers_for = training::asked_layers;
  for (const std::string& word : words) {
    if (word == "--check-options") {
      const config::CheckReport report = config::check_options(request);
      log::print_line(report.text);
      if (report.exit_code != 0) return report.exit_code;
      const config::ParsedOptions options = config::load_options(request);
      if (options.action == config::Action::kHelp) return 0;
      const training::RunCheck check = training::check_run(options);
      log::print_line(check.text);
      if (check.refused) return exit_code(ErrorKind::kConfig);
      return check.files_missing ? exit_code(ErrorKind::kIo) : 0;
    }
  }
  const config::ParsedOptions options = config::load_options(request);
  if (options.action == config::Action::kHelp) {
    log::print_line(config::help_text(options.help_topic));
    return 0;
  }
  if (options.program_values.contains("--dry-run")) {
    training::dry_run::run(options);
    return 0;
  }
  return training::run_pretrain(options).exit_code;
}

}  // namespace pentatron::apps
