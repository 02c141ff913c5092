// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/check.h"

#include "pentatron/base/error.h"
#include "pentatron/config/option_index.h"
#include "pentatron/config/print.h"

namespace pentatron::config {

CheckReport check_options(const ParseRequest& request, Purpose purpose) {
  Problems problems;
  ParsedOptions parsed = parse_into(request, problems);
  if (parsed.action == Action::kHelp) return {help_text(parsed.help_topic), 0};
  resolve_into(parsed.config, parsed.origins, purpose, problems);
  CheckReport report;
  if (!problems.empty()) {
    report.text = fmt::format("{} problem{} with the options:\n", problems.lines().size(),
                              problems.lines().size() == 1 ? "" : "s");
    for (const std::string& line : problems.lines()) report.text += "  " + line + "\n";
    report.text.pop_back();
    report.exit_code = exit_code(ErrorKind::kConfig);
    return report;
  }
  report.text = "the options fit together\n" + layout_line(parsed.config) + "\n";
  for (const std::string& line :
       {lowered_batches_line(parsed.config), always_so_line(parsed), no_effect_line(parsed)}) {
    if (!line.empty()) report.text += line + "\n";
  }
  const OptionIndex index;
  for (const auto& [dest, origin] : parsed.origins) {
    const OptionSpec* spec = index.find_dest(dest);
    if (spec == nullptr || spec->field.get == nullptr) continue;
    report.text += fmt::format("  {} = {}  ({}: {})\n", dest,
                               python_text(current_value(*spec, parsed.config), true),
                               to_string(origin.origin), origin.where);
  }
  report.text.pop_back();
  return report;
}

}  // namespace pentatron::config
