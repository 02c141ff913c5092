// SPDX-License-Identifier: Apache-2.0
#include "apps/command.h"
#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/comm/rank_errors.h"
#include "pentatron/config/check.h"
#include "pentatron/config/print.h"
#include "pentatron/config/validate.h"
#include "pentatron/training/asked_layers.h"
#include "pentatron/training/check_run.h"
#include "pentatron/training/dry_run/dry_run.h"
#include "pentatron/training/run.h"

namespace pentatron::apps {

namespace {

// What every rank would tell alike is told by one. A launcher's first rank is not waited for by the
// others' failures, so those hand it to the launcher.
void tell_once(const std::string& text, bool fails) {
  if (fails && comm::tell_launcher(false, "", text)) return;
  const std::string rank = env_string("RANK").value_or("0");
  if (fails || rank == "0") log::print_line(text);
}

// --check-options: the exit code.
int check_only(const config::ParseRequest& request) {
  const config::CheckReport report = config::check_options(request);
  if (report.exit_code != 0) {
    tell_once(report.text, true);
    return report.exit_code;
  }
  const config::ParsedOptions options = config::load_options(request);
  if (options.action == config::Action::kHelp) {
    tell_once(report.text, false);
    return 0;
  }
  const training::RunCheck check = training::check_run(options);
  const bool fails = check.refused || check.files_missing;
  tell_once(report.text + "\n" + check.text, fails);
  if (check.refused) return exit_code(ErrorKind::kConfig);
  return check.files_missing ? exit_code(ErrorKind::kIo) : 0;
}

}  // namespace

int pretrain_gpt(const Words& words) {
  config::ParseRequest request;
  request.words = words;
  request.environment = config::launcher_variables();
  request.layers_for = training::asked_layers;
  for (const std::string& word : words) {
    if (word == "--check-options") return check_only(request);
  }
  const config::ParsedOptions options = config::load_options(request);
  if (options.action == config::Action::kHelp) {
    tell_once(config::help_text(options.help_topic), false);
    return 0;
  }
  if (options.program_values.contains("--dry-run")) {
    training::dry_run::run(options);
    return 0;
  }
  return training::run_pretrain(options).exit_code;
}

}  // namespace pentatron::apps
